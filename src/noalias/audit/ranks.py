"""Reports of a distributed run: one for each rank, and one that merges them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from noalias.audit.report import as_json, output
from noalias.audit.report.merge import merge

if TYPE_CHECKING:
    from noalias.audit.result import Report

DEFAULT = "noalias-audit"
PATIENCE = 60.0
"""Seconds that rank 0 waits for the other ranks' reports."""


def path_of(rank: int, given: str | None) -> Path:
    """Where the report of ``rank`` goes: beside the merged one, ``report.rank3.json``."""
    base = Path(given) if given is not None else Path(DEFAULT)
    return base.with_name(f"{base.stem}.rank{rank}.json")


def forget(rank: int, given: str | None) -> None:
    """Remove what an earlier run left as the report of ``rank``: it would be merged as this one's.

    Raises:
        OSError: it cannot be removed.
    """
    path_of(rank, given).unlink(missing_ok=True)


def write(report: Report, given: str | None) -> Path:
    """Write this rank's report.

    Raises:
        OSError: it cannot be written.
    """
    assert report.rank is not None, "the report of a rank"
    path = path_of(report.rank.rank, given)
    output.emit(report, "json", path)
    return path


def collect(size: int, given: str | None, patience: float = PATIENCE) -> Report:
    """The merged report of all ``size`` ranks; of those that are there when patience ends."""
    paths = [path_of(number, given) for number in range(size)]
    deadline = time.monotonic() + patience
    while not all(path.exists() for path in paths) and time.monotonic() < deadline:
        time.sleep(0.1)
    return read([path for path in paths if path.exists()])


def read(paths: Sequence[str | Path]) -> Report:
    """Read and merge reports of ranks; a folder stands for all ``*.json`` in it.

    Raises:
        FormatError: a file is no report.
        OSError: a file cannot be read.
        ValueError: the reports are not of one run.
    """
    return merge([as_json.read(path) for path in _files(paths)])


def _files(paths: Iterable[str | Path]) -> Iterable[Path]:
    for path in map(Path, paths):
        if path.is_dir():
            yield from sorted(path.glob("*.json"))
        else:
            yield path
