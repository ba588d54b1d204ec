"""The table in docs/distributed.md is that of the committed measurements."""

from __future__ import annotations

import json
from pathlib import Path

from noalias.bench.placements import markdown

ROOT = Path(__file__).parents[2]


def test_the_table_of_placements_is_the_one_that_was_measured() -> None:
    measured = ROOT / "benchmarks" / "results" / "placements.json"
    report = json.loads(measured.read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "distributed.md").read_text(encoding="utf-8")
    assert markdown(report["cases"]) in page
