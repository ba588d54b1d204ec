"""The operators random programs use, and how each is written in Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from torch import Tensor

from . import samplers as draw
from .statements import Step, render, render_index

Sampler = Callable[[Random, Tensor, draw.Operands], draw.Drawn]


@dataclass(frozen=True)
class Operator:
    """One row of the table.

    ``source`` is a format string, ``{0}`` the tensor and ``{1}``, ... the parameters; without
    ``expression`` it is a statement, which can stand neither in a chain nor in a lambda.
    """

    name: str
    source: str
    sample: Sampler
    weight: float = 1.0
    expression: bool = True


def render_step(step: Step, source: str) -> str:
    """The Python expression (or statement) of one step on ``source``."""
    operator = OPERATORS[str(step[0])]
    index = "[{1}]" in operator.source
    rendered = [
        render_index(item) if index and i == 0 else render(item) for i, item in enumerate(step[1:])
    ]
    return operator.source.format(source, *rendered)


def is_expression(step: Step) -> bool:
    """False for ``y[0] = v`` and ``y += v``."""
    return OPERATORS[str(step[0])].expression


VIEWS = [
    Operator("view", "{0}.view({1})", draw.shape, 4),
    Operator("reshape", "{0}.reshape({1})", draw.shape, 2),
    Operator("flatten", "{0}.flatten()", draw.none),
    Operator("transpose", "{0}.transpose({1}, {2})", draw.two_dims, 2),
    Operator("t", "{0}.t()", draw.none),
    Operator("mT", "{0}.mT", draw.none, 0.5),
    Operator("select", "{0}.select({1}, {2})", draw.select, 2),
    Operator("index", "{0}[{1}]", draw.index, 5),
    Operator("narrow", "{0}.narrow({1}, {2}, {3})", draw.narrow, 1.5),
    Operator("diagonal", "{0}.diagonal({1})", draw.diagonal),
    Operator("unsqueeze", "{0}.unsqueeze({1})", draw.new_dim),
    Operator("squeeze", "{0}.squeeze()", draw.none),
    Operator("squeeze_dim", "{0}.squeeze({1})", draw.dim, 0.5),
    Operator("expand", "{0}.expand({1})", draw.expand),
    Operator("as_strided", "{0}.as_strided({1}, {2})", draw.as_strided),
    Operator("permute", "{0}.permute({1})", draw.permute),
    Operator("unfold", "{0}.unfold({1}, {2}, {3})", draw.unfold),
    Operator("view_as_real", "torch.view_as_real({0})", draw.complex_only, 2),
    Operator("view_as_complex", "torch.view_as_complex({0})", draw.pairs_only, 0.5),
    Operator("real", "{0}.real", draw.complex_only),
    Operator("conj", "{0}.conj()", draw.complex_only),
    Operator("detach", "{0}.detach()", draw.none, 0.7),
    Operator("data", "{0}.data", draw.none, 0.2),
    Operator("view_as", "{0}.view_as({0})", draw.none, 0.5),
    Operator("split_part", "{0}.split({1}, {2})[{3}]", draw.part),
    Operator("chunk_part", "{0}.chunk(2, {2})[{3}]", draw.part),
    Operator("unbind_part", "{0}.unbind()[-1]", draw.none, 0.7),
    Operator("contiguous", "{0}.contiguous()", draw.none, 0.5),
    Operator("returns_view", "ReturnsView.apply({0})", draw.none, 0.7),
]

PRODUCERS = [
    Operator("exp", "{0}.exp()", draw.none, 2),
    Operator("sigmoid", "{0}.sigmoid()", draw.none, 2),
    Operator("tanh", "{0}.tanh()", draw.none, 2),
    Operator("relu", "{0}.relu()", draw.none),
    Operator("gelu", "F.gelu({0})", draw.none, 0.7),
    Operator("silu", "F.silu({0})", draw.none, 0.7),
    Operator("leaky_relu", "F.leaky_relu({0})", draw.none, 0.7),
    Operator("elu", "F.elu({0})", draw.none, 0.5),
    Operator("hardtanh", "F.hardtanh({0})", draw.none, 0.5),
    Operator("dropout", "F.dropout({0}, 0.5)", draw.none, 0.7),
    Operator("sin", "{0}.sin()", draw.none),
    Operator("square", "{0}.square()", draw.none),
    Operator("abs", "{0}.abs()", draw.none, 0.5),
    Operator("neg", "-{0}", draw.none, 0.5),
    Operator("mul_number", "({0} * {1})", draw.number, 3),
    Operator("add_number", "({0} + {1})", draw.number, 3),
    Operator("mul", "({0} * {1})", draw.operand, 3),
    Operator("add", "({0} + {1})", draw.operand, 2),
    Operator("sub", "({0} - {1})", draw.operand),
    Operator("div", "({0} / {1})", draw.operand, 0.5),
    Operator("where", "torch.where({0} > 0, {0}, {1})", draw.operand, 0.5),
    Operator("matmul", "({0} @ {1}.mT)", draw.weight, 2),
    Operator("linear", "F.linear({0}, {1})", draw.weight),
    Operator("linear_bias", "F.linear({0}, {1}, {2})", draw.weight_and_bias, 4),
    Operator("softmax", "{0}.softmax({1})", draw.dim, 1.5),
    Operator("log_softmax", "{0}.log_softmax({1})", draw.dim),
    Operator("cumsum", "{0}.cumsum({1})", draw.dim),
    Operator("sum_dim", "{0}.sum({1})", draw.dim),
    Operator("mean", "{0}.mean()", draw.none, 0.5),
    Operator("layer_norm", "F.layer_norm({0}, {1})", draw.last_size),
    Operator("conv1d", "F.conv1d({0}, {1}, {2})", draw.filters, 1.5),
    Operator("instance_norm", "F.instance_norm({0})", draw.three_dims_only, 2),
    Operator("max_pool1d", "F.max_pool1d({0}, 1)", draw.three_dims_only),
    Operator("avg_pool1d", "F.avg_pool1d({0}, 2)", draw.three_dims_only),
    Operator("einsum", "torch.einsum('...i,oi->...o', {0}, {1})", draw.weight, 2),
    Operator("tensordot", "torch.tensordot({0}, {1}, dims=([-1], [1]))", draw.weight),
    Operator("clone", "{0}.clone()", draw.none, 2),
    Operator("zeros_like", "torch.zeros_like({0})", draw.none),
    Operator("new_zeros", "{0}.new_zeros({0}.shape)", draw.none, 0.7),
    Operator("repeat_interleave", "{0}.repeat_interleave(2, {1})", draw.dim, 0.5),
    Operator("index_rows", "{0}[{1},]", draw.rows),
    Operator("stack", "torch.stack([{0}, {0}])", draw.none, 0.5),
    Operator("double", "{0}.double()", draw.none, 0.3),
    Operator("saves_output", "SavesOutput.apply({0})", draw.none),
    Operator("saves_base", "SavesBase.apply({0})", draw.none),
    Operator("returns_hidden_view", "ReturnsHiddenView.apply({0})", draw.none, 1.5),
    Operator("returns_input", "ReturnsInput.apply({0})", draw.none, 0.7),
]

IN_PLACE = [
    Operator("add_number_", "{0}.add_({1})", draw.number, 3),
    Operator("mul_number_", "{0}.mul_({1})", draw.number, 4),
    Operator("div_number_", "{0}.div_({1})", draw.number, 1.5),
    Operator("add_", "{0}.add_({1})", draw.operand, 3),
    Operator("sub_", "{0}.sub_({1})", draw.operand),
    Operator("mul_", "{0}.mul_({1})", draw.operand, 3),
    Operator("div_", "{0}.div_({1})", draw.operand, 0.5),
    Operator("iadd", "{0} += {1}", draw.operand, 2, expression=False),
    Operator("imul_number", "{0} *= {1}", draw.number, 2, expression=False),
    Operator("addcmul_", "{0}.addcmul_({1}, {2})", draw.two_operands),
    Operator("lerp_", "{0}.lerp_({1}, 0.25)", draw.operand, 0.5),
    Operator("copy_", "{0}.copy_({1})", draw.operand, 2),
    Operator("fill_", "{0}.fill_({1})", draw.number),
    Operator("fill_tensor_", "{0}.fill_({1})", draw.scalar_operand, 0.7),
    Operator("zero_", "{0}.zero_()", draw.none),
    Operator("neg_", "{0}.neg_()", draw.none, 0.5),
    Operator("relu_", "{0}.relu_()", draw.none, 3),
    Operator("f_relu", "F.relu({0}, inplace=True)", draw.none, 2),
    Operator("leaky_relu_", "F.leaky_relu({0}, 0.1, inplace=True)", draw.none, 2),
    Operator("elu_", "F.elu({0}, inplace=True)", draw.none),
    Operator("silu_", "F.silu({0}, inplace=True)", draw.none),
    Operator("hardtanh_", "F.hardtanh({0}, inplace=True)", draw.none),
    Operator("dropout_", "F.dropout({0}, 0.5, inplace=True)", draw.none),
    Operator("clamp_", "{0}.clamp_(-0.5, 0.5)", draw.none),
    Operator("sigmoid_", "{0}.sigmoid_()", draw.none),
    Operator("tanh_", "{0}.tanh_()", draw.none),
    Operator("exp_", "{0}.exp_()", draw.none),
    Operator("sin_", "{0}.sin_()", draw.none),
    Operator("square_", "{0}.square_()", draw.none),
    Operator("cumsum_", "{0}.cumsum_({1})", draw.dim, 0.5),
    Operator("masked_fill_", "{0}.masked_fill_({0} > 0, {1})", draw.number, 1.5),
    Operator("set_mask", "{0}[{0} > 0] = {1}", draw.number, 1.5, expression=False),
    Operator("set_mask_tensor", "{0}[{0} > 0] = {1}", draw.scalar_operand, expression=False),
    Operator("index_set_number", "{0}[{1}] = {2}", draw.index_and_number, 2, expression=False),
    Operator("index_set", "{0}[{1}] = {2}", draw.index_and_operand, 5, expression=False),
    Operator("index_add_set", "{0}[{1}] += {2}", draw.index_and_operand, 1.5, expression=False),
    Operator("set_rows", "{0}[torch.tensor({1})] = {2}", draw.rows_and_operand, expression=False),
    Operator(
        "index_put_",
        "{0}.index_put_((torch.tensor({1}),), {2}, accumulate=True)",
        draw.rows_and_operand,
        0.7,
    ),
    Operator("set_real", "{0}.imag = {0}.real", draw.complex_only, 0.5, expression=False),
    Operator("doubles_in_place", "DoublesInPlace.apply({0})", draw.none),
    Operator("detach_", "{0}.detach_()", draw.none, 0.3),
    Operator("transpose_", "{0}.transpose_({1}, {2})", draw.two_dims, 0.2),
    Operator("unsqueeze_", "{0}.unsqueeze_({1})", draw.new_dim, 0.2),
    Operator("requires_grad_", "{0}.requires_grad_()", draw.none, 0.3),
]

SPLITS = [
    Operator("unpack_split", "{0}.split({1}, {2})", draw.split, 2),
    Operator("unpack_chunk", "{0}.chunk({1}, {2})", draw.split),
    Operator("unpack_unbind", "{0}.unbind({1})", draw.unbind, 2),
    Operator("unpack_tensor_split", "{0}.tensor_split({1}, {2})", draw.split, 0.7),
]

# Steps that only the generator's own templates use.
OTHERS = [
    Operator("call", "{1}({0})", draw.none),
    Operator("make_dual", "fwAD.make_dual({0}, {1})", draw.operand),
    Operator("item", "{0}[{1}]", draw.none),
    Operator("foreach_mul_", "torch._foreach_mul_({0}, {1})", draw.none),
    Operator("foreach_add_", "torch._foreach_add_({0}, {1})", draw.none),
    Operator("foreach_exp_", "torch._foreach_exp_({0})", draw.none),
    Operator("foreach_zero_", "torch._foreach_zero_({0})", draw.none),
    Operator("foreach_mul_list_", "torch._foreach_mul_({0}, {1})", draw.none),
]

OPERATORS = {
    operator.name: operator for operator in [*VIEWS, *PRODUCERS, *IN_PLACE, *SPLITS, *OTHERS]
}


def choose(rng: Random, table: list[Operator]) -> Operator:
    """A row of the table by weight."""
    return rng.choices(table, [operator.weight for operator in table])[0]
