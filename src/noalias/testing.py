"""Assertions for people's own tests, whatever runs them. For pytest see `noalias.pytest_plugin`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from noalias.audit.finding import Finding
    from noalias.audit.result import Report

T = TypeVar("T")


class HiddenCopies(AssertionError):
    """A step makes more copies for aliases than it may. `report` is the audit's."""

    def __init__(self, message: str, report: Report) -> None:
        super().__init__(message)
        self.report = report


def assert_no_hidden_copies(
    step: Callable[[], T],
    *,
    max_copies: int = 0,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
) -> T:
    """Run `step` under the audit and fail if it pays for aliases.

    Args:
        step: one training step, forward and backward, without arguments.
        max_copies: copies that backward may make for aliases before this fails.
        select, ignore: codes or their beginnings, as for ``noalias audit``.

    Returns:
        What `step` returned.

    Raises:
        HiddenCopies: names each line, what it costs and how it is cured.
        NativeUnavailable: the core, which the audit needs, cannot be had.
        TypeError: `step` cannot be called.
    """
    if not callable(step):
        raise TypeError(
            f"assert_no_hidden_copies: step is {type(step).__name__}, and must be a "
            "function to call: assert_no_hidden_copies(step), not assert_no_hidden_copies(step())"
        )
    from noalias.audit import audit

    with audit() as report:
        result = step()
    problem = check(report, max_copies=max_copies, select=select, ignore=ignore)
    if problem is not None:
        raise HiddenCopies(problem, report)
    return result


def check(
    report: Report,
    *,
    max_copies: int = 0,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
) -> str | None:
    """What is wrong with `report`, or None: more than `max_copies` copies predicted in all."""
    from noalias.audit.codes import filter_findings
    from noalias.audit.report.units import plural

    findings = filter_findings(report.findings, select, ignore)
    copies = sum(finding.copies for finding in findings)
    if copies <= max_copies:
        return None
    paying = [finding for finding in findings if finding.copies]
    head = (
        f"{plural(copies, 'copy', 'copies')} for aliases in backward, {max_copies} allowed; "
        f"{plural(len(paying), 'line')}:"
    )
    return "\n".join([head, *(f"  {one_line(finding)}" for finding in paying)])


def one_line(finding: Finding) -> str:
    """A finding on one line: place, code, cost, cure."""
    from noalias.audit import codes
    from noalias.audit.report.headline import cost_text
    from noalias.visible import visible

    code = codes.explain(finding.code)
    text = (
        f"{finding.place}: {finding.code} {code.title} ({finding.operator}, "
        f"{cost_text(finding)}): {finding.cure or code.cure}"
    )
    return visible(text, 600)
