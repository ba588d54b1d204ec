"""What a report says in one sentence, and the figures beside it: shared by text and HTML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from noalias.audit import codes
from noalias.audit.report.units import bytes_text, change_text, count_text, plural, seconds_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from noalias.audit.finding import Finding
    from noalias.audit.result import Measurement, OpaqueRegion, Price, Report

NOISE = 0.02
"""Relative difference of two times below which they are called the same: what two runs of one
program differ by on a quiet machine."""

UNSTEADY = 0.5
"""Times that differ by more than this, and by no more than their own runs do, are not the same:
they say nothing."""

FEW_RUNS = 3
"""Fewer timed runs of each kind say nothing of how much those differ among themselves."""

UNCLEAR = "unclear"
"""The change of a time that was taken too few times, or is too unsteady."""

MISSED = (
    "Predicted is what the findings' own copies come to. The measured step has every cure on, "
    "which also saves what belongs to no finding (linear's copies, those of gradients added up "
    "slice by slice or multiplied by a number, memory of gradients that are updated in place). And "
    "an operator whose gradient no alias has laid out anew may copy it itself."
)
"""Why a prediction that the measurement does not bear out need not be wrong about its line."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured quantity, stock and cured, as text and as numbers."""

    name: str
    stock: float
    cured: float
    stock_text: str
    cured_text: str
    change: str
    note: str = ""

    @property
    def better(self) -> bool:
        """Whether the cured step needs less of it."""
        return self.cured < self.stock and not self.even

    @property
    def even(self) -> bool:
        """Whether neither is known to be better."""
        return self.change in ("same", UNCLEAR)


def figures(price: Price) -> tuple[Figure, ...]:
    """The measured price: time (minimum, with the median as a note), copies, and bytes."""
    stock, cured = price.stock, price.cured
    time = _figure("Step time", stock.time_min, cured.time_min, seconds_text)
    medians = f"medians {seconds_text(stock.time_median)}, {seconds_text(cured.time_median)}"
    change = "same" if within_noise(stock, cured) else time.change
    if price.runs < FEW_RUNS or unsteady(stock, cured):
        change = UNCLEAR
    return (
        Figure(*_fields(time), change=change, note=medians),
        _figure("Copies", stock.copies, cured.copies, count_text),
        _figure("Copied", stock.bytes_moved, cured.bytes_moved, bytes_text),
        _figure("Allocated", stock.bytes_allocated, cured.bytes_allocated, bytes_text),
        _figure("Peak", stock.peak_bytes, cured.peak_bytes, bytes_text),
    )


def within_noise(stock: Measurement, cured: Measurement) -> bool:
    """Whether the two times are too close to call one of them faster.

    They are when they differ by no more than `NOISE`, or than the runs of one of them differ among
    themselves (its median from its minimum).
    """
    own = (run.time_median - run.time_min for run in (stock, cured))
    noise = max(NOISE * max(stock.time_min, cured.time_min), *own)
    return abs(stock.time_min - cured.time_min) <= noise


def unsteady(stock: Measurement, cured: Measurement) -> bool:
    """Whether the two times lie far apart, and so do the runs that they were taken from."""
    far = abs(stock.time_min - cured.time_min) > UNSTEADY * min(stock.time_min, cured.time_min)
    return within_noise(stock, cured) and far


def headline(report: Report) -> str:
    """What the step pays, in one sentence."""
    if report.price is not None and (report.findings or report.price.stock.copies):
        return _measured(report.price, bool(report.findings))
    if not report.findings:
        if report.suppressed:
            return "Nothing is new against the baseline."
        if report.opaque:
            return "Nothing was found in what could be looked into."
        if not report.steps.backward_calls:
            return "No backward pass was seen, so there is no price to tell."
        return "No line of this step pays for an alias."
    if not report.copies:
        return f"{plural(len(report.findings), 'finding')}, and no extra copies are predicted."
    return (
        f"Each step is predicted to make {plural(report.copies, 'extra copy', 'extra copies')} "
        f"for aliases, {bytes_text(report.bytes_moved)} in all."
    )


def _measured(price: Price, found: bool) -> str:
    stock, cured = price.stock, price.cured
    saved = stock.copies - cured.copies
    if saved <= 0:
        if not found:
            return "No line of this step pays for an alias."
        return f"The cures take away none of this step's {plural(stock.copies, 'copy', 'copies')}."
    copies = plural(stock.copies, "copy", "copies")
    which = "all of them" if saved == stock.copies else f"{count_text(saved)} of them"
    return f"Each step makes {copies}; enable() takes away {which}."


