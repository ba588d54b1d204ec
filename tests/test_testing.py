from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

sys.path.insert(0, str(Path(__file__).parent / "audit"))
import audit_samples as samples

from noalias.audit.result import Report
from noalias.testing import HiddenCopies, assert_no_hidden_copies, check, one_line


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Callable[[Report], None]:
    """Puts an audit in the recorder's place that finds what the test says."""

    def install(report: Report) -> None:
        @contextmanager
        def audit() -> Iterator[Report]:
            filled = Report()
            yield filled
            filled.findings = report.findings

        module = ModuleType("noalias.audit.record")
        module.audit = audit  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "noalias.audit.record", module)

    return install


def test_a_step_that_pays_fails_with_line_cost_and_cure(found: Callable[[Report], None]) -> None:
    found(samples.full())
    with pytest.raises(HiddenCopies) as caught:
        assert_no_hidden_copies(lambda: None)
    message = str(caught.value)
    assert message.startswith("140 copies for aliases in backward, 0 allowed; 4 lines:")
    assert "/home/ada/seg/blocks.py:41: NA101 in-place on a hidden base" in message
    assert caught.value.report.findings == samples.full().findings


def test_a_clean_step_gives_its_result(found: Callable[[Report], None]) -> None:
    found(Report())
    assert assert_no_hidden_copies(lambda: 42) == 42


def test_an_error_of_the_step_is_the_steps_own(found: Callable[[Report], None]) -> None:
    found(samples.full())
    with pytest.raises(ZeroDivisionError):
        assert_no_hidden_copies(lambda: 1 / 0)


def test_a_finding_without_copies_does_not_fail() -> None:
    assert check(Report(findings=(samples.OVERWRITTEN,))) is None


def test_the_limit_may_be_reached_but_not_passed() -> None:
    report = Report(findings=(samples.HIDDEN,))
    assert check(report, max_copies=4) is None
    assert check(report, max_copies=3) is not None


def test_codes_may_be_ignored() -> None:
    assert check(Report(findings=(samples.HIDDEN,)), ignore=["NA1"]) is None


def test_one_line_stays_on_one_line() -> None:
    line = one_line(replace(samples.HIDDEN, file="a\nb\x1b[2J.py"))
    assert line.startswith("a\\x0ab\\x1b[2J.py:41: NA101")
    assert len(line.splitlines()) == 1


def test_a_step_that_ran_already_is_a_type_error_that_says_so() -> None:
    with pytest.raises(
        TypeError, match=r"step is NoneType.*not assert_no_hidden_copies\(step\(\)\)"
    ):
        assert_no_hidden_copies(None)  # type: ignore[arg-type]
