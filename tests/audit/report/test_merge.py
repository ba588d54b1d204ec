from __future__ import annotations

from dataclasses import replace

import audit_samples as samples
import pytest

from noalias.audit.finding import Finding
from noalias.audit.report import FORMATS, render
from noalias.audit.report.merge import merge
from noalias.audit.result import Environment, Rank, Report, Steps


def report(rank: int, *findings: Finding, size: int = 2, seconds: float = 0.03) -> Report:
    stock = replace(samples.STOCK, time_min=seconds)
    return Report(
        findings=findings,
        steps=Steps(3, 3, 1.0),
        price=replace(samples.price(), stock=stock),
        environment=Environment(torch="2.13.0"),
        rank=Rank(rank, size, f"node{rank}"),
        argv=("train.py",),
    )


def test_a_finding_that_all_ranks_share_is_shown_once() -> None:
    merged = merge([report(1, samples.HIDDEN), report(0, samples.HIDDEN, samples.FILL)])
    assert [(f.code, f.ranks) for f in merged.findings] == [("NA101", (0, 1)), ("NA201", (0,))]


def test_a_finding_of_one_rank_only_is_kept() -> None:
    merged = merge([report(0, samples.HIDDEN), report(1, samples.OBSERVABLE)])
    assert [(f.code, f.ranks) for f in merged.findings] == [("NA101", (0,)), ("NA102", (1,))]


def test_the_rank_that_pays_most_gives_the_numbers() -> None:
    dear = replace(samples.HIDDEN, copies=12, count=3)
    (finding,) = merge([report(0, samples.HIDDEN), report(1, dear)]).findings
    assert (finding.copies, finding.count) == (12, 3)


def test_the_same_text_on_two_lines_stays_two_findings() -> None:
    twice = (samples.HIDDEN, replace(samples.HIDDEN, line=80))
    merged = merge([report(0, *twice), report(1, *twice)])
    assert [(f.line, f.ranks) for f in merged.findings] == [(41, (0, 1)), (80, (0, 1))]


def test_the_price_is_the_slowest_rank_s_and_each_rank_keeps_its_own() -> None:
    merged = merge([report(0, seconds=0.03), report(1, seconds=0.05)])
    assert merged.price is not None
    assert merged.price.stock.time_min == 0.05
    assert [summary.stock.time_min for summary in merged.ranks if summary.stock] == [0.03, 0.05]


def test_a_measured_rank_comes_before_an_unmeasured_one() -> None:
    unmeasured = replace(report(0), price=None, steps=Steps(3, 3, 900.0))
    merged = merge([unmeasured, report(1)])
    assert merged.price is not None
    assert [summary.stock is None for summary in merged.ranks] == [True, False]


def test_a_missing_rank_is_said() -> None:
    merged = merge([report(0, size=4), report(2, size=4)])
    assert merged.notes == ("2 of 4 ranks have no report here: 1, 3",)


def test_a_note_of_one_rank_names_it_and_a_note_of_all_is_said_once() -> None:
    one, two = report(0), report(1)
    one.notes, two.notes = ("stopped after 3 steps", "raised"), ("stopped after 3 steps",)
    assert merge([one, two]).notes == ("stopped after 3 steps", "rank 0: raised")


def test_different_versions_are_said() -> None:
    other = report(1)
    other.environment = Environment(torch="2.14.1")
    assert any("different versions" in note for note in merge([report(0), other]).notes)


@pytest.mark.parametrize(
    ("reports", "complaint"),
    [
        ([], "no reports to merge"),
        ([report(0), replace(report(1), rank=None)], "a report without a rank"),
        ([report(0), report(0)], "two reports come from rank 0"),
        ([report(0, size=2), report(1, size=4)], r"different world sizes: \[2, 4\]"),
    ],
)
def test_what_cannot_be_merged_is_refused(reports: list[Report], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        merge(reports)


@pytest.mark.parametrize("format_", FORMATS)
def test_a_merged_report_can_be_shown_in_every_format(format_: str) -> None:
    merged = merge([report(0, samples.HIDDEN), report(1, samples.HIDDEN)])
    text = render(merged, format_)
    if format_ in ("text", "html"):
        assert "2 ranks merged" in text
        assert "1 on node1" in text
