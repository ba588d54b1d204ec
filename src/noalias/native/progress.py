"""What a build says on stderr: a live line on a terminal, else one plain line, or nothing."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def quiet() -> bool:
    """``NOALIAS_QUIET=1`` silences everything here; errors are raised all the same."""
    return os.environ.get("NOALIAS_QUIET", "") not in ("", "0")


def say(text: str) -> None:
    if not quiet():
        print(f"noalias: {text}", file=sys.stderr, flush=True)


def _live() -> bool:
    return not quiet() and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Show ``text`` while the body runs."""
    if not _live():
        say(text)
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"noalias: {text}"):
        yield


@contextmanager
def steps(text: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show ``text`` with a count of finished steps and the time so far.

    Yields:
        A function that takes the number of steps finished.
    """
    if not _live():
        say(text)
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TimeElapsedColumn

    bar = Progress(
        SpinnerColumn(),
        "noalias: {task.description}",
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(text, total=total)
        yield lambda done: bar.update(task, completed=done)
