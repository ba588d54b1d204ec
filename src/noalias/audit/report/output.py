"""Writes reports to a file or to standard output."""

from __future__ import annotations

import io
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from noalias.audit.report import render

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from noalias.audit.result import Report


def emit(report: Report, format_: str, output: str | os.PathLike[str] | None = None) -> None:
    """Write `report` in one of `FORMATS` to the file `output`, or to standard output.

    A file is replaced as a whole, so that a reader never sees half of one. On a terminal, text
    takes its width and colours; elsewhere it has neither.

    Raises:
        OSError: the file cannot be written.
        ValueError: an unknown format.
    """
    if output is not None:
        _replace(Path(output), render(report, format_))
    elif format_ == "text":
        from noalias.audit.report import as_text

        to_terminal(lambda console: as_text.show(report, console))
    else:
        _print(render(report, format_))


def to_terminal(show: Callable[[Console], None]) -> None:
    """Print with rich to standard output, also where its encoding lacks a character.

    Rich passes such a character on, and Python raises at the write; here it becomes a question
    mark, since a report that is not shown helps nobody.
    """
    from rich.console import Console

    real = Console(highlight=False)
    stream = io.StringIO()
    copy = Console(
        file=stream,
        highlight=False,
        width=real.width,
        force_terminal=real.is_terminal,
        no_color=real.no_color,
        color_system=real.color_system if real.is_terminal else None,  # type: ignore[arg-type]
    )
    show(copy)
    lines = stream.getvalue().splitlines()
    _print("\n".join(line.rstrip() for line in lines) + "\n")


def _print(text: str) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()


def _replace(path: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        # mkstemp makes files for their owner alone; a report gets what open() would have given it.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
