"""Measures what the cures gain in a running program: some of its steps run with them.

Note [Steps that nobody asked to change]
The program did not switch the cures on, so it must not be able to tell: a write to a view that
has a hook, or that PyTorch refuses, stays stock's in every step (`Core.keep_stock_effects`). Where
the view is the result of linear, it is the cure `linear` that makes it none, before anybody
knows of the hook: that cure is left out when a recorded step has such a write. Both kinds of step
are listened to alike, so that an error is explained whenever it happens: what that costs is in
both times. The rest is in Note [Stock and cured in turns].
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from noalias.audit import hearing
from noalias.audit.price import Comparison, Kind, synchronise
from noalias.audit.report.units import plural

if TYPE_CHECKING:
    from noalias.audit.recorder import Recorder
    from noalias.audit.result import Report
    from noalias.audit.sightings import Key

_COMPANY = "the program runs audits of its own, so no steps were run with the cures to measure them"
_LINEAR = "aten::linear"
_SPARED = (
    "with the cure linear on, a hook that PyTorch drops would have run, or a call that it refuses "
    "would have been carried out: the steps that measure ran without it"
)


class InProgram:
    """Compares steps of a running program: some run with the cures, some without.

    `step_done` is called between two steps. The first steps are recorded as they are, until one
    is like the one before; then the two kinds take turns (Note [Stock and cured in turns]), and
    then recording goes on.
    """

    RECORDED = 2
    PAIRS = 5
    FEWEST = RECORDED + 6
    """Steps that a program must have for a price."""
    ALIKE_CALLS = 4
    """Without an optimizer a step is a backward call, and two that are alike make no loop yet."""
    FEWEST_CALLS = ALIKE_CALLS + 6

    def __init__(self, recorder: Recorder) -> None:
        self.comparison = Comparison(recorder, asked_for=False)
        self._recorder = recorder
        self._plan = _plan(self.PAIRS)
        self._now: tuple[Kind, str] | None = None
        self._began = 0.0
        self._over = False
        self._counts: dict[Key, int] = {}
        self._lines: frozenset[Key] = frozenset()
        self._alike = 0
        recorder.when_joined = self._interrupted

    def step_done(self, steps: int) -> None:
        """Measure the step that ended, and make ready for the next."""
        if self._over:
            return
        if self._now is None:
            if not self._repeats():
                return
            if not hearing.alone():
                self._recorder.faults[_COMPANY] = None
                self._over = True
            elif not self.comparison.possible():
                self._over = True
            if self._over:
                return
            self._spare_linear()
            self._recorder.only_errors()
        self._finish()
        following = next(self._plan, None)
        if following is None:
            self.end()
            return
        self._now = following
        kind, what = following
        self.comparison.switch(kind)
        if what == "profile":
            self.comparison.begin_profile()
        if what == "time":
            synchronise()
        self._began = time.perf_counter()

    def end(self) -> None:
        """The program ends, or the plan does: leave no cure on."""
        if self._now is not None and self._now[1] == "profile":
            self.comparison.abandon()
        if self._now is not None:
            self.comparison.switch("stock")
            self._recorder.count_again()
        self._now = None
        self._over = True

    def _repeats(self) -> bool:
        """Whether the program takes the same step again and again: the step that ended paid in the
        lines that the ones before paid in. What begins later is not recorded while it is measured.
        """
        counts = {key: sighting.count for key, sighting in self._recorder.told().items()}
        lines = frozenset(key for key, count in counts.items() if count != self._counts.get(key))
        self._alike = self._alike + 1 if lines == self._lines else 1
        self._counts, self._lines = counts, lines
        if self._recorder.steps.has_optimizer:
            return self._alike >= self.RECORDED
        return bool(lines) and self._alike >= self.ALIKE_CALLS

    def _spare_linear(self) -> None:
        for key, sighting in self._recorder.seen.items():
            maker = sighting.made_by
            if key.code in ("NA301", "NA302") and maker is not None and maker.operator == _LINEAR:
                self.comparison.leave_out("linear")
                self._recorder.faults[_SPARED] = None

    def _interrupted(self) -> None:
        """The program begins an audit of its own, which must not hear steps with our cures on."""
        if self._now is not None:
            self.end()
            if not self.comparison.complete:
                self._recorder.faults[_COMPANY] = None

    def fill(self, report: Report) -> None:
        """What was measured, or a note on why nothing was."""
        self.comparison.fill(report)
        if report.price is None and report.steps.seen and not self._recorder.faults:
            ran = f"the program ran {plural(report.steps.seen, 'step')}"
            if self._recorder.steps.has_optimizer:
                fewest = f"{self.FEWEST} on, of which each pays for aliases in the same lines"
            else:
                fewest = f"{self.FEWEST_CALLS} backward calls on that pay in the same lines"
            note = f"{ran}; the price of its aliases is measured from {fewest}"
            report.notes = (*report.notes, note)

    def _finish(self) -> None:
        if self._now is None:
            return
        kind, what = self._now
        if what == "time":
            synchronise()
            self.comparison.seconds[kind].append(time.perf_counter() - self._began)
        elif what == "profile":
            self.comparison.end_profile(kind)
        self._now = (kind, "done")


def _plan(pairs: int) -> Iterator[tuple[Kind, str]]:
    yield ("stock", "profile")
    yield ("cured", "settle")
    yield ("cured", "profile")
    yield ("cured", "time")
    yield ("stock", "settle")
    yield ("stock", "time")
    kinds: tuple[Kind, Kind] = ("stock", "cured")
    for pair in range(pairs - 1):
        for kind in kinds if pair % 2 == 0 else kinds[::-1]:
            yield (kind, "settle")
            yield (kind, "time")
