from __future__ import annotations

import json
from typing import Any

import audit_samples as samples
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noalias.audit.report import as_trace
from noalias.audit.result import Rank, Report, Slice


def events(report: Report) -> list[dict[str, Any]]:
    made = json.loads(as_trace.render(report))["traceEvents"]
    assert isinstance(made, list)
    return made


def of(report: Report, phase: str) -> list[dict[str, Any]]:
    return [event for event in events(report) if event["ph"] == phase]


def test_copies_are_slices_with_their_bytes() -> None:
    copies = [e for e in of(samples.full(), "X") if e["cat"] == "copy"]
    assert [copy["args"]["bytes"] for copy in copies] == [27 * samples.MIB] * 2
    assert copies[0]["ts"] == pytest.approx(18_000)
    assert copies[0]["dur"] == pytest.approx(2_000)


def test_an_in_place_line_names_its_line_module_and_code() -> None:
    (line,) = [e for e in of(samples.full(), "X") if e["cat"] == "in_place"]
    assert line["args"] == {
        "line": "/home/ada/seg/blocks.py:41",
        "module": "encoder.stages.0.blocks.0.act",
        "code": "NA101",
    }


def test_an_arrow_leads_from_the_line_to_each_of_its_copies() -> None:
    report = samples.full()
    starts, ends = of(report, "s"), of(report, "f")
    assert len(starts) == len(ends) == 2
    assert [e["id"] for e in starts] == [e["id"] for e in ends]
    (line,) = [e for e in of(report, "X") if e["cat"] == "in_place"]
    copies = [e for e in of(report, "X") if e["cat"] == "copy"]
    for start, end, copy in zip(starts, ends, copies, strict=True):
        assert line["ts"] < start["ts"] < line["ts"] + line["dur"]
        assert copy["ts"] < end["ts"] < copy["ts"] + copy["dur"]
        assert (start["tid"], end["tid"]) == (line["tid"], copy["tid"])
        assert end["bp"] == "e"


def test_memory_is_two_counters() -> None:
    names = {event["name"] for event in of(samples.full(), "C")}
    assert names == {"live bytes, stock", "live bytes, cured"}


def test_a_rank_is_a_process() -> None:
    report = samples.full()
    report.rank = Rank(3, 4)
    assert {event["pid"] for event in events(report)} == {3}
    assert {"ph": "M", "name": "process_name", "pid": 3, "tid": 0, "args": {"name": "rank 3"}} in (
        events(report)
    )


@pytest.mark.parametrize("cause", [-1, 1, 99])
def test_a_cause_that_is_not_in_the_timeline_draws_no_arrow(cause: int) -> None:
    report = Report(timeline=(Slice("copy_", "copy", 0.0, 1.0, cause=cause),))
    assert of(report, "s") == []


def test_an_empty_report_is_a_trace() -> None:
    assert [event["ph"] for event in events(Report())] == ["M"]


@given(st.text(st.characters(), max_size=60))
def test_any_text_gives_a_trace(text: str) -> None:
    for event in events(samples.hostile(text)):
        assert event["ph"] in {"M", "X", "s", "f", "C"}
        assert isinstance(event["pid"], int)
