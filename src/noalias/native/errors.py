"""The one error that says why the C++ core cannot be had, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class NativeUnavailable(RuntimeError):
    """The C++ core cannot be built or loaded here.

    ``noalias.linear`` goes on without it (the Python composite gives the same results); the cures
    cannot.

    Attributes:
        reason: what is wrong, in one sentence.
        fix: what to do about it.
        log: the build's log, where there was a build.
    """

    def __init__(self, reason: str, *, fix: str, log: Path | None = None) -> None:
        self.reason = reason
        self.fix = fix
        self.log = log
        text = f"the noalias core is not available: {reason}\n  fix: {fix}"
        if log is not None:
            text += f"\n  log: {log}"
        super().__init__(text)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.reason, self.fix, self.log))


def _rebuild(
    cls: type[NativeUnavailable], reason: str, fix: str, log: Path | None
) -> NativeUnavailable:
    return cls(reason, fix=fix, log=log)
