"""What a build says on stderr: a live line on a terminal, else one plain line, or nothing."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


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
    """Show ``text`` while the body runs; on a terminal with a spinner and the time so far."""
    if not _live():
        say(text)
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("noalias: {task.description}", markup=False))
    console = Console(stderr=True)
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        bar.add_task(text)
        yield
