"""The parts of DTensor that are not public, in one place.

Needed, in PyTorch 2.9.1 to 2.15.0 alike:

``DTensor._op_dispatcher._custom_op_handlers``
    A table ``operator -> handler(operator, args, kwargs)``, asked before sharding propagation.
``DTensor._op_dispatcher._try_replicate_spec_for_scalar_tensor``
    Whether a plain tensor may stand among DTensors, or the error that says so.
``DTensor._op_dispatcher.wrap``
    Local results and their specs to ``DTensor`` results.
``DTensor._spec``, ``DTensor._local_tensor``
    Placements, global shape and strides; this rank's part.
``redistribute_local_tensor(local, current spec, target spec)``
    The collectives between two placements.

Where one of them is gone, :func:`check` raises :class:`Unsupported`, and DTensors keep PyTorch's
own path through ``aten::linear``.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor.placement_types import Placement


class Handler(Protocol):
    """What DTensor calls in place of its own dispatch."""

    def __call__(
        self, op_call: OpOverload, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object: ...


class Unsupported(RuntimeError):
    """This PyTorch's DTensor has no place for the rule."""


def check() -> None:
    """Raise :class:`Unsupported`, naming what is missing, unless everything above is there."""
    dispatcher = getattr(DTensor, "_op_dispatcher", None)
    missing = [
        f"DTensor._op_dispatcher.{name}"
        for name in ("_custom_op_handlers", "wrap", "_try_replicate_spec_for_scalar_tensor")
        if not hasattr(dispatcher, name)
    ]
    try:
        from torch.distributed.tensor._redistribute import redistribute_local_tensor  # noqa: F401
    except ImportError:
        missing.append("torch.distributed.tensor._redistribute.redistribute_local_tensor")
    if missing:
        raise Unsupported(
            f"PyTorch {torch.__version__} has no {' and no '.join(missing)}, so noalias.linear has "
            "no sharding rule there; use PyTorch 2.9 to 2.15, or torch.nn.functional.linear"
        )


def install(operator: OpOverload, handler: Handler) -> None:
    """Let ``handler`` take every call of ``operator`` that has a DTensor among its arguments."""
    DTensor._op_dispatcher._custom_op_handlers[operator] = handler


def spec_of(tensor: object, operator: OpOverload, mesh: DeviceMesh) -> DTensorSpec:
    """The spec of a DTensor; of a plain tensor if DTensor takes it for a replicated one.

    Raises:
        RuntimeError: a plain tensor among DTensors, outside ``implicit_replication()``.
    """
    if isinstance(tensor, DTensor):
        return tensor._spec
    plain = cast(Tensor, tensor)
    dispatcher = DTensor._op_dispatcher
    return dispatcher._try_replicate_spec_for_scalar_tensor(operator, plain, mesh)


def local_of(tensor: object) -> Tensor:
    """This rank's part; a plain tensor is its own."""
    return tensor._local_tensor if isinstance(tensor, DTensor) else cast(Tensor, tensor)


def in_mesh_order(spec: DTensorSpec) -> bool:
    """Whether a tensor dimension of several shards was split in the order of the mesh.

    2.9 knows no other order. Since 2.11 ``DTensorSpec.shard_order`` says it, and is None where a
    ``_StridedShard`` says it instead; that one is compared as a placement.
    """
    order = getattr(spec, "shard_order", None)
    return all(list(entry.mesh_dims) == sorted(entry.mesh_dims) for entry in order or ())


def make_spec(
    mesh: DeviceMesh,
    placements: Sequence[Placement],
    shape: Sequence[int],
    dtype: torch.dtype,
    like: Sequence[DTensorSpec],
) -> DTensorSpec:
    """The spec of a contiguous result; it reads strided shards as the operands ``like`` do."""
    meta = TensorMeta(torch.Size(shape), _contiguous_strides(tuple(shape)), dtype)
    spec = DTensorSpec(mesh, tuple(placements), tensor_meta=meta)
    return _read_strided_as(spec, like)


def retarget(spec: DTensorSpec, placements: tuple[Placement, ...]) -> DTensorSpec:
    """The spec of the same tensor under other placements, in mesh order."""
    return _read_strided_as(
        DTensorSpec(spec.mesh, placements, tensor_meta=spec.tensor_meta), [spec]
    )


def _read_strided_as(spec: DTensorSpec, like: Sequence[DTensorSpec]) -> DTensorSpec:
    name = "use_strided_shard_as_shard_order"  # since 2.11
    strided = [one for one in like if any(hasattr(p, "split_factor") for p in one.placements)]
    if not strided or not any(hasattr(p, "split_factor") for p in spec.placements):
        return spec
    wanted = getattr(strided[0], name, None)
    if wanted is None or wanted == getattr(spec, name):
        return spec
    changed: dict[str, Any] = {"shard_order": None, name: wanted}
    return dataclasses.replace(spec, **changed)


def _contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step = step * (size if not isinstance(size, int) else max(size, 1))
    return tuple(reversed(strides))


def redistribute(local: Tensor, spec: DTensorSpec, target: DTensorSpec, operator: str) -> Tensor:
    """Bring this rank's part from ``spec`` to ``target``: a collective on all ranks or on none."""
    from torch.distributed.tensor._redistribute import redistribute_local_tensor

    _observe(spec, target, operator)
    return redistribute_local_tensor(local, spec, target)


def _observe(spec: DTensorSpec, target: DTensorSpec, operator: str) -> None:
    """Let ``ExplicitRedistributionContext`` (since 2.10) object, as it does to DTensor's own."""
    context = _explicit_redistribution()
    if context is not None:
        context.observe_redistribution(spec, target, f"implicit redistribution in {operator}")


@functools.cache
def _explicit_redistribution() -> Any:
    from torch.distributed.tensor import _utils

    context = getattr(_utils, "ExplicitRedistributionContext", None)
    return context if hasattr(context, "observe_redistribution") else None


def wrap(local: object, specs: object) -> object:
    """Local results to DTensors; None stays None."""
    dispatcher: Any = DTensor._op_dispatcher
    result: object = dispatcher.wrap(local, specs)
    return result
