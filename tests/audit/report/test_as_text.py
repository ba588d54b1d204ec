from __future__ import annotations

import io

import audit_samples as samples
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from noalias.audit.report import as_text
from noalias.audit.result import Rank, RankSummary, Report, Steps

FULL = as_text.render(samples.full(), width=100)


def test_the_summary_comes_first() -> None:
    lines = FULL.splitlines()
    assert lines[0] == "noalias audit  train.py --epochs 1 --data tiny"
    assert "Each step makes 9 copies; enable() takes away 8 of them." in lines[:6]


def test_a_finding_has_its_place_line_cost_verdict_and_cure() -> None:
    block = FULL.partition("NA101  ")[2].partition("\n\n")[0]
    for part in (
        "/home/ada/seg/blocks.py:41",
        "│ return F.leaky_relu(self.norm(x), 0.01, inplace=True)",
        "encoder.stages.0.blocks.0.act · aten::leaky_relu_ · float32 (2, 32, 48, 48, 48)",
        "4 copies in backward, 108 MiB moved, up to +54 MiB peak",
        "hidden: nobody else can see the base",
        "view made by aten::instance_norm at /home/ada/seg/blocks.py:40",
        "→ call `noalias.enable()`",
    ):
        assert part in block


def test_an_overwritten_value_names_both_lines_and_both_versions() -> None:
    block = FULL.partition("NA303  ")[2].partition("\n\n")[0]
    assert block.startswith("/home/ada/seg/loss.py:7")
    assert "saved by ExpBackward0 at /home/ada/seg/loss.py:5  weights = scores.exp()" in block
    assert "version 0 when saved, 1 when read in backward" in block


def test_a_prediction_that_is_not_borne_out_is_shown_as_such() -> None:
    (line,) = [line for line in FULL.splitlines() if line.startswith("peak bytes")]
    assert line.split() == ["peak", "bytes", "108", "MiB", "81", "MiB", "no"]


def test_compiled_code_is_opaque_and_not_clean() -> None:
    text = as_text.render(Report(steps=Steps(1, 1, 1), opaque=samples.full().opaque))
    assert "Not looked into, so not known to be clean:" in text
    assert "torch.compile region at /home/ada/seg/augment.py:14, 3 calls" in text


def test_what_the_baseline_knows_is_counted() -> None:
    assert "2 known findings left out: the baseline has them." in FULL


def test_ranks_are_listed() -> None:
    summary = RankSummary(Rank(3, 4, "node7"), 2, Steps(1, 1, 1), samples.STOCK, samples.CURED)
    text = as_text.render(Report(ranks=(summary,)))
    (line,) = [line for line in text.splitlines() if "3 on node7" in line]
    assert line.split()[3:] == ["2", "33.3", "ms", "9", "412", "MiB", "17.0", "ms"]


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    text = as_text.render(samples.full(), width=width)
    assert max(len(line) for line in text.splitlines()) <= width


def test_without_colour_there_is_no_escape() -> None:
    assert "\x1b" not in FULL
    assert "\x1b[" in as_text.render(samples.full(), color=True)


def test_no_color_is_respected_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = io.StringIO()
    as_text.show(samples.full(), Console(file=stream, force_terminal=True, width=80))
    assert "\x1b[3" not in stream.getvalue()


def test_a_stranger_s_text_reaches_the_terminal_neutralised() -> None:
    text = as_text.render(samples.hostile(), width=80)
    assert not {"\x1b", "\x07", "\x9b", "\u202e", "\x00"} & set(text)
    assert "[red]bold[/red]" in "".join(text.split())
    text.encode("utf-8")


def test_an_empty_report_is_a_report() -> None:
    assert "No backward pass was seen" in as_text.render(Report())


@given(st.text(st.characters(), max_size=60), st.integers(20, 120))
def test_any_text_can_be_shown(text: str, width: int) -> None:
    shown = as_text.render(samples.hostile(text), width=width)
    assert "\x1b" not in shown
    shown.encode("utf-8")
