"""Checks that run on ranks: how they are run, what they answer, and how a test reads the answers.

Starting ranks is what takes long, so all checks of a file run one after the other on one process
group, and each test reads the answers of one of them. A check is a function without arguments, is
importable by name, and returns plain values; the tests judge.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Answer = dict[str, object]
Check = Callable[[], Answer]
Answers = list[dict[str, dict[str, Any]]]  # of each rank, by the name of the check


def run(checks: Sequence[Check]) -> dict[str, Answer]:
    """On a rank: all ``checks``. One that raises answers with its traceback."""
    return {check.__name__: _caught(check) for check in checks}


def _caught(check: Check) -> Answer:
    try:
        return check()
    except Exception:  # the test that asks for this answer shows the traceback
        return {"traceback": traceback.format_exc()}


def each_rank(answers: Answers, check: Check) -> list[dict[str, Any]]:
    """In a test: what ``check`` answered on each rank; fails where it raised."""
    found = [answer[check.__name__] for answer in answers]
    for rank, answer in enumerate(found):
        assert "traceback" not in answer, f"rank {rank}: {answer['traceback']}"
    return found


def listing(folder: Path) -> dict[str, int]:
    """Everything below ``folder``, and when it was last written to."""
    return {str(path): path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))}
