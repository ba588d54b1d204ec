"""docs/audit-json.md documents the JSON: every key, and nothing that is not there."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from noalias.audit import result
from noalias.audit.finding import Finding

TEXT = (Path(__file__).parents[2] / "docs" / "audit-json.md").read_text(encoding="utf-8")


def keys(heading: str) -> set[str]:
    section = TEXT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE)
    return {key for row in rows for key in re.findall(r"`(\w+)`", row)}


@pytest.mark.parametrize(
    ("heading", "kind"),
    [("The report", result.Report), ("A finding", Finding), ("The price", result.Measurement)],
)
def test_every_key_is_documented_and_nothing_else(heading: str, kind: type) -> None:
    assert keys(heading) == {field.name for field in fields(kind)}


@pytest.mark.parametrize(
    "kind",
    [result.Steps, result.Price, result.Prediction, result.Slice, result.OpaqueRegion,
     result.Environment, result.Rank, result.MemoryCurve, result.RankSummary],
    ids=lambda kind: kind.__name__,
)  # fmt: skip
def test_the_keys_of_the_parts_are_named(kind: type) -> None:
    missing = [field.name for field in fields(kind) if f"`{field.name}`" not in TEXT]
    assert missing == []


def test_the_example_runs() -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    exec(compile(block, "audit-json.md", "exec"), {})
