"""Measures what the cures gain: the same step with and without them, in turns.

Note [Stock and cured in turns]
Times of one program swing on a shared machine, so the two kinds of step take turns, and minima are
compared. Switching cures replaces kernels, and the first step after that is slow in either
direction: it runs, and is not counted. Copies and bytes come from one profiled step of each kind,
which is not timed. `measure` listens to nothing while a step is timed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from noalias.audit.predictions import predictions
from noalias.audit.report.memory_svg import thin
from noalias.audit.result import Measurement, MemoryCurve, ModulePrice, Price
from noalias.audit.step_profile import StepProfile, StepProfiler, Totals
from noalias.audit.timeline import timeline
from noalias.ownership import cures

if TYPE_CHECKING:
    from noalias.audit.recorder import Recorder
    from noalias.audit.result import Report

Kind = Literal["stock", "cured"]

_ALREADY = "the program has cures of its own switched on, so there was nothing to compare"
_PROFILED = "a profiler was running, so copies and bytes could not be measured"


class Comparison:
    """Stock and cured steps as they are measured; `fill` puts the outcome into a report.

    Args:
        asked_for: whether somebody wants to see the cures at work. Else what a program could tell
            them by is left to stock: hooks that it drops, calls that it refuses.
    """

    def __init__(self, recorder: Recorder, *, asked_for: bool = True) -> None:
        self._recorder = recorder
        self._asked_for = asked_for
        self._core = recorder.core
        self.cures = tuple(self._core.known_cures())
        self.seconds: dict[Kind, list[float]] = {"stock": [], "cured": []}
        self.profiles: dict[Kind, StepProfile] = {}
        self.exact: bool | None = None
        self._profiler = StepProfiler(self._core)

    def possible(self) -> bool:
        """Whether no cure is on and nobody profiles; says why not in the recorder's notes."""
        problem = ""
        if self._core.active_cures():
            problem = _ALREADY
        elif not StepProfiler.possible():
            problem = _PROFILED
        if problem:
            self._recorder.faults[problem] = None
        return not problem

    def switch(self, kind: Kind) -> None:
        """The cures on for cured steps, off for stock ones."""
        if kind == "cured":
            self._core.keep_stock_effects(not self._asked_for)
            cures.enable(*self.cures)
        else:
            cures.disable(*self.cures)
            self._core.keep_stock_effects(False)

    def leave_out(self, cure: str) -> None:
        """Compare without this cure."""
        self.cures = tuple(name for name in self.cures if name != cure)

    def begin_profile(self) -> None:
        self._recorder.hold_trail()
        self._profiler.start()

    def end_profile(self, kind: Kind) -> None:
        self.profiles[kind] = self._profiler.stop()
        self._recorder.release_trail()

    def abandon(self) -> None:
        """The program ended in the middle of a profiled step."""
        self._profiler.abandon()
        self._recorder.release_trail()

    @property
    def complete(self) -> bool:
        """Whether there is at least one timed and one profiled step of each kind."""
        return len(self.profiles) == 2 and all(self.seconds.values())

    def fill(self, report: Report) -> None:
        """Price, predictions, memory and timeline, if the comparison is complete."""
        stock = self.profiles.get("stock")
        if stock is not None:
            report.timeline = timeline(self._recorder, stock)
        if not self.complete or stock is None:
            return
        cured = self.profiles["cured"]
        report.price = Price(
            self._measurement("stock"),
            self._measurement("cured"),
            runs=min(len(times) for times in self.seconds.values()),
            cures=self.cures,
            modules=tuple(self._modules(stock, cured)),
            exact=self.exact,
        )
        seen = {
            key: sighting
            for key, sighting in self._recorder.told().items()
            if self._asked_for or (key.code, sighting.verdict) != ("NA301", "hidden")
        }
        steps = max(self._recorder.recorded_steps, 1)
        report.predictions = tuple(predictions(seen, steps, stock, cured))
        report.memory = MemoryCurve(tuple(thin(stock.memory)), tuple(thin(cured.memory)))

    def _measurement(self, kind: Kind) -> Measurement:
        times, totals = self.seconds[kind], self.profiles[kind].whole
        return _measurement(totals, min(times), statistics.median(times))

    def _modules(self, stock: StepProfile, cured: StepProfile) -> Iterator[ModulePrice]:
        """Seconds of a module are those of its one profiled step, the profiler's cost included."""
        path = self._recorder.modules.path
        for number in dict.fromkeys([*stock.modules, *cured.modules]):
            pair = [side.modules.get(number, Totals()) for side in (stock, cured)]
            before, after = (_measurement(each, each.seconds, each.seconds) for each in pair)
            yield ModulePrice(path(number), before, after)


def measure(report: Report, recorder: Recorder, step: Callable[[], object], *, rounds: int) -> None:
    """Run ``step`` with and without the cures, ``rounds`` times each, and fill in the report.

    Whether results are bit-identical is said where the step returns tensors and two stock runs of
    it agree with each other.
    """
    comparison = Comparison(recorder)
    if not comparison.possible():
        return
    kinds: tuple[Kind, Kind] = ("stock", "cured")
    results: dict[str, list[Tensor]] = {}
    try:
        for kind in kinds:
            comparison.switch(kind)
            results[f"first {kind}"] = _tensors(step())
            results[kind] = _tensors(step())
            comparison.begin_profile()
            try:
                step()
            except BaseException:
                comparison.abandon()
                raise
            comparison.end_profile(kind)
    finally:
        comparison.switch("stock")
    if results["stock"] and _same(results["first stock"], results["stock"]):
        comparison.exact = _same(results["stock"], results["cured"])
    try:
        for done in range(rounds):
            for kind in kinds if done % 2 == 0 else kinds[::-1]:
                comparison.switch(kind)
                step()
                synchronise()
                began = time.perf_counter()
                step()
                synchronise()
                comparison.seconds[kind].append(time.perf_counter() - began)
    finally:
        comparison.switch("stock")
    comparison.fill(report)


def _measurement(totals: Totals, fastest: float, median: float) -> Measurement:
    return Measurement(
        fastest,
        median,
        totals.copies,
        totals.bytes_moved,
        totals.bytes_allocated,
        totals.peak_bytes,
    )


def _tensors(result: object) -> list[Tensor]:
    """Copies of the tensors that a step returned, with their gradients."""
    values: Sequence[object] = result if isinstance(result, (tuple, list)) else (result,)
    found = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value.detach().clone())
            if value.is_leaf and value.grad is not None:
                found.append(value.grad.detach().clone())
    return found


def _same(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) and all(
        a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)
        for a, b in zip(one, other, strict=True)
    )


def synchronise() -> None:
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
