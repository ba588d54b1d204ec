"""The plugin, run in a pytest of its own with an audit in the recorder's place."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

SAMPLES = Path(__file__).parent / "audit"

CONFTEST = f"""
import sys
from contextlib import contextmanager
from types import ModuleType

sys.path.insert(0, {str(SAMPLES)!r})
import audit_samples
from noalias.audit.result import Report

@contextmanager
def audit():
    report = Report()
    try:
        yield report
    finally:
        report.findings = (audit_samples.HIDDEN,)

fake = ModuleType("noalias.audit.record")
fake.audit = audit
sys.modules["noalias.audit.record"] = fake
"""

GUARDED = """
import pytest

@pytest.mark.noalias(max_copies={allowed})
def test_step():
    pass
"""


# Where the package is installed, its entry point loads the plugin; loading it twice is an error.
INSTALLED = {entry.value for entry in importlib.metadata.entry_points(group="pytest11")}
LOAD = () if "noalias.pytest_plugin" in INSTALLED else ("-p", "noalias.pytest_plugin")


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest(CONFTEST)
    return pytester


def test_it_does_nothing_until_it_is_switched_on(project: pytest.Pytester) -> None:
    project.makepyfile(GUARDED.format(allowed=0))
    result = project.runpytest(*LOAD, "--strict-markers")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*noalias*pay*")


@pytest.mark.parametrize("switch", ["option", "ini"])
def test_a_marked_test_that_pays_fails(project: pytest.Pytester, switch: str) -> None:
    project.makepyfile(GUARDED.format(allowed=3))
    if switch == "ini":
        project.makeini("[pytest]\nnoalias = true")
    result = project.runpytest(*LOAD, *(["--noalias"] if switch == "option" else []))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["4 copies for aliases in backward, 3 allowed; 1 line:", "*blocks.py:41: NA101 *"]
    )


def test_copies_may_be_allowed(project: pytest.Pytester) -> None:
    project.makepyfile(GUARDED.format(allowed=4))
    project.runpytest(*LOAD, "--noalias").assert_outcomes(passed=1)


def test_findings_are_in_the_summary_once_with_their_tests(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest

        @pytest.mark.noalias(max_copies=9)
        @pytest.mark.parametrize("size", [1, 2, 3])
        def test_step(size):
            pass
        """
    )
    result = project.runpytest(*LOAD, "--noalias")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        [
            "*noalias: lines that pay for aliases*",
            "*blocks.py:41: NA101 in-place on a hidden base*",
            "*test_step[[]1] and 2 more",
        ]
    )


def test_an_unmarked_test_is_left_alone(project: pytest.Pytester) -> None:
    project.makepyfile("def test_step(): pass")
    result = project.runpytest(*LOAD, "--noalias")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*NA101*")


def test_the_fixture_gives_the_report_after_the_block(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        def test_step(noalias_audit, request):
            with noalias_audit() as report:
                assert report.findings == ()
            (finding,) = report.findings
            assert finding.code == "NA101"
            ((name, value),) = request.node.user_properties
            assert name == "noalias" and value["line"] == 41
        """
    )
    project.runpytest(*LOAD).assert_outcomes(passed=1)


def test_findings_of_a_test_that_raises_are_still_reported(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest

        @pytest.mark.noalias
        def test_step():
            raise ValueError("the step's own")
        """
    )
    result = project.runpytest(*LOAD, "--noalias")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*ValueError: the step's own", "*blocks.py:41: NA101 *"])


def test_findings_are_user_properties(project: pytest.Pytester) -> None:
    project.makepyfile(GUARDED.format(allowed=9))
    project.runpytest(*LOAD, "--noalias", "--junitxml=out.xml", "-o", "junit_family=xunit1")
    text = (project.path / "out.xml").read_text(encoding="utf-8")
    assert '<property name="noalias"' in text
    assert "NA101" in text


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [("3", "takes max_copies=N only"), ("copies=3", "takes max_copies=N only"),
     ("max_copies=-1", "must be an integer from 0, got -1"), ("max_copies='1'", "got '1'")],
)  # fmt: skip
def test_a_mark_that_makes_no_sense_is_refused(
    project: pytest.Pytester, arguments: str, complaint: str
) -> None:
    project.makepyfile(
        f"import pytest\n\n@pytest.mark.noalias({arguments})\ndef test_step(): pass\n"
    )
    result = project.runpytest(*LOAD, "--noalias")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: *{complaint}*"])


def test_the_marker_is_registered(project: pytest.Pytester) -> None:
    project.runpytest(*LOAD, "--markers").stdout.fnmatch_lines(
        ["@pytest.mark.noalias(max_copies=0)*"]
    )


def test_pytorch_is_not_imported_while_it_is_off(project: pytest.Pytester) -> None:
    project.makepyfile("import sys\n\ndef test_it(): assert 'torch' not in sys.modules")
    (project.path / "conftest.py").unlink()
    result = project.runpytest_subprocess(*LOAD)
    result.assert_outcomes(passed=1)
