"""The audit that runs in this process: one at a time, and none in a forked child."""

from __future__ import annotations

import os
from typing import Protocol


class Recording(Protocol):
    """What is told of forks."""

    forks: int

    def stop(self) -> None: ...


_running: list[Recording] = []


def begin(recording: Recording) -> None:
    """Make ``recording`` the one that runs.

    Raises:
        RuntimeError: another one is running.
    """
    if _running:
        raise RuntimeError(
            "noalias: an audit is running in this process already; end it before another begins"
        )
    _running.append(recording)


def end(recording: Recording) -> bool:
    """Whether ``recording`` was running; it no longer is."""
    if recording not in _running:
        return False
    _running.remove(recording)
    return True


def _after_fork_in_child() -> None:
    # The child's steps are not the program's: it runs on without the audit.
    for recording in list(_running):
        recording.stop()


def _after_fork_in_parent() -> None:
    for recording in _running:
        recording.forks += 1


os.register_at_fork(after_in_child=_after_fork_in_child, after_in_parent=_after_fork_in_parent)
