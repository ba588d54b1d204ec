"""Tiny inputs, where only the call itself costs: `F.linear` against `noalias.linear`.

`linear` is PyTorch's hottest call. Each cell is a ratio, ours over stock; above 1 is a defect.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

import noalias
from noalias.bench import text
from noalias.bench.measure import Ratio, Step, Timing, Variant, interleave, ratio

if TYPE_CHECKING:
    from rich.table import Table

    from noalias.bench.progress import Progress

Linear = Callable[[torch.Tensor, torch.Tensor, "torch.Tensor | None"], torch.Tensor]
Arguments = tuple[torch.Tensor, torch.Tensor, "torch.Tensor | None"]
Loop = Callable[[Linear, Arguments, torch.Tensor, int], None]

FEATURES = 16
SHAPES: tuple[tuple[int, ...], ...] = ((FEATURES,), (8, FEATURES), (2, 4, FEATURES))


@dataclass(frozen=True)
class HotPathRow:
    """One kind of call.

    Attributes:
        shape: of the input.
        bias: whether there is one.
        phase: what was timed, a key of `PHASES`.
        stock, ours: seconds for one call.
        to_stock: ours over stock.
    """

    shape: tuple[int, ...]
    bias: bool
    phase: str
    stock: Timing
    ours: Timing
    to_stock: Ratio


def _inference(linear: Linear, arguments: Arguments, unused: torch.Tensor, calls: int) -> None:
    x, weight, bias = arguments
    with torch.no_grad():
        for _ in repeat(None, calls):
            linear(x, weight, bias)


def _forward(linear: Linear, arguments: Arguments, unused: torch.Tensor, calls: int) -> None:
    x, weight, bias = arguments
    for _ in repeat(None, calls):
        linear(x, weight, bias)


def _backward(linear: Linear, arguments: Arguments, gradient: torch.Tensor, calls: int) -> None:
    x, weight, bias = arguments
    for _ in repeat(None, calls):
        linear(x, weight, bias).backward(gradient)


def _activated(linear: Linear, arguments: Arguments, gradient: torch.Tensor, calls: int) -> None:
    x, weight, bias = arguments
    for _ in repeat(None, calls):
        linear(x, weight, bias).relu_().backward(gradient)


PHASES: dict[str, Loop] = {
    "no_grad forward": _inference,
    "forward": _forward,
    "forward + backward": _backward,
    "forward + relu_ + backward": _activated,
}


def run(
    *,
    device: str = "cpu",
    rounds: int = 400,
    calls: int = 50,
    budget: float | None = 6.0,
    progress: Progress | None = None,
) -> tuple[HotPathRow, ...]:
    """Every shape and phase, with and without bias.

    Args:
        device: as `torch.device` takes it.
        rounds: how often the two are timed in turn, for each row.
        calls: in one timed block, a tenth of it where the block has a backward. Short blocks keep
            the two close together in time, and some of them escape other processes altogether.
        budget: seconds for each row after which no further round starts.
    """
    rows = []
    for shape in SHAPES:
        for with_bias in (True, False):
            arguments, gradient = _inputs(shape, with_bias, torch.device(device))
            for phase, loop in PHASES.items():
                repeats = max(1, calls // 10) if "backward" in phase else calls
                bind = partial(_block, loop, arguments, gradient, repeats)
                timings = interleave(
                    [
                        Variant("stock", partial(bind, F.linear)),
                        Variant("ours", partial(bind, noalias.linear)),
                    ],
                    rounds=rounds,
                    device=torch.device(device),
                    budget=budget,
                    label=f"hot path: {phase} {shape}",
                    progress=progress,
                )
                stock, ours = timings["stock"], timings["ours"]
                rows.append(
                    HotPathRow(
                        shape=shape,
                        bias=with_bias,
                        phase=phase,
                        stock=stock.per_call(repeats),
                        ours=ours.per_call(repeats),
                        to_stock=ratio(ours, stock),
                    )
                )
    return tuple(rows)


def _inputs(
    shape: tuple[int, ...], with_bias: bool, device: torch.device
) -> tuple[Arguments, torch.Tensor]:
    make = torch.Generator().manual_seed(0)

    def normal(*extents: int) -> torch.Tensor:
        return torch.randn(extents, generator=make).to(device).requires_grad_()

    bias = normal(FEATURES) if with_bias else None
    arguments = (normal(*shape), normal(FEATURES, shape[-1]), bias)
    return arguments, torch.ones(*shape[:-1], FEATURES, device=device)


def _block(
    loop: Loop, arguments: Arguments, gradient: torch.Tensor, calls: int, linear: Linear
) -> Step:
    return lambda: loop(linear, arguments, gradient, calls)


def table(rows: tuple[HotPathRow, ...]) -> Table:
    """One line for each input, one column of ratios for each phase."""
    lines: dict[tuple[tuple[int, ...], bool], list[str]] = {}
    for row in rows:
        shape = " × ".join(map(str, row.shape))
        name = f"{shape}, {'bias' if row.bias else 'no bias'}"
        line = lines.setdefault((row.shape, row.bias), [name])
        line.append(f"{row.to_stock.of_minima:.2f} ({row.to_stock.median:.2f})")
    columns = ("", *(phase.replace(" + ", "\n+ ").replace("d f", "d\nf") for phase in PHASES))
    title = (
        "Hot path: time of noalias.linear over that of F.linear, below 1 is faster\n"
        "ratio of the minima (median of the ratios of each round)"
    )
    calls = sorted(row.stock.minimum for row in rows)
    caption = f"One call of F.linear takes {text.seconds(calls[0])} to {text.seconds(calls[-1])}."
    return text.grid(title, columns, lines.values(), caption)
