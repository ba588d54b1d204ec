"""Reads the source lines around a finding."""

from __future__ import annotations

import linecache

from noalias.audit.finding import Excerpt

LONGEST_LINE = 400
"""Characters of a source line that an excerpt keeps; generated code can hold megabytes in one."""


def source_line(file: str, line: int) -> str:
    """The text of one line without its indentation; "" where the source cannot be read."""
    return linecache.getline(file, line).strip()[:LONGEST_LINE]


def excerpt(file: str, line: int, *, around: int = 2) -> Excerpt | None:
    """The lines from `around` before `line` to `around` after it, or None without source."""
    first = max(1, line - around)
    lines = [linecache.getline(file, number) for number in range(first, line + around + 1)]
    while lines and not lines[-1]:
        lines.pop()
    if len(lines) <= line - first:
        return None
    return Excerpt(first, tuple(text.rstrip("\r\n")[:LONGEST_LINE] for text in lines))
