"""The operators random programs use: how each is written in Python, and how its parameters are drawn.

A sampler sees a stand-in tensor of the right shape and dtype and returns parameters, or None where the operator makes
no sense. It may ask for another operand; it need not be right always, since the generator tries each statement once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

import torch
from torch import Tensor

from .statements import Parameter, Step


class Operands(Protocol):
    """Where a sampler gets a second tensor from: an existing variable or a new leaf."""

    def operand(self, shape: tuple[int, ...], dtype: torch.dtype) -> str: ...


Sampler = Callable[[Random, Tensor, Operands], "tuple[Parameter, ...] | None"]


@dataclass(frozen=True)
class Operator:
    """One row of the table: ``source`` is a format string, ``{0}`` the tensor and ``{1}``, ... the parameters."""

    name: str
    source: str
    sample: Sampler
    weight: float = 1.0
    expression: bool = True


def render(parameter: Parameter) -> str:
    """A parameter as Python source."""
    if isinstance(parameter, str):
        return parameter.removeprefix("$")
    if isinstance(parameter, tuple):
        inner = ", ".join(render(item) for item in parameter)
        return f"({inner},)" if len(parameter) == 1 else f"({inner})"
    return repr(parameter)


def render_index(index: Parameter) -> str:
    """``x[...]``'s index: integers and names, ``(start, stop, step)``, ``"..."`` and None."""
    if not isinstance(index, tuple):
        return render(index)
    parts = []
    for item in index:
        if isinstance(item, tuple):
            start, stop, step = ("" if bound is None else render(bound) for bound in item)
            parts.append(f"{start}:{stop}" + (f":{step}" if step else ""))
        else:
            parts.append(render(item))
    return ", ".join(parts) or "()"


def render_step(step: Step, source: str) -> str:
    """The Python expression (or statement) of one step on ``source``."""
    operator = OPERATORS[str(step[0])]
    index = "[{1}]" in operator.source
    rendered = [
        render_index(item) if index and i == 0 else render(item) for i, item in enumerate(step[1:])
    ]
    return operator.source.format(source, *rendered)


def is_expression(step: Step) -> bool:
    """False for ``y[0] = v`` and ``y += v``, which cannot stand in a chain or a lambda."""
    return OPERATORS[str(step[0])].expression


def _none(rng: Random, x: Tensor, scope: Operands) -> tuple[Parameter, ...]:
    return ()


def _dim(rng: Random, x: Tensor, scope: Operands) -> tuple[Parameter, ...] | None:
    return (rng.randrange(-x.dim(), x.dim()),) if x.dim() else None


def _new_dim(rng: Random, x: Tensor, scope: Operands) -> tuple[Parameter, ...] | None:
    return (rng.randrange(x.dim() + 1),) if x.dim() < 4 else None


def _two_dims(rng: Random, x: Tensor, scope: Operands) -> tuple[Parameter, ...] | None:
    return tuple(rng.sample(range(x.dim()), 2)) if x.dim() > 1 else None


def _shape(rng: Random, x: Tensor, scope: Operands) -> tuple[Parameter, ...]:
    if rng.random() < 0.3:
        return ((-1,),) if x.numel() else ((x.numel(),),)
    return (_factorise(rng, x.numel()),)


def _factorise(rng: Random, numel: int) -> tuple[int, ...]:
    sizes, rest = [], numel
    while rest > 1 and len(sizes) < 3:
        sizes.append(rng.choice([n for n in range(1, rest + 1) if rest % n == 0]))
        rest //= sizes[-1]
    return (*sizes, rest)


def _select(rng: Random, x: Tensor, scope: Operands) -> tuple[Parameter, ...] | None:
    dims = [dim for dim in range(x.dim()) if x.size(dim)]
    if not dims:
        return None
    dim = rng.choice(dims)
    return dim, rng.randrange(-x.size(dim), x.size(dim))


def _narrow(rng: Random, x: Tensor, scope: Operands) -> tuple[Parameter, ...] | None:
    if not x.dim():
        return None
    dim = rng.randrange(x.dim())
    start = rng.randrange(x.size(dim) + 1)
    return dim, start, rng.randint(min(1, x.size(dim) - start), x.size(dim) - start)


