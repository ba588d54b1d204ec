"""``with noalias.audit() as report:`` — what a step pays for aliases, where, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from noalias.audit.result import Report, Steps

if TYPE_CHECKING:
    from noalias.audit.recorder import Recorder


@contextmanager
def audit(
    *,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    step: Callable[[], object] | None = None,
    rounds: int = 10,
) -> Iterator[Report]:
    """Record what runs inside the block; when it ends, the report it gave has the findings.

    Gradients, results and errors are those of the program without it: no cure is switched on
    while the block runs. Findings are there after an exception, too. It listens to every thread of
    the process; audits may run inside each other or side by side, and each is told what happens in
    its own time. What ``torch.compile`` has compiled is reported as
    opaque. The first use compiles the core.

    ::

        with noalias.audit() as report:
            loss_of(model, batch).backward()
        for finding in report.findings:
            print(finding.place, finding.code, finding.message)

    Args:
        select, ignore: codes or their beginnings, as for ``noalias audit``; NA401 has to be
            selected.
        step: a training step that can be run again and again. When the block has ended without an
            exception it is run, with and without the cures in turns, and ``report.price`` says what
            the cures gain.
        rounds: how often each of the two is timed, at least 1.

    Raises:
        ValueError: a code that is none, or ``rounds`` below 1.
        noalias.native.NativeUnavailable: the core, which the audit needs, cannot be had.
    """
    from noalias.audit import codes, price
    from noalias.audit.recorder import Recorder

    if rounds < 1:
        raise ValueError(f"rounds is {rounds}; at least 1 is needed to measure anything")
    wanted = codes.wanted(select, ignore)
    recorder = Recorder(views="NA401" in wanted)
    report = Report()
    try:
        recorder.start()
        try:
            yield report
        finally:
            recorder.stop()
            fill(report, recorder)
            report.findings = codes.filter_findings(report.findings, select, ignore)
        if step is not None:
            price.measure(report, recorder, step, rounds=rounds)
            report.notes = tuple(dict.fromkeys((*report.notes, *recorder.faults)))
    finally:
        recorder.close()


def fill(report: Report, recorder: Recorder) -> None:
    """Put what ``recorder`` has seen into ``report``."""
    from noalias.audit.environment import environment, rank
    from noalias.audit.findings import findings

    report.findings = findings(recorder)
    report.steps = Steps(recorder.steps.steps, recorder.steps.backward_calls, recorder.seconds)
    report.opaque = recorder.opaque
    report.environment = environment()
    report.rank = rank()
    report.notes = (*report.notes, *notes(recorder))


def notes(recorder: Recorder) -> list[str]:
    """What a reader has to know about the recording itself."""
    told = list(recorder.faults)
    if not recorder.steps.backward_calls:
        told.append("the program never called backward: only what happened in forward is told")
    if recorder.forks:
        told.append(
            f"the program forked {recorder.forks} time{'s' if recorder.forks > 1 else ''}; "
            "the child processes were not audited"
        )
    return told
