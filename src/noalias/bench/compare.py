"""One program, stock against `noalias.enable()`, interleaved in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

import noalias
from noalias import graph
from noalias.bench import text
from noalias.bench.bits import distance
from noalias.bench.counts import Counts, count
from noalias.bench.measure import Ratio, Step, Timing, Variant, interleave, ratio

if TYPE_CHECKING:
    from rich.table import Table

    from noalias.bench.progress import Progress


@dataclass(frozen=True)
class Built:
    """A program ready to run.

    Attributes:
        forward: computes a scalar loss, afresh at each call.
        leaves: whose gradients are compared.
    """

    forward: Callable[[], torch.Tensor]
    leaves: Sequence[torch.Tensor]


@dataclass(frozen=True)
class Program:
    """Something people run.

    Attributes:
        name: how the tables call it.
        build: makes it on a device, from fixed seeds.
        requires: packages it needs beyond PyTorch, as (module to import, name to install).
    """

    name: str
    build: Callable[[torch.device], Built]
    requires: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Side:
    """A program's training step (forward and backward) with the cures off, or on."""

    copy_slices: int
    counts: Counts
    time: Timing


@dataclass(frozen=True)
class Comparison:
    """Attributes:
    time: enabled over stock.
    gradients: "identical" in every bit; "stock varies" where two runs of stock already differ,
        so that nothing can be said; or the largest difference.
    """

    program: str
    stock: Side
    enabled: Side
    time: Ratio
    gradients: str


@dataclass(frozen=True)
class Skipped:
    """A program that could not run here."""

    program: str
    reason: str


def compare(
    program: Program,
    device: torch.device,
    *,
    rounds: int,
    budget: float | None,
    warmup: int = 1,
    progress: Progress | None = None,
) -> Comparison:
    """Measure `program` with the cures off and on.

    Raises:
        noalias.NativeUnavailable: where the core cannot be built.
    """
    built = program.build(device)
    stock = Variant("stock", lambda: _fresh_step(built))
    enabled = Variant("enabled", stock.prepare, noalias.enabled)
    timings = interleave(
        [stock, enabled],
        rounds=rounds,
        warmup=warmup,
        device=device,
        budget=budget,
        label=program.name,
        progress=progress,
    )
    first, again = _gradients(built, nullcontext()), _gradients(built, nullcontext())
    cured = _gradients(built, noalias.enabled())
    return Comparison(
        program=program.name,
        stock=_side(built, stock, timings["stock"], device),
        enabled=_side(built, enabled, timings["enabled"], device),
        time=ratio(timings["enabled"], timings["stock"]),
        gradients=_verdict(first, again, cured),
    )


def _fresh_step(built: Built) -> Step:
    for leaf in built.leaves:
        leaf.grad = None
    # Dropout draws the same mask on both sides.
    torch.manual_seed(0)
    return lambda: built.forward().backward()


def _side(built: Built, variant: Variant, timing: Timing, device: torch.device) -> Side:
    with variant.context():
        variant.prepare()
        names = graph.names(built.forward())
    copy_slices = names[graph.COPY_SLICES]
    counts = count(variant.prepare, device=device, context=variant.context)
    return Side(copy_slices, counts, timing)


def _gradients(built: Built, context: AbstractContextManager[object]) -> list[torch.Tensor | None]:
    with context:
        _fresh_step(built)()
    return [leaf.grad for leaf in built.leaves]


def _verdict(
    first: Sequence[torch.Tensor | None],
    again: Sequence[torch.Tensor | None],
    cured: Sequence[torch.Tensor | None],
) -> str:
    if distance(first, cured) == 0:
        return "identical"
    if distance(first, again) != 0:
        return "stock varies"
    return f"differ by {distance(first, cured):.1e}"


COLUMNS = (
    *("Copy-\nSlices", "copies", "allocated\nMiB", "peak\nMiB"),
    *("step, min\nms", "of minima", "median", "gradients"),
)


def table(title: str, rows: Sequence[Comparison | Skipped]) -> Table:
    """Stock → enabled in each cell, and enabled over stock; reasons of skipped programs below."""
    measured = [row for row in rows if isinstance(row, Comparison)]
    skipped = [f"{row.program}: skipped, {row.reason}" for row in rows if isinstance(row, Skipped)]
    return text.grid(title, ("", *COLUMNS), map(_cells, measured), "\n".join(skipped))


def _cells(row: Comparison) -> tuple[str, ...]:
    off, on = row.stock, row.enabled
    mebi = 2**20
    return (
        row.program,
        text.change(off.copy_slices, on.copy_slices),
        text.change(off.counts.copies, on.counts.copies),
        text.change(off.counts.allocated_bytes / mebi, on.counts.allocated_bytes / mebi),
        text.change(off.counts.peak_bytes / mebi, on.counts.peak_bytes / mebi),
        text.change(off.time.minimum * 1e3, on.time.minimum * 1e3),
        f"{row.time.of_minima:.2f}",
        f"{row.time.median:.2f}",
        row.gradients,
    )
