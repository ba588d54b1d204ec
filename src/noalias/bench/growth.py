"""How backward grows with the number of steps of a loop: stock, cured, and written by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch

import noalias
from noalias.bench import bits, loops, text
from noalias.bench.compare import Comparison, compare
from noalias.bench.counts import count
from noalias.bench.measure import Ratio, Step, Timing, Variant, interleave, ratio

if TYPE_CHECKING:
    from rich.table import Table

    from noalias.bench.progress import Progress

STEPS = (64, 128, 256, 512, 1024, 2048, 4096)
# Below this many steps the fixed cost of a backward call shows, and a fit would flatter.
FIT_FROM = 256


@dataclass(frozen=True)
class Point:
    """One loop at one number of steps; times and bytes are of backward alone.

    Attributes:
        stock, stock_peak_bytes: `None` where stock was predicted to take too long.
        stock_over_cured: from rounds in which both ran.
        cured_over_by_hand: likewise.
        gradients_equal: cured to stock in every bit; to the form by hand where stock did not run.
    """

    loop: str
    by_hand_name: str
    steps: int
    stock: Timing | None
    cured: Timing
    by_hand: Timing
    stock_over_cured: Ratio | None
    cured_over_by_hand: Ratio
    stock_peak_bytes: int | None
    cured_peak_bytes: int
    by_hand_peak_bytes: int
    gradients_equal: bool


@dataclass(frozen=True)
class Fit:
    """The exponent p of time ~ steps**p, and the numbers of steps it was fitted over."""

    loop: str
    variant: str
    exponent: float
    first: int
    last: int


@dataclass(frozen=True)
class Growth:
    """Both loops, their fits, and whole programs.

    Attributes:
        cold_caches: whether each backward of the loops began with caches full of something else.
    """

    points: tuple[Point, ...]
    fits: tuple[Fit, ...]
    programs: tuple[Comparison, ...]
    cold_caches: bool = False


def exponent(steps: Sequence[int], seconds: Sequence[float]) -> float:
    """The slope of the least-squares line through (log steps, log seconds).

    Raises:
        ValueError: with fewer than two different numbers of steps.
    """
    if len(set(steps)) < 2:
        raise ValueError(f"steps {list(steps)}: a slope needs at least two different numbers")
    x, y = [math.log(n) for n in steps], [math.log(s) for s in seconds]
    middle_x, middle_y = sum(x) / len(x), sum(y) / len(y)
    covariance = sum((a - middle_x) * (b - middle_y) for a, b in zip(x, y, strict=True))
    return covariance / sum((a - middle_x) ** 2 for a in x)


def run(
    *,
    device: str = "cpu",
    steps: Sequence[int] = STEPS,
    rounds: int = 10,
    stock_limit: float = 10.0,
    program_steps: int = 256,
    budget: float | None = 10.0,
    cold_caches: bool = False,
    progress: Progress | None = None,
) -> Growth:
    """Both loops over all `steps`, then the whole programs.

    Args:
        steps: increasing numbers of steps.
        rounds: for the cured loop and the form by hand; stock, which is slow, gets three.
        stock_limit: seconds that one backward of stock may be predicted to take; beyond, stock is
            left out.
        program_steps: length of the whole programs.
        budget: seconds for each point and program after which no further round starts.
        cold_caches: fill the caches with something else before each backward of the loops, so that
            short ones do not find their graph there and long ones do not.

    Raises:
        noalias.NativeUnavailable: where the core cannot be built.
    """
    place = torch.device(device)
    points: list[Point] = []
    for name, loop, by_hand, by_hand_name in loops.LOOPS:
        last: Point | None = None
        for length in steps:
            last = _point(
                name,
                (loop, by_hand, by_hand_name),
                length,
                device=place,
                with_stock=_predicted(last, length) <= stock_limit,
                rounds=rounds,
                budget=budget,
                cold_caches=cold_caches,
                progress=progress,
            )
            points.append(last)
    programs = tuple(
        compare(program, place, rounds=5, budget=budget, progress=progress)
        for program in loops.programs(program_steps)
    )
    return Growth(tuple(points), _fits(points), programs, cold_caches)


def _predicted(last: Point | None, steps: int) -> float:
    if last is None:
        return 0.0
    if last.stock is None:
        return math.inf
    return last.stock.minimum * (steps / last.steps) ** 2


def _point(
    name: str,
    forms: tuple[loops.Loop, loops.Loop, str],
    steps: int,
    *,
    device: torch.device,
    with_stock: bool,
    rounds: int,
    budget: float | None,
    cold_caches: bool,
    progress: Progress | None,
) -> Point:
    loop, by_hand_loop, by_hand_name = forms
    leaves = loops.inputs(name, steps, device)
    stock = Variant("stock", partial(_backward, loop, leaves))
    cured = Variant("cured", partial(_backward, loop, leaves), noalias.enabled)
    by_hand = Variant(by_hand_name, partial(_backward, by_hand_loop, leaves))
    time = partial(
        interleave, device=device, budget=budget, cold_caches=cold_caches, progress=progress
    )
    label = f"growth: {name}, {steps} steps"
    slow = time([stock, cured], rounds=3, warmup=1, label=label) if with_stock else None
    fast = time([cured, by_hand], rounds=rounds, label=label)

    def peak(variant: Variant) -> int:
        return count(variant.prepare, device=device, context=variant.context).peak_bytes

    reference = stock if with_stock else by_hand
    return Point(
        loop=name,
        by_hand_name=by_hand_name,
        steps=steps,
        stock=slow["stock"] if slow else None,
        cured=fast["cured"],
        by_hand=fast[by_hand_name],
        stock_over_cured=ratio(slow["stock"], slow["cured"]) if slow else None,
        cured_over_by_hand=ratio(fast["cured"], fast[by_hand_name]),
        stock_peak_bytes=peak(stock) if with_stock else None,
        cured_peak_bytes=peak(cured),
        by_hand_peak_bytes=peak(by_hand),
        gradients_equal=bits.distance(_gradients(cured, leaves), _gradients(reference, leaves))
        == 0,
    )


def _backward(loop: loops.Loop, leaves: tuple[torch.Tensor, torch.Tensor]) -> Step:
    for leaf in leaves:
        leaf.grad = None
    loss = loop(*leaves)
    return lambda: loss.backward()


def _gradients(
    variant: Variant, leaves: tuple[torch.Tensor, torch.Tensor]
) -> list[torch.Tensor | None]:
    with variant.context():
        variant.prepare()()
    return [leaf.grad for leaf in leaves]


def _fits(points: Sequence[Point]) -> tuple[Fit, ...]:
    fits = []
    for name, *_ in loops.LOOPS:
        long = [point for point in points if point.loop == name and point.steps >= FIT_FROM]
        for variant, of in SERIES.items():
            measured = [(p.steps, timing.minimum) for p in long if (timing := of(p)) is not None]
            if len(measured) >= 2:
                lengths, seconds = zip(*measured, strict=True)
                fits.append(
                    Fit(name, variant, exponent(lengths, seconds), min(lengths), max(lengths))
                )
    return tuple(fits)


SERIES: dict[str, Callable[[Point], Timing | None]] = {
    "stock": lambda point: point.stock,
    "cured": lambda point: point.cured,
    "by hand": lambda point: point.by_hand,
}


def table(result: Growth) -> Table:
    columns = (
        *(
            "",
            "steps",
            "stock\nms",
            "cured\nms",
            "by hand\nms",
            "stock /\ncured",
            "cured /\nby hand",
        ),
        *("peak, stock\nMiB", "cured\nMiB", "by hand\nMiB"),
    )
    state = f"{loops.BATCH} × {loops.WIDTH}"
    title = f"Growth: backward alone (min) over the number of steps, states of {state}, float32"
    if result.cold_caches:
        title += ", cold caches"
    differ = [f"{p.loop} {p.steps}" for p in result.points if not p.gradients_equal]
    gradients = (
        f"Gradients differ at: {', '.join(differ)}."
        if differ
        else "Cured gradients are the same as stock's in every bit"
        + (" (as those by hand where stock was over the limit)." if _over_limit(result) else ".")
    )
    return text.grid(title, columns, map(_cells, result.points), gradients)


def _over_limit(result: Growth) -> bool:
    return any(point.stock is None for point in result.points)


def _cells(point: Point) -> tuple[str, ...]:
    stock, peak, gain = point.stock, point.stock_peak_bytes, point.stock_over_cured
    return (
        f"{point.loop} ({point.by_hand_name})",
        str(point.steps),
        "over limit" if stock is None else text.milliseconds(stock.minimum),
        text.milliseconds(point.cured.minimum),
        text.milliseconds(point.by_hand.minimum),
        "" if gain is None else f"{gain.of_minima:.2f}",
        f"{point.cured_over_by_hand.of_minima:.2f}",
        "" if peak is None else text.mebibytes(peak),
        text.mebibytes(point.cured_peak_bytes),
        text.mebibytes(point.by_hand_peak_bytes),
    )


def fits_table(result: Growth) -> Table:
    return text.grid(
        "Growth: exponent of backward time in the number of steps, least squares in log-log",
        ("loop", "variant", "exponent", "fitted over"),
        (
            (fit.loop, fit.variant, f"{fit.exponent:.2f}", f"{fit.first} to {fit.last}")
            for fit in result.fits
        ),
    )
