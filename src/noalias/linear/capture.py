"""Whole capture: tracers see ``noalias.linear`` as one node and never its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch._ops import OpOverload

_whole = False


def capturing_whole() -> bool:
    """Whether tracers, modes and subclasses are handed the whole operator."""
    return _whole


@contextmanager
def whole_capture() -> Iterator[None]:
    """Show ``noalias.linear`` and ``noalias.linear_backward`` whole inside the block, process-wide.

    For those who write compilers, partitioners and sharding solvers: the AOT joint graph,
    ``make_fx``, ``torch.export`` and a ``TorchDispatchMode`` see one node for each. Take them
    apart later with :func:`decompositions`.

    Raises:
        noalias.native.NativeUnavailable: the core cannot be built.
    """
    from noalias.linear import op

    global _whole
    core = op.require_core()
    before = _whole
    _whole = True
    core.set_whole_capture(True)
    try:
        yield
    finally:
        _whole = before
        core.set_whole_capture(before)


def decompositions() -> dict[OpOverload, Callable[..., object]]:
    """A decomposition table: the two operators in terms of ``aten``.

    For ``make_fx(..., decomposition_table=...)``, ``ExportedProgram.run_decompositions`` and the
    ``decompositions`` of AOT autograd, inside :func:`whole_capture`: outside of it a tracer is
    shown PyTorch's own operators before it asks the table. ``linear`` becomes a view, ``addmm`` (``mm`` without a bias)
    and ``_unsafe_view``; ``linear_backward`` two ``mm`` and a sum, as far as they are asked for.
    """
    from noalias.linear import composite, op

    op.load_kernels()
    return {
        torch.ops.noalias.linear.default: composite.linear,
        torch.ops.noalias.linear_backward.default: composite.linear_backward,
    }
