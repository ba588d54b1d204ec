"""What a process hears of its steps, for all audits that run in it.

Note [One pair of ears]
In-place calls, lines, modules and backward calls are process-wide, so there is one of each listener
however many audits run: one may begin while another is running, in the same thread or another. Each
is told of everything from its beginning to its end. Numbers of lines and modules mean the same to
all of them, and are kept until the last has made its report.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from noalias import native
from noalias.audit.engine import BackwardWatch
from noalias.audit.hooks import HookLines
from noalias.audit.modules import ModulePaths, Returned
from noalias.audit.whose import Whose
from noalias.native.dispatch_cache import forget_resolved_kernels

if TYPE_CHECKING:
    from torch import Tensor


class Listener(Protocol):
    """An audit, while it runs."""

    forks: int
    views: bool
    """Whether to be told of what modules return."""

    def in_place(self, kind: str, operator: str, tensor: Tensor, detail: str) -> None: ...
    def returned(self, output: object, module: int) -> None: ...
    def backward_begins(self, roots: Sequence[Tensor]) -> None: ...
    def backward_ends(self) -> None: ...
    def backward_failed(self, roots: Sequence[Tensor], error: BaseException) -> None: ...
    def joined(self) -> None:
        """Another audit begins."""

    def stop(self) -> None: ...


class Hearing:
    """The process's listeners, there while somebody wants them. Holds no tensor.

    Args:
        also_users: files to count as the user's though they are noalias' own.
    """

    def __init__(self, also_users: tuple[str, ...] = ()) -> None:
        self.core = native.load()
        self._watching: list[Returned] = []
        self.modules = ModulePaths(self.core, self._watching)
        self.hooks = HookLines(self.core)
        self._whose = Whose(also_users)
        self._backward = BackwardWatch(self.core, self)
        self._listeners: list[Listener] = []
        self._holds = 0

    def join(self, listener: Listener) -> None:
        """Tell ``listener`` of what happens from now on."""
        with _lock:
            for other in self._listeners:
                other.joined()
            self.hold()
            if not self._listeners:
                self.hooks.start()
                self._backward.start()
                self.core.set_listener(self._in_place, views_only=True)
            self._listeners.append(listener)
            self._look_at_outputs()

    def leave(self, listener: Listener) -> bool:
        """Tell it no more; whether it was told until now."""
        with _lock:
            if listener not in self._listeners:
                return False
            self._listeners.remove(listener)
            self._look_at_outputs()
            if not self._listeners:
                self.core.set_listener(None)
                forget_resolved_kernels()
                self._backward.stop()
                self.hooks.stop()
            self.release()
            return True

    def _look_at_outputs(self) -> None:
        self._watching[:] = [listener.returned for listener in self._listeners if listener.views]

    def hold(self) -> None:
        """Keep the trail of lines and modules, until `release` has been called as often."""
        with _lock:
            self._holds += 1
            if self._holds == 1:
                self.modules.start()
                self.core.start_trail(self._whose)

    def release(self) -> None:
        with _lock:
            self._holds -= 1
            if self._holds == 0:
                self.modules.stop()
                self.core.stop_trail()

    # From the last that began to the first: an outer one may end the program at a step.

    def _in_place(self, kind: str, operator: str, tensor: Tensor, detail: str) -> None:
        for listener in reversed(self._listeners):
            listener.in_place(kind, operator, tensor, detail)

    def backward_begins(self, roots: Sequence[Tensor]) -> None:
        for listener in reversed(self._listeners):
            listener.backward_begins(roots)

    def backward_ends(self) -> None:
        for listener in reversed(self._listeners):
            listener.backward_ends()

    def backward_failed(self, roots: Sequence[Tensor], error: BaseException) -> None:
        for listener in reversed(self._listeners):
            listener.backward_failed(roots, error)

    def fork(self) -> None:
        """The process has forked; this is the parent."""
        for listener in self._listeners:
            listener.forks += 1

    def end(self) -> None:
        """Stop all."""
        for listener in list(self._listeners):
            listener.stop()


_lock = threading.RLock()
_hearing: Hearing | None = None
_users = 0


def acquire(also_users: tuple[str, ...] = ()) -> Hearing:
    """The process's ears; made for the first user. Call `give_back` once they are not needed."""
    global _hearing, _users
    with _lock:
        if _hearing is None:
            _hearing = Hearing(also_users)
        _users += 1
        return _hearing


def give_back() -> None:
    """One user has made its report; after the last, numbers of lines mean nothing any more."""
    global _hearing, _users
    with _lock:
        _users -= 1
        if _users == 0 and _hearing is not None:
            _hearing.core.forget_places()
            _hearing = None


def alone() -> bool:
    """Whether there is one user at most."""
    return _users <= 1


def _after_fork_in_child() -> None:
    # The child's steps are not the program's: it runs on without the audit.
    global _lock
    _lock = threading.RLock()
    if _hearing is not None:
        _hearing.end()


def _after_fork_in_parent() -> None:
    if _hearing is not None:
        _hearing.fork()


os.register_at_fork(after_in_child=_after_fork_in_child, after_in_parent=_after_fork_in_parent)
