"""Reports in the formats that `noalias audit --format` knows."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noalias.audit.result import Report

FORMATS = ("text", "json", "html", "sarif", "trace")
"""The formats by name; each is the module ``noalias.audit.report.as_<name>``."""


def render(report: Report, format_: str) -> str:
    """The report as text in one of `FORMATS`.

    The result can be encoded as UTF-8 whatever the audited program's names hold.

    Raises:
        ValueError: an unknown format; names it and lists those there are.
    """
    if format_ not in FORMATS:
        raise ValueError(f"no report format {format_!r}; there are {', '.join(FORMATS)}")
    text: str = importlib.import_module(f"{__name__}.as_{format_}").render(report)
    return text