def _index(rng: Random, x: Tensor, scope: Operands) -> tuple[Parameter, ...] | None:
    if not x.dim():
        return (("...",),)
    index: list[Parameter] = []
    for dim in range(rng.randint(1, x.dim())):
        size, kind = x.size(dim), rng.random()
        if kind < 0.35 and size:
            index.append(rng.randrange(-size, size))
        elif kind < 0.55:
            index.append((None, -1, None) if rng.random() < 0.5 else (1, None, None))
        elif kind < 0.75:
            start = rng.randrange(size + 1)
            index.append((start, rng.randint(start, size), None))
        elif kind < 0.9:
            index.append((rng.randrange(2), None, 2))
        else:
            index.append((None, None, None))
    if rng.random() < 0.2:
        index.insert(rng.choice([0, len(index)]), None)
    if rng.random() < 0.15:
        index.insert(0, "...")
    return (tuple(index),)


def _expand(rng: Random, x: Tensor, scope: Operands) -> tuple[Parameter, ...] | None:
    sizes = tuple(rng.randint(1, 3) if size == 1 else size for size in x.shape)
    return ((rng.randint(1, 2), *sizes) if x.dim() < 3 else sizes,)


def _as_strided(rng: Random, x: Tensor, scope: Operands) -> tuple[Parameter, ...] | None:
    if not x.numel():
        return None
    rows = rng.randint(1, min(3, x.numel()))
    columns = rng.randint(1, x.numel() // rows)
    strides = (columns, 1) if rng.random() < 0.7 else (1, 1)
    return (rows, columns), strides


def _diagonal(rng: Random, x: Tensor, scope: Operands) -> tuple[Parameter, ...] | None:
    return (rng.randint(-1, 1),) if x.dim() > 1 else None


def _permute(rng: Random, x: Tensor, scope: Operands) -> tuple[Parameter, ...]:
    return (tuple(rng.sample(range(x.dim()), x.dim())),)


def _unfold(rng: Random, x: Tensor, scope: Operands) -> tuple[Parameter, ...] | None:
    dims = [dim for dim in range(x.dim()) if x.size(dim) > 1]
    if not dims or x.dim() > 3:
        return None
    dim = rng.choice(dims)
    return dim, rng.randint(1, x.size(dim)), rng.randint(1, 2)


def _part(rng: Random, x: Tensor, scope: Operands) -> tuple[Parameter, ...] | None:
    dims = [dim for dim in range(x.dim()) if x.size(dim) > 1]
    if not dims:
        return None
    return rng.randint(1, 2), rng.choice(dims), rng.randrange(2)


def _split(rng: Random, x: Tensor, scope: Operands) -> tuple[Parameter, ...] | None:
    dims = [dim for dim in range(x.dim()) if 1 < x.size(dim) < 5]
    return (rng.randint(1, 2), rng.choice(dims)) if dims else None


def _unbind(rng: Random, x: Tensor, scope: Operands) -> tuple[Parameter, ...] | None:
    dims = [dim for dim in range(x.dim()) if 1 <= x.size(dim) < 5]
    return (rng.choice(dims),) if dims else None


def _number(rng: Random, x: Tensor, scope: Operands) -> tuple[Parameter, ...]:
    return (rng.choice([0.5, -1.5, 2, 3.0, 0.25, -1]),)


def _operand(rng: Random, x: Tensor, scope: Operands) -> tuple[Parameter, ...]:
    return (scope.operand(_broadcastable(rng, x), x.dtype),)


def _two_operands(rng: Random, x: Tensor, scope: Operands) -> tuple[Parameter, ...]:
    return tuple(scope.operand(_broadcastable(rng, x), x.dtype) for _ in range(2))


def _broadcastable(rng: Random, x: Tensor) -> tuple[int, ...]:
    kind = rng.random()
    if kind < 0.6:
        return tuple(x.shape)
    return tuple(x.shape[1:]) if kind < 0.8 else ()


def _index_and_number(rng: Random, x: Tensor, scope: Operands) -> tuple[Parameter, ...] | None:
    index = _index(rng, x, scope)
    return None if index is None else (*index, *_number(rng, x, scope))


def _index_and_operand(rng: Random, x: Tensor, scope: Operands) -> tuple[Parameter, ...] | None:
    index = _index(rng, x, scope)
    if index is None:
        return None
    part: Tensor = eval(f"x[{render_index(index[0])}]", {"x": x})
    return *index, scope.operand(_broadcastable(rng, part), x.dtype)


def _rows(rng: Random, x: Tensor, scope: Operands) -> tuple[Parameter, ...] | None:
    if not x.dim() or not x.size(0):
        return None
    return (tuple(rng.randrange(x.size(0)) for _ in range(rng.randint(1, 3))),)


def _rows_and_operand(rng: Random, x: Tensor, scope: Operands) -> tuple[Parameter, ...] | None:
    rows = _rows(rng, x, scope)
    return None if rows is None else (*rows, scope.operand(tuple(x.shape[1:]), x.dtype))


def _scalar_operand(rng: Random, x: Tensor, scope: Operands) -> tuple[Parameter, ...]:
    return (scope.operand((), x.dtype),)


def _weight(rng: Random, x: Tensor, scope: Operands) -> tuple[Parameter, ...] | None:
    if not x.dim() or not x.size(-1):
        return None
    return (scope.operand((rng.randint(1, 4), x.size(-1)), x.dtype),)


def _weight_and_bias(rng: Random, x: Tensor, scope: Operands) -> tuple[Parameter, ...] | None:
    if not x.dim() or not x.size(-1):
        return None
    out = rng.randint(1, 4)
    return scope.operand((out, x.size(-1)), x.dtype), scope.operand((out,), x.dtype)


def _filters(rng: Random, x: Tensor, scope: Operands) -> tuple[Parameter, ...] | None:
    if x.dim() not in (2, 3) or not x.numel():
        return None
    return scope.operand((2, x.size(-2), 1), x.dtype), scope.operand((2,), x.dtype)


def _last_size(rng: Random, x: Tensor, scope: Operands) -> tuple[Parameter, ...] | None:
    return ((x.size(-1),),) if x.dim() and x.numel() else None


def _complex(rng: Random, x: Tensor, scope: Operands) -> tuple[Parameter, ...] | None:
    return () if x.is_complex() else None


def _pairs(rng: Random, x: Tensor, scope: Operands) -> tuple[Parameter, ...] | None:
    return () if x.dim() and x.size(-1) == 2 and not x.is_complex() else None


def _three_dims(rng: Random, x: Tensor, scope: Operands) -> tuple[Parameter, ...] | None:
    return () if x.dim() == 3 and x.size(-1) > 1 else None


VIEWS = [
    Operator("view", "{0}.view({1})", _shape, 4),
    Operator("reshape", "{0}.reshape({1})", _shape, 2),
    Operator("flatten", "{0}.flatten()", _none),
    Operator("transpose", "{0}.transpose({1}, {2})", _two_dims, 2),
    Operator("t", "{0}.t()", _none),
    Operator("mT", "{0}.mT", _none, 0.5),
    Operator("select", "{0}.select({1}, {2})", _select, 2),
    Operator("index", "{0}[{1}]", _index, 5),
    Operator("narrow", "{0}.narrow({1}, {2}, {3})", _narrow, 1.5),
    Operator("diagonal", "{0}.diagonal({1})", _diagonal),
    Operator("unsqueeze", "{0}.unsqueeze({1})", _new_dim),
    Operator("squeeze", "{0}.squeeze()", _none),
    Operator("squeeze_dim", "{0}.squeeze({1})", _dim, 0.5),
    Operator("expand", "{0}.expand({1})", _expand),
    Operator("as_strided", "{0}.as_strided({1}, {2})", _as_strided),
    Operator("permute", "{0}.permute({1})", _permute),
    Operator("unfold", "{0}.unfold({1}, {2}, {3})", _unfold),
    Operator("view_as_real", "torch.view_as_real({0})", _complex, 2),
    Operator("view_as_complex", "torch.view_as_complex({0})", _pairs, 0.5),
    Operator("real", "{0}.real", _complex),
    Operator("conj", "{0}.conj()", _complex),
    Operator("detach", "{0}.detach()", _none, 0.7),
    Operator("data", "{0}.data", _none, 0.2),
    Operator("view_as", "{0}.view_as({0})", _none, 0.5),
    Operator("split_part", "{0}.split({1}, {2})[{3}]", _part),
    Operator("chunk_part", "{0}.chunk(2, {2})[{3}]", _part),
    Operator("unbind_part", "{0}.unbind()[-1]", _none, 0.7),
    Operator("contiguous", "{0}.contiguous()", _none, 0.5),
    Operator("returns_view", "ReturnsView.apply({0})", _none, 0.7),
]

PRODUCERS = [
    Operator("exp", "{0}.exp()", _none, 2),
    Operator("sigmoid", "{0}.sigmoid()", _none, 2),
    Operator("tanh", "{0}.tanh()", _none, 2),
    Operator("relu", "{0}.relu()", _none),
    Operator("gelu", "F.gelu({0})", _none, 0.7),
    Operator("silu", "F.silu({0})", _none, 0.7),
    Operator("leaky_relu", "F.leaky_relu({0})", _none, 0.7),
    Operator("elu", "F.elu({0})", _none, 0.5),
    Operator("hardtanh", "F.hardtanh({0})", _none, 0.5),
    Operator("dropout", "F.dropout({0}, 0.5)", _none, 0.7),
    Operator("sin", "{0}.sin()", _none),
    Operator("square", "{0}.square()", _none),
    Operator("abs", "{0}.abs()", _none, 0.5),
    Operator("neg", "-{0}", _none, 0.5),
    Operator("mul_number", "({0} * {1})", _number, 3),
    Operator("add_number", "({0} + {1})", _number, 3),
    Operator("mul", "({0} * {1})", _operand, 3),
    Operator("add", "({0} + {1})", _operand, 2),
    Operator("sub", "({0} - {1})", _operand),
    Operator("div", "({0} / {1})", _operand, 0.5),
    Operator("where", "torch.where({0} > 0, {0}, {1})", _operand, 0.5),
    Operator("matmul", "({0} @ {1}.mT)", _weight, 2),
    Operator("linear", "F.linear({0}, {1})", _weight),
    Operator("linear_bias", "F.linear({0}, {1}, {2})", _weight_and_bias, 4),
    Operator("softmax", "{0}.softmax({1})", _dim, 1.5),
    Operator("log_softmax", "{0}.log_softmax({1})", _dim),
    Operator("cumsum", "{0}.cumsum({1})", _dim),
    Operator("sum_dim", "{0}.sum({1})", _dim),
    Operator("mean", "{0}.mean()", _none, 0.5),
    Operator("layer_norm", "F.layer_norm({0}, {1})", _last_size),
    Operator("conv1d", "F.conv1d({0}, {1}, {2})", _filters, 1.5),
    Operator("instance_norm", "F.instance_norm({0})", _three_dims, 2),
    Operator("max_pool1d", "F.max_pool1d({0}, 1)", _three_dims),
    Operator("avg_pool1d", "F.avg_pool1d({0}, 2)", _three_dims),
    Operator("einsum", "torch.einsum('...i,oi->...o', {0}, {1})", _weight, 2),
    Operator("tensordot", "torch.tensordot({0}, {1}, dims=([-1], [1]))", _weight),
    Operator("clone", "{0}.clone()", _none, 2),
    Operator("zeros_like", "torch.zeros_like({0})", _none),
    Operator("new_zeros", "{0}.new_zeros({0}.shape)", _none, 0.7),
    Operator("repeat_interleave", "{0}.repeat_interleave(2, {1})", _dim, 0.5),
    Operator("index_rows", "{0}[{1},]", _rows),
    Operator("stack", "torch.stack([{0}, {0}])", _none, 0.5),
    Operator("double", "{0}.double()", _none, 0.3),
    Operator("saves_output", "SavesOutput.apply({0})", _none),
    Operator("saves_base", "SavesBase.apply({0})", _none),
    Operator("returns_hidden_view", "ReturnsHiddenView.apply({0})", _none, 1.5),
    Operator("returns_input", "ReturnsInput.apply({0})", _none, 0.7),
]

IN_PLACE = [
    Operator("add_number_", "{0}.add_({1})", _number, 3),
    Operator("mul_number_", "{0}.mul_({1})", _number, 4),
    Operator("div_number_", "{0}.div_({1})", _number, 1.5),
    Operator("add_", "{0}.add_({1})", _operand, 3),
    Operator("sub_", "{0}.sub_({1})", _operand),
    Operator("mul_", "{0}.mul_({1})", _operand, 3),
    Operator("div_", "{0}.div_({1})", _operand, 0.5),
    Operator("iadd", "{0} += {1}", _operand, 2, expression=False),
    Operator("imul_number", "{0} *= {1}", _number, 2, expression=False),
    Operator("addcmul_", "{0}.addcmul_({1}, {2})", _two_operands),
    Operator("lerp_", "{0}.lerp_({1}, 0.25)", _operand, 0.5),
    Operator("copy_", "{0}.copy_({1})", _operand, 2),
    Operator("fill_", "{0}.fill_({1})", _number),
    Operator("fill_tensor_", "{0}.fill_({1})", _scalar_operand, 0.7),
    Operator("zero_", "{0}.zero_()", _none),
    Operator("neg_", "{0}.neg_()", _none, 0.5),
    Operator("relu_", "{0}.relu_()", _none, 3),
    Operator("f_relu", "F.relu({0}, inplace=True)", _none, 2),
    Operator("leaky_relu_", "F.leaky_relu({0}, 0.1, inplace=True)", _none, 2),
    Operator("elu_", "F.elu({0}, inplace=True)", _none),
    Operator("silu_", "F.silu({0}, inplace=True)", _none),
    Operator("hardtanh_", "F.hardtanh({0}, inplace=True)", _none),
    Operator("dropout_", "F.dropout({0}, 0.5, inplace=True)", _none),
    Operator("clamp_", "{0}.clamp_(-0.5, 0.5)", _none),
    Operator("sigmoid_", "{0}.sigmoid_()", _none),
    Operator("tanh_", "{0}.tanh_()", _none),
    Operator("exp_", "{0}.exp_()", _none),
    Operator("sin_", "{0}.sin_()", _none),
    Operator("square_", "{0}.square_()", _none),
    Operator("cumsum_", "{0}.cumsum_({1})", _dim, 0.5),
    Operator("masked_fill_", "{0}.masked_fill_({0} > 0, {1})", _number, 1.5),
    Operator("set_mask", "{0}[{0} > 0] = {1}", _number, 1.5, expression=False),
    Operator("set_mask_tensor", "{0}[{0} > 0] = {1}", _scalar_operand, expression=False),
    Operator("index_set_number", "{0}[{1}] = {2}", _index_and_number, 2, expression=False),
    Operator("index_set", "{0}[{1}] = {2}", _index_and_operand, 5, expression=False),
    Operator("index_add_set", "{0}[{1}] += {2}", _index_and_operand, 1.5, expression=False),
    Operator("set_rows", "{0}[torch.tensor({1})] = {2}", _rows_and_operand, expression=False),
    Operator(
        "index_put_",
        "{0}.index_put_((torch.tensor({1}),), {2}, accumulate=True)",
        _rows_and_operand,
        0.7,
    ),
    Operator("set_real", "{0}.imag = {0}.real", _complex, 0.5, expression=False),
    Operator("doubles_in_place", "DoublesInPlace.apply({0})", _none),
    Operator("detach_", "{0}.detach_()", _none, 0.3),
    Operator("transpose_", "{0}.transpose_({1}, {2})", _two_dims, 0.2),
    Operator("unsqueeze_", "{0}.unsqueeze_({1})", _new_dim, 0.2),
    Operator("requires_grad_", "{0}.requires_grad_()", _none, 0.3),
]

SPLITS = [
    Operator("unpack_split", "{0}.split({1}, {2})", _split, 2),
    Operator("unpack_chunk", "{0}.chunk({1}, {2})", _split),
    Operator("unpack_unbind", "{0}.unbind({1})", _unbind, 2),
    Operator("unpack_tensor_split", "{0}.tensor_split({1}, {2})", _split, 0.7),
]

# Steps that only the generator's own templates use.
OTHERS = [
    Operator("call", "{1}({0})", _none),
    Operator("make_dual", "fwAD.make_dual({0}, {1})", _operand),
    Operator("item", "{0}[{1}]", _none),
    Operator("foreach_mul_", "torch._foreach_mul_({0}, {1})", _none),
    Operator("foreach_add_", "torch._foreach_add_({0}, {1})", _none),
    Operator("foreach_exp_", "torch._foreach_exp_({0})", _none),
    Operator("foreach_zero_", "torch._foreach_zero_({0})", _none),
    Operator("foreach_mul_list_", "torch._foreach_mul_({0}, {1})", _none),
]

OPERATORS = {
    operator.name: operator for operator in [*VIEWS, *PRODUCERS, *IN_PLACE, *SPLITS, *OTHERS]
}


def choose(rng: Random, table: list[Operator]) -> Operator:
    """A row of the table by weight."""
    return rng.choices(table, [operator.weight for operator in table])[0]
