"""Tells of every backward call. The one place that reaches into ``torch.autograd``'s own names.

Needs ``torch.autograd._engine_run_backward``, the function through which ``Tensor.backward``,
``torch.autograd.backward`` and ``torch.autograd.grad`` enter the engine (there from 2.9 to 2.15).
Where it is gone, backward calls are not seen: no price, no NA202 and no NA303, and `BackwardWatch`
says so in `unavailable`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from noalias.native.core import Core

_ENTRY = "_engine_run_backward"
_NOT_IN_BACKWARD = -1


class BackwardObserver(Protocol):
    """Hears of a backward call, on the thread that makes it."""

    def backward_begins(self, roots: Sequence[Tensor]) -> None: ...

    def backward_ends(self) -> None:
        """Not told of one that another makes, as checkpoints do: that is the end of no step."""

    def backward_failed(self, roots: Sequence[Tensor], error: BaseException) -> None: ...


class _Running(threading.local):
    """The backward calls that this thread is in, and whether the observer hears of them."""

    def __init__(self) -> None:
        self.heard: list[bool] = []


class BackwardWatch:
    """Stands in front of the engine's entry while it is started."""

    def __init__(self, core: Core, observer: BackwardObserver) -> None:
        self._core = core
        self._observer = observer
        self._stock: Callable[..., object] | None = None
        self._ours: object = None
        self._running = _Running()

    @property
    def unavailable(self) -> bool:
        """Whether this PyTorch lacks the entry."""
        return not hasattr(torch.autograd, _ENTRY)

    def start(self) -> None:
        if self.unavailable:
            return
        self._stock = getattr(torch.autograd, _ENTRY)
        self._ours = self._core.observed(self._stock, self)
        setattr(torch.autograd, _ENTRY, self._ours)

    def stop(self) -> None:
        # Somebody may have put a function of their own over ours; that one stays.
        if self._stock is not None and getattr(torch.autograd, _ENTRY, None) is self._ours:
            setattr(torch.autograd, _ENTRY, self._stock)
        self._stock = None

    # What the core's `observed` calls.

    def begin(self, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        roots = _roots(args)
        # torch.compile traces backward, too: on tensors that stand for others.
        traced = any(type(root).__module__.startswith("torch._subclasses") for root in roots)
        self._running.heard.append(self._stock is not None and not traced)
        if self._running.heard[-1]:
            self._observer.backward_begins(roots)

    def end(self) -> None:
        if self._running.heard.pop() and torch._C._current_graph_task_id() == _NOT_IN_BACKWARD:
            self._observer.backward_ends()

    def failed(self, args: tuple[object, ...], error: BaseException) -> None:
        if self._running.heard.pop():
            self._observer.backward_failed(_roots(args), error)


def _roots(args: tuple[object, ...]) -> list[Tensor]:
    given = args[0] if args else ()
    return [root for root in given if isinstance(root, Tensor)] if isinstance(given, tuple) else []
