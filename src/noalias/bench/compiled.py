"""Under `torch.compile`: the seconds it takes, and those of a compiled step, ours over stock.

A compiler is shown `F.linear` either way, so both ratios are about what tracing through
`noalias.linear` costs: nothing, within the noise of the compiler.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import nn

import noalias
from noalias.bench import text
from noalias.bench.measure import Ratio, Step, Timing, Variant, interleave, ratio

if TYPE_CHECKING:
    from rich.table import Table

    from noalias.bench.progress import Progress

FEATURES = 256
SHAPES: tuple[tuple[int, ...], ...] = ((64, FEATURES), (8, 64, FEATURES))


@dataclass(frozen=True)
class CompiledRow:
    """Two linears with a GELU between them, forward and backward.

    Attributes:
        shape: of the input.
        stock_compile, our_compile: seconds of the first step, cold, without the compiler's caches.
        compile_to_stock: ours over stock.
        stock, ours: seconds of a compiled step.
        to_stock: ours over stock.
    """

    shape: tuple[int, ...]
    stock_compile: Timing
    our_compile: Timing
    compile_to_stock: Ratio
    stock: Timing
    ours: Timing
    to_stock: Ratio


def run(
    *,
    device: str = "cpu",
    compiles: int = 3,
    rounds: int = 100,
    budget: float | None = 6.0,
    progress: Progress | None = None,
) -> tuple[CompiledRow, ...]:
    """Every shape.

    Args:
        device: as `torch.device` takes it.
        compiles: cold compilations of each, in turn; the last of them is timed at run time.
        rounds: how often a compiled step of each is timed, in turn.
        budget: seconds for each shape after which no further round starts.
    """
    return tuple(
        _row(shape, torch.device(device), compiles, rounds, budget, progress) for shape in SHAPES
    )


def _row(
    shape: tuple[int, ...],
    device: torch.device,
    compiles: int,
    rounds: int,
    budget: float | None,
    progress: Progress | None,
) -> CompiledRow:
    x = torch.randn(shape, device=device, requires_grad=True)
    kinds: dict[str, type[nn.Linear]] = {"stock": nn.Linear, "ours": noalias.Linear}
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    steps: dict[str, Step] = {}
    with torch._inductor.config.patch(force_disable_caches=True):
        # The first compilation of a process also loads the compiler.
        for name, kind in [("warm-up", nn.Linear), *(list(kinds.items()) * compiles)]:
            torch.compiler.reset()
            step = _compiled(kind, x)
            start = time.perf_counter()
            step()
            seconds.setdefault(name, []).append(time.perf_counter() - start)
        torch.compiler.reset()
        for name, kind in kinds.items():
            steps[name] = _compiled(kind, x)
            steps[name]()
    timings = interleave(
        [Variant(name, partial(_constant, step)) for name, step in steps.items()],
        rounds=rounds,
        device=device,
        budget=budget,
        label=f"compiled: {shape}",
        progress=progress,
    )
    stock, ours = (Timing(tuple(seconds[name])) for name in kinds)
    return CompiledRow(
        shape=shape,
        stock_compile=stock,
        our_compile=ours,
        compile_to_stock=ratio(ours, stock),
        stock=timings["stock"],
        ours=timings["ours"],
        to_stock=ratio(timings["ours"], timings["stock"]),
    )


def _compiled(kind: type[nn.Linear], x: torch.Tensor) -> Step:
    first, second = (kind(FEATURES, FEATURES, device=x.device) for _ in range(2))
    forward: Callable[[torch.Tensor], torch.Tensor] = torch.compile(
        lambda x: second(F.gelu(first(x))).square().mean(), fullgraph=True
    )
    return lambda: forward(x).backward()


def _constant(step: Step) -> Step:
    return step


def table(rows: tuple[CompiledRow, ...]) -> Table:
    """One line for each input: the compiler's time and a compiled step's, ours over stock."""
    lines = [
        [
            " × ".join(map(str, row.shape)),
            text.seconds(row.stock_compile.minimum),
            f"{row.compile_to_stock.of_minima:.2f} ({row.compile_to_stock.median:.2f})",
            text.seconds(row.stock.minimum),
            f"{row.to_stock.of_minima:.2f} ({row.to_stock.median:.2f})",
        ]
        for row in rows
    ]
    columns = ("", "stock\ncompiles in", "ours\nover stock", "stock\nruns in", "ours\nover stock")
    title = "torch.compile: noalias.Linear over nn.Linear, of the minima (median over rounds)"
    return text.grid(title, columns, lines, "Two linears and a GELU, forward and backward.")
