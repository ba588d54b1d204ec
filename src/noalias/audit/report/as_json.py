"""Reports as JSON text, written and read. The keys are documented in docs/audit-json.md."""

from __future__ import annotations

import os
from pathlib import Path

from noalias.audit.codec import dumps, parse
from noalias.audit.result import Report


def render(report: Report) -> str:
    """The report as JSON text."""
    return dumps(report.to_json())


def loads(text: str | bytes, name: str = "report") -> Report:
    """Read a report from JSON text; `name` stands for it in errors.

    Raises:
        FormatError: not JSON, not a report, or a wrong value; names the place.
    """
    return Report.from_json(parse(text, name))


def read(path: str | os.PathLike[str]) -> Report:
    """Read a report file. Raises `FormatError` as `loads` does, and `OSError`."""
    return loads(Path(path).read_bytes(), os.fspath(path))
