"""Whole capture: tracers see ``noalias.linear`` as one node and never its parts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from noalias import native

_whole = False


def capturing_whole() -> bool:
    """Whether tracers, modes and subclasses are handed the whole operator."""
    return _whole


@contextmanager
def whole_capture() -> Iterator[None]:
    """Show ``noalias.linear`` and ``noalias.linear_backward`` whole, process-wide, inside the block.

    For those who write compilers, partitioners and sharding solvers: the AOT joint graph,
    ``make_fx``, ``torch.export`` and a ``TorchDispatchMode`` see one node for each.

    Raises:
        noalias.native.NativeUnavailable: the core cannot be built.
    """
    global _whole
    core = native.load()
    before = _whole
    _whole = True
    core.set_whole_capture(True)
    try:
        yield
    finally:
        _whole = before
        core.set_whole_capture(before)
