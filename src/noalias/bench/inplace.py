"""What the cures cost an in-place call that needs none, and what they save one that does."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING

import torch

import noalias
from noalias.bench import hidden, text
from noalias.bench.compare import Comparison, compare
from noalias.bench.measure import Step, Timing, Variant, interleave

if TYPE_CHECKING:
    from rich.table import Table

    from noalias.bench.progress import Progress


@dataclass(frozen=True)
class AddedRow:
    """One kind of call with nothing to cure.

    Attributes:
        call: what was timed.
        stock, enabled: seconds for one call.
        added: seconds that the cures add to one call: difference of the minima.
        added_median: the median over rounds of the difference within a round.
    """

    call: str
    stock: Timing
    enabled: Timing
    added: float
    added_median: float


@dataclass(frozen=True)
class InPlace:
    added: tuple[AddedRow, ...]
    cured: tuple[Comparison, ...]


def _plain(device: torch.device, calls: int) -> Step:
    x = torch.zeros(16, device=device)

    def step() -> None:
        for _ in repeat(None, calls):
            x.add_(1)

    return step


def _plain_view(device: torch.device, calls: int) -> Step:
    x = torch.zeros(4, 16, device=device)
    row = x[1]

    def step() -> None:
        for _ in repeat(None, calls):
            row.add_(1)

    return step


def _recorded(device: torch.device, calls: int) -> Step:
    x = torch.zeros(16, device=device, requires_grad=True) * 1.0

    def step() -> None:
        for _ in repeat(None, calls):
            x.add_(1)

    return step


def _visible_view(device: torch.device, calls: int) -> Step:
    # One base and one view for every call: the graph of repeated CopySlices would grow.
    bases = [torch.zeros(4, 16, device=device, requires_grad=True) * 1.0 for _ in range(calls)]
    views = [base.view(64) for base in bases]

    def step() -> None:
        for view in views:
            view.mul_(2)

    return step


CALLS: dict[str, Callable[[torch.device, int], Step]] = {
    "x.add_(1), no gradient": _plain,
    "x[1].add_(1), no gradient": _plain_view,
    "x.add_(1), recorded": _recorded,
    "x.view(64).mul_(2), x visible": _visible_view,
}


def run(
    *,
    device: str = "cpu",
    rounds: int = 150,
    calls: int = 100,
    program_rounds: int = 15,
    budget: float | None = 6.0,
    progress: Progress | None = None,
) -> InPlace:
    """Both tables.

    Args:
        rounds, calls: blocks timed for each kind of call, and calls in a block.
        program_rounds: for each program of `noalias.bench.hidden`.
        budget: seconds for each row after which no further round starts.

    Raises:
        noalias.NativeUnavailable: where the core cannot be built.
    """
    place = torch.device(device)
    added = tuple(
        _added(call, partial(make, place, calls), calls, rounds, budget, place, progress)
        for call, make in CALLS.items()
    )
    cured = tuple(
        compare(program, place, rounds=program_rounds, budget=budget, progress=progress)
        for program in hidden.PROGRAMS
    )
    return InPlace(added, cured)


def _added(
    call: str,
    prepare: Callable[[], Step],
    calls: int,
    rounds: int,
    budget: float | None,
    device: torch.device,
    progress: Progress | None,
) -> AddedRow:
    timings = interleave(
        [Variant("stock", prepare), Variant("enabled", prepare, noalias.enabled)],
        rounds=rounds,
        device=device,
        budget=budget,
        label=f"in place: {call}",
        progress=progress,
    )
    stock, enabled = timings["stock"].per_call(calls), timings["enabled"].per_call(calls)
    pairs = zip(enabled.seconds, stock.seconds, strict=True)
    return AddedRow(
        call=call,
        stock=stock,
        enabled=enabled,
        added=enabled.minimum - stock.minimum,
        added_median=statistics.median(on - off for on, off in pairs),
    )


def added_table(rows: tuple[AddedRow, ...]) -> Table:
    return text.grid(
        "In-place calls with nothing to cure: seconds for one call",
        ("", "stock, min", "enabled, min", "added", "added, median"),
        (
            (
                row.call,
                text.seconds(row.stock.minimum),
                text.seconds(row.enabled.minimum),
                f"{row.added * 1e6:+.3f} µs",
                f"{row.added_median * 1e6:+.3f} µs",
            )
            for row in rows
        ),
    )
