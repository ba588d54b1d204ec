"""``noalias.linear`` on DTensors: local products on local shards, nothing flattened.

Note [Who runs the rule]

``torch.distributed.tensor.experimental.register_sharding`` is DTensor's public way to a rule, and
:mod:`noalias.linear.sharding_public` uses it, for planners that ask DTensor what an operator
allows. Calls are run by the handlers below all the same, because four things cannot be said that
way:

- a dimension smaller than the number of its shards: such rules are dropped, and the operand is
  gathered instead;
- which gradients are asked for: the mask is no part of the key that sharding decisions are cached
  by, so that one mask would get another's decision;
- a bias added once: it can only be declared ``Partial``, which divides it by the number of terms,
  and the sum of the quotients is not the bias to the last bit;
- what happens under ``torch.compile``: DTensor would call the operator itself on the local
  tensors, and a compiler that is shown PyTorch's own products can fuse them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._ops import OpOverload
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec

from noalias.linear import capture, composite, sharding_compat, sharding_public
from noalias.linear.sharding_plan import Operand, Plan, plan

_Spec = DTensorSpec | None
_TRACED_SIZE = 1024


@functools.cache
def register() -> None:
    """Teach DTensor ``noalias.linear`` and ``noalias.linear_backward``; once for a process.

    Raises:
        noalias.linear.sharding_compat.Unsupported: this PyTorch's DTensor has no place for it.
    """
    sharding_compat.check()
    sharding_compat.install(torch.ops.noalias.linear.default, _linear)
    sharding_compat.install(torch.ops.noalias.linear_backward.default, _linear_backward)
    sharding_public.register()


def _linear(op_call: OpOverload, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
    tensors = (args[0], args[1], args[2] if len(args) > 2 else None)
    mesh, specs = _specs(op_call, tensors)
    x, w, b = specs
    assert x is not None
    assert w is not None
    check_shapes(x.shape, w.shape, None if b is None else b.shape)
    check_dtypes({"input": x, "weight": w, "bias": b})
    if b is not None and tuple(b.shape) != (w.shape[0],):
        # One value for all features, or a bias of more dimensions: rare, and no part of the rule.
        return torch.ops.aten.add(_linear(op_call, args[:2], kwargs), cast(Tensor, tensors[2]))
    shape = (*x.shape[:-1], w.shape[0])
    chosen = _plan("linear", x.ndim, mesh, specs, (shape,))
    spec = _result_spec(chosen, 0, mesh, shape, specs)
    if mesh.get_coordinate() is None:
        return sharding_compat.wrap(_nothing(tensors[0]), spec)
    input, weight, bias = _bring(op_call, tensors, specs, chosen)  # noqa: A001
    assert input is not None
    assert weight is not None
    bias = _as_term(bias, mesh, chosen.bias_once)
    return sharding_compat.wrap(_local_linear(input, weight, bias), spec)


def _linear_backward(
    op_call: OpOverload, args: tuple[object, ...], kwargs: dict[str, object]
) -> object:
    mask = cast("list[bool]", args[3])
    # An operand that no requested gradient needs has no say in where the others go.
    tensors = (args[0] if mask[1] else None, args[1], args[2] if mask[0] else None)
    mesh, specs = _specs(op_call, tensors)
    x, g, w = specs
    assert g is not None
    features = _input_features(x, w)
    shapes = (
        (*g.shape[:-1], features) if mask[0] else None,
        (g.shape[-1], features) if mask[1] else None,
        (g.shape[-1],) if mask[2] else None,
    )
    check_backward_shapes(
        None if x is None else x.shape, g.shape, None if w is None else w.shape, mask
    )
    check_dtypes({"grad_output": g, "input": x, "weight": w})
    chosen = _plan("linear_backward", g.ndim, mesh, specs, shapes)
    wanted = [
        None if shape is None else _result_spec(chosen, index, mesh, shape, specs)
        for index, shape in enumerate(shapes)
    ]
    if mesh.get_coordinate() is None:
        empty = tuple(None if spec is None else _nothing(tensors[1]) for spec in wanted)
        return sharding_compat.wrap(empty, wanted)
    input, grad_output, weight = _bring(op_call, tensors, specs, chosen)  # noqa: A001
    assert grad_output is not None
    gradients = _local_linear_backward(input, grad_output, weight, mask)
    # The product of transposed operands is transposed; the spec promises contiguous shards.
    local = tuple(
        None if spec is None or gradient is None else gradient.contiguous()
        for gradient, spec in zip(gradients, wanted, strict=True)
    )
    return sharding_compat.wrap(local, wanted)


def check_shapes(
    input: Sequence[int],
    weight: Sequence[int],
    bias: Sequence[int] | None,
) -> None:
    """Compare global shapes, before any collective: what is wrong is wrong on every rank.

    Raises:
        RuntimeError: ``input`` ``[*, in]``, ``weight`` ``[out, in]`` and ``bias`` ``[out]`` do not
            fit.
    """
    problem = None
    if len(input) < 1 or len(weight) != 2:
        problem = "input must have at least 1 dimension and weight 2"
    elif input[-1] != weight[1]:
        problem = (
            f"the last dimension of input ({input[-1]}) must equal the last dimension of weight "
            f"({weight[1]})"
        )
    elif bias is not None and not _broadcasts(bias, [*input[:-1], weight[0]]):
        problem = f"bias of shape {list(bias)} cannot be added; give it shape [{weight[0]}]"
    if problem is not None:
        raise RuntimeError(
            f"noalias.linear: input of global shape {list(input)} and weight of global shape "
            f"{list(weight)}: {problem}"
        )


def check_backward_shapes(
    input: Sequence[int] | None,
    grad_output: Sequence[int],
    weight: Sequence[int] | None,
    mask: Sequence[bool],
) -> None:
    """As :func:`check_shapes`: ``grad_output`` ``[*, out]`` with what the requested gradients need.

    Raises:
        RuntimeError: they do not fit, or one that is needed is None.
    """
    problem = None
    if len(grad_output) < 1:
        problem = "grad_output must have at least 1 dimension"
    elif mask[0] and weight is None:
        problem = "the gradient of input needs weight, which is None"
    elif mask[1] and input is None:
        problem = "the gradient of weight needs the input, which is None"
    elif weight is not None and tuple(weight[:1]) != tuple(grad_output[-1:]):
        problem = f"weight of shape {list(weight)} must have {grad_output[-1]} rows"
    elif input is not None and tuple(input[:-1]) != tuple(grad_output[:-1]):
        problem = f"input of shape {list(input)} must have the leading dimensions of grad_output"
    if problem is not None:
        raise RuntimeError(
            f"noalias.linear_backward: grad_output of global shape {list(grad_output)}: {problem}"
        )


def check_dtypes(specs: Mapping[str, _Spec]) -> None:
    """Compare the first operand's dtype with the others', before any collective.

    The local product would notice, but not on every rank: a bias that is added once is given to one
    coordinate of the mesh alone. That rank would raise and leave the others in their next
    collective.

    Raises:
        RuntimeError: two operands differ in dtype.
    """
    metas = {n: spec.tensor_meta for n, spec in specs.items() if spec is not None}
    dtypes = {n: meta.dtype for n, meta in metas.items() if meta is not None}
    first, dtype = next(iter(dtypes.items()))
    for name, other in dtypes.items():
        if other != dtype:
            raise RuntimeError(
                f"noalias.linear: {first} and {name} must have the same dtype, but {first} is "
                f"{dtype} and {name} is {other}; convert one of them"
            )


def _broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    pairs = zip(reversed(shape), reversed(to), strict=False)
    return len(shape) <= len(to) and all(size in (1, whole) for size, whole in pairs)


def _input_features(x: _Spec, w: _Spec) -> int:
    known = x if x is not None else w
    return 0 if known is None else known.shape[-1]


def _specs(op: OpOverload, tensors: tuple[object, ...]) -> tuple[DeviceMesh, tuple[_Spec, ...]]:
    mesh = next(tensor.device_mesh for tensor in tensors if isinstance(tensor, DTensor))
    specs = tuple(
        None if tensor is None else sharding_compat.spec_of(tensor, op, mesh) for tensor in tensors
    )
    for spec in specs:
        if spec is not None and spec.mesh != mesh:
            raise RuntimeError(
                f"{op}: the operands are on two device meshes, {mesh} and {spec.mesh}; "
                "put them on one"
            )
    return mesh, specs


def _plan(
    name: str,
    ndim: int,
    mesh: DeviceMesh,
    specs: tuple[_Spec, ...],
    results: tuple[Sequence[int] | None, ...],
) -> Plan:
    operands = tuple(
        None
        if spec is None or spec.tensor_meta is None
        else Operand(
            _plain(spec.shape),
            tuple(spec.placements),
            spec.tensor_meta.dtype.itemsize,
            sharding_compat.in_mesh_order(spec),
        )
        for spec in specs
    )
    shapes = tuple(None if shape is None else _plain(shape) for shape in results)
    return plan(name, ndim, tuple(mesh.shape), operands, shapes)


def _plain(shape: Sequence[int]) -> tuple[int, ...]:
    """Sizes to weigh plans with. A symbolic size must not be looked at: that would be a guard."""
    return tuple(size if isinstance(size, int) else _TRACED_SIZE for size in shape)


def _result_spec(
    chosen: Plan, index: int, mesh: DeviceMesh, shape: Sequence[int], specs: Iterable[_Spec]
) -> DTensorSpec:
    given = [spec for spec in specs if spec is not None]
    assert given[0].tensor_meta is not None
    dtype = given[0].tensor_meta.dtype
    return sharding_compat.make_spec(mesh, chosen.results[index], shape, dtype, given)


def _bring(
    op: OpOverload, tensors: tuple[object, ...], specs: tuple[_Spec, ...], chosen: Plan
) -> list[Tensor | None]:
    """The local parts of the operands, where the plan wants them."""
    local: list[Tensor | None] = []
    for tensor, spec, placements in zip(tensors, specs, chosen.operands, strict=True):
        if tensor is None or spec is None or placements is None:
            local.append(None)
            continue
        part = sharding_compat.local_of(tensor)
        if spec.placements != placements or not sharding_compat.in_mesh_order(spec):
            target = sharding_compat.retarget(spec, placements)
            part = sharding_compat.redistribute(part, spec, target, str(op))
        local.append(part)
    return local


def _as_term(bias: Tensor | None, mesh: DeviceMesh, once: tuple[int, ...]) -> Tensor | None:
    """What this rank adds of a bias that belongs once into a sum along the dimensions ``once``.

    Note [Every rank traces the same graph]

    Only the first coordinate adds the bias, which is exact. A compiled graph must not say so:
    AOT autograd's cache knows a DTensor by its spec, and the ranks of one machine share the cache,
    so that one rank is given the graph of another, and the bias is added by all or by none. What is
    traced therefore depends on the placements alone: every rank adds a quotient of the bias, as
    DTensor itself does from ``Replicate`` to ``Partial`` (exact where the mesh dimension is a power
    of two, and rounded once where it is not).
    """
    if bias is None or not once:
        return bias
    if _is_traced(bias):
        return bias / math.prod(mesh.size(dim) for dim in once)
    return None if any(mesh.get_local_rank(dim) != 0 for dim in once) else bias


def _nothing(tensor: object) -> Tensor:
    """The local part of a DTensor on a rank outside its mesh."""
    return sharding_compat.local_of(tensor).new_empty((0,))


def _is_traced(tensor: Tensor) -> bool:
    """Whether a compiler looks at ``tensor``: it is fake or functional."""
    from torch._subclasses.fake_tensor import FakeTensor
    from torch._subclasses.functional_tensor import FunctionalTensor

    return isinstance(tensor, (FakeTensor, FunctionalTensor))


def _local_linear(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if _is_traced(input) and not capture.capturing_whole():
        return F.linear(input, weight, bias)
    return cast(Tensor, torch.ops.noalias.linear(input, weight, bias))


def _local_linear_backward(
    input: Tensor | None,
    grad_output: Tensor,
    weight: Tensor | None,
    mask: list[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    if _is_traced(grad_output) and not capture.capturing_whole():
        return composite.linear_backward(input, grad_output, weight, mask)
    return cast(
        "tuple[Tensor | None, Tensor | None, Tensor | None]",
        torch.ops.noalias.linear_backward(input, grad_output, weight, mask),
    )
