"""The pytest plugin: tests that fail when a training step starts to pay for aliases.

It does nothing until it is switched on with ``--noalias`` or ``noalias = true`` in pytest's
configuration. Then every test marked ``@pytest.mark.noalias(max_copies=0)`` runs under the audit
and fails if its backward makes more copies for aliases than allowed. The `noalias_audit` fixture
gives a test the audit for a part of its own, and works without the switch.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager

    from noalias.audit.codec import Json
    from noalias.audit.result import Report

    Audit = Callable[[], AbstractContextManager[Report]]

_MARKER = "noalias(max_copies=0): with --noalias, run under noalias' audit and fail on more copies"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("noalias", "alias audit")
    group.addoption(
        "--noalias",
        action="store_true",
        default=None,
        help="audit the tests marked noalias for hidden copies",
    )
    parser.addini("noalias", "audit the tests marked noalias", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _is_on(config):
        for item in items:
            marker = item.get_closest_marker("noalias")
            if marker is not None:
                _max_copies(marker)  # a mistake in it is told at once, and in one line


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    marker = item.get_closest_marker("noalias")
    if marker is None or not _is_on(item.config):
        return (yield)
    allowed = _max_copies(marker)
    with ExitStack() as afterwards, _audit()() as report:
        afterwards.callback(_keep, item, report)
        result = yield
    from noalias.testing import check

    problem = check(report, max_copies=allowed)
    if problem is not None:
        pytest.fail(problem, pytrace=False)
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    # From the reports, not from this process: under pytest-xdist the tests ran in others.
    found = [
        (report.nodeid, value)
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, value in report.user_properties
        if name == "noalias"
    ]
    if not found:
        return
    from noalias.audit.finding import Finding
    from noalias.testing import one_line

    terminalreporter.section("noalias: lines that pay for aliases")
    tests: dict[str, list[str]] = {}
    for test, value in found:
        tests.setdefault(one_line(Finding.from_json(cast("Json", value))), []).append(test)
    for line, names in tests.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        terminalreporter.write_line(line)
        terminalreporter.write_line(f"    in {names[0]}{more}")


@pytest.fixture
def noalias_audit(request: pytest.FixtureRequest) -> Audit:
    """The audit, as a function: ``with noalias_audit() as report: step()``.

    Its findings go to the terminal summary and to the test's ``user_properties``, and do not fail
    the test; assert on ``report.findings`` for that.
    """
    audit = _audit()

    @contextmanager
    def audited() -> Generator[Report]:
        with ExitStack() as afterwards, audit() as report:
            afterwards.callback(_keep, request.node, report)
            yield report

    return audited


def _is_on(config: pytest.Config) -> bool:
    return bool(config.getoption("--noalias")) or bool(config.getini("noalias"))


def _audit() -> Audit:
    from noalias.audit import audit

    return audit


def _max_copies(marker: pytest.Mark) -> int:
    unknown = set(marker.kwargs) - {"max_copies"}
    if marker.args or unknown:
        raise pytest.UsageError(f"the noalias marker takes max_copies=N only, got {marker}")
    allowed = marker.kwargs.get("max_copies", 0)
    if not isinstance(allowed, int) or isinstance(allowed, bool) or allowed < 0:
        raise pytest.UsageError(f"noalias max_copies must be an integer from 0, got {allowed!r}")
    return allowed


def _keep(item: pytest.Item, report: Report) -> None:
    for finding in report.findings:
        item.user_properties.append(("noalias", finding.to_json()))