def consequence(price: Price) -> str:
    """What the cures change in time and peak memory, in one sentence; says where they do not."""
    stock, cured = price.stock, price.cured
    before, after = seconds_text(stock.time_min), seconds_text(cured.time_min)
    if price.runs < FEW_RUNS:
        taken = plural(price.runs, "time")
        time = f"The time was taken {taken} each, too few to compare ({before} → {after})"
    elif unsteady(stock, cured):
        time = (
            f"The time is too unsteady to tell ({before} → {after}): measure on a quiet machine, "
            "or with OMP_NUM_THREADS=1"
        )
    elif within_noise(stock, cured):
        time = f"The time stays the same within noise ({before} → {after})"
    elif cured.time_min < stock.time_min:
        change = change_text(stock.time_min, cured.time_min)
        time = f"The step takes {after} instead of {before} ({change})"
    else:
        change = change_text(stock.time_min, cured.time_min)
        time = f"The step got slower: {before} → {after} ({change})"
    peak = f"peak memory {bytes_text(stock.peak_bytes)} → {bytes_text(cured.peak_bytes)}"
    exact = {
        True: ", gradients bit-identical",
        False: ", but results or gradients DIFFER: please report this",
        None: "",
    }[price.exact]
    return f"{time}, {peak}{exact}."


def context(report: Report) -> tuple[str, ...]:
    """Steps seen, versions, device, threads and rank, one short text each."""
    steps, environment = report.steps, report.environment
    texts = [
        f"{plural(steps.seen, 'step')}, {plural(steps.backward_calls, 'backward call')} recorded",
        f"torch {environment.torch}" if environment.torch else "",
        f"noalias {environment.noalias}" if environment.noalias else "",
        f"Python {environment.python}" if environment.python else "",
        environment.device,
        plural(environment.threads, "thread") if environment.threads else "",
        environment.date[:16].replace("T", " "),
    ]
    if report.rank is not None:
        texts.append(f"rank {report.rank.rank} of {report.rank.world_size}")
    if report.ranks:
        texts.append(f"{plural(len(report.ranks), 'rank')} merged")
    return tuple(text for text in texts if text)


def tensor_text(finding: Finding) -> str:
    """``float32 (2, 32, 48, 48)``."""
    shape = ", ".join(map(str, finding.shape))
    comma = "," if len(finding.shape) == 1 else ""
    return f"{finding.dtype.removeprefix('torch.')} ({shape}{comma})"


def cost_text(finding: Finding) -> str:
    """What one finding costs per step, predicted."""
    if not finding.copies and not finding.extra_peak_bytes:
        return "no copies"
    copies = plural(finding.copies, "copy", "copies")
    text = f"{copies} in backward, {bytes_text(finding.bytes_moved)} moved"
    if finding.extra_peak_bytes:
        text += f", up to +{bytes_text(finding.extra_peak_bytes)} peak"
    return text


def happens_text(finding: Finding) -> str:
    """How often it happens: errors in the whole run, all else in a step."""
    times = plural(finding.count, "time")
    return times if finding.code in codes.ERRORS else f"{times} per step"


def verdict_text(finding: Finding) -> str:
    """Who sees the base, in words."""
    if finding.verdict == "hidden":
        return "hidden: nobody else can see the base"
    seen_by = "; ".join(finding.observers)
    if finding.verdict == "observable":
        return f"observable: {seen_by}" if seen_by else "observable"
    return f"not decided: {seen_by}" if seen_by else "not decided"


def opaque_text(region: OpaqueRegion) -> str:
    """One region that was not looked into."""
    place = f" at {region.file}:{region.line}" if region.file else ""
    module = f" in {region.module}" if region.module else ""
    return f"{region.what}{module}{place}, {plural(region.calls, 'call')}"


def module_name(module: str) -> str:
    """The module's path, or words for what lies outside modules."""
    return module or "(outside modules)"


def _figure(name: str, stock: float, cured: float, text: Callable[[float], str]) -> Figure:
    return Figure(name, stock, cured, text(stock), text(cured), change_text(stock, cured))


def _fields(figure: Figure) -> tuple[str, float, float, str, str]:
    return figure.name, figure.stock, figure.cured, figure.stock_text, figure.cured_text


def measurement_cells(measurement: Measurement | None) -> tuple[str, str, str]:
    """Time, copies and peak of one measurement, or dashes."""
    if measurement is None:
        return "–", "–", "–"
    return (
        seconds_text(measurement.time_min),
        count_text(measurement.copies),
        bytes_text(measurement.peak_bytes),
    )
