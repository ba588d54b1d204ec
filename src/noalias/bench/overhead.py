"""What noalias adds to single calls and to small steps: the budget that `make bench-check` guards.

`python -m noalias.bench.overhead` prints the rows as JSON. `benchmarks/check.py` runs it, in turn,
on the sources of two commits.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

import noalias
from noalias.bench import small_steps, text
from noalias.bench.measure import Step, Timing, Variant, interleave

if TYPE_CHECKING:
    from rich.table import Table

    from noalias.bench.progress import Progress

Context = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True)
class OverheadRow:
    """One kind of call under one mode; seconds for one call.

    Attributes:
        call: a key of `CALLS`.
        mode: a key of `MODES`; "stock" is PyTorch alone.
        added: difference of the minima to the same call under "stock".
    """

    call: str
    mode: str
    time: Timing
    added: float


def _in_place(_: str, calls: int) -> Step:
    x = torch.zeros(16)

    def step() -> None:
        for _ in repeat(None, calls):
            x.add_(1)

    return step


def _recorded(_: str, calls: int) -> Step:
    x = torch.zeros(16, requires_grad=True) * 1.0

    def step() -> None:
        for _ in repeat(None, calls):
            x.add_(1)

    return step


def _select(_: str, calls: int) -> Step:
    x = torch.zeros(8, 16, requires_grad=True)

    def step() -> None:
        # A few reads from each version: long families have their own table, `noalias bench growth`.
        for _ in repeat(None, calls):
            x[3]

    return step


def _slice_update(_: str, calls: int) -> Step:
    bases = [torch.zeros(8, 16) for _ in range(calls)]
    value = torch.zeros(16, requires_grad=True) * 1.0

    def step() -> None:
        for base in bases:
            base[3] = value

    return step


def _slice_update_backward(_: str, calls: int) -> Step:
    value = torch.zeros(16, requires_grad=True)

    def step() -> None:
        for _ in repeat(None, calls):
            base = torch.zeros(8, 16)
            base[3] = value
            # A gradient that nobody else holds, as in a training step.
            base.square().sum().backward()

    return step


def _linear(mode: str, calls: int) -> Step:
    linear = F.linear if mode == "stock" else noalias.linear
    x, weight, bias = _linear_inputs()

    def step() -> None:
        for _ in repeat(None, calls):
            linear(x, weight, bias)

    return step


def _linear_backward(mode: str, calls: int) -> Step:
    linear = F.linear if mode == "stock" else noalias.linear
    x, weight, bias = _linear_inputs()
    gradient = torch.ones(2, 4, 16)

    def step() -> None:
        for _ in repeat(None, calls):
            linear(x, weight, bias).backward(gradient)

    return step


def _linear_inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    shapes: tuple[tuple[int, ...], ...] = ((2, 4, 16), (16, 16), (16,))
    x, weight, bias = (torch.ones(shape, requires_grad=True) for shape in shapes)
    return x, weight, bias


def _convolution_step(_: str, calls: int) -> Step:
    return small_steps.convolutions()


def _transformer_step(_: str, calls: int) -> Step:
    return small_steps.transformer()


CALLS: dict[str, Callable[[str, int], Step]] = {
    "in-place call": _in_place,
    "in-place call, recorded": _recorded,
    "select, recorded": _select,
    "slice update": _slice_update,
    "slice update + backward": _slice_update_backward,
    "linear": _linear,
    "linear + backward": _linear_backward,
    "convolution step": _convolution_step,
    "transformer step": _transformer_step,
}

# Name -> the public name it needs (None: PyTorch alone). Looked up when measured, so that sources
# of a time before a feature existed are measured without it.
MODES: dict[str, str | None] = {"stock": None, "cures on": "enabled", "audit on": "audit"}


def is_step(call: str) -> bool:
    """Whether a key of `CALLS` is a whole training step."""
    return call.endswith(" step")


def _context(public_name: str | None) -> Context | None:
    if public_name is None:
        return nullcontext
    try:
        context: Context = getattr(noalias, public_name)
    except (AttributeError, ImportError):
        return None
    return context


def run(
    *,
    rounds: int = 100,
    calls: int = 100,
    budget: float | None = 6.0,
    progress: Progress | None = None,
) -> tuple[OverheadRow, ...]:
    """Every call under every mode, on the CPU.

    Raises:
        noalias.NativeUnavailable: where the core cannot be built.
    """
    contexts = {mode: _context(name) for mode, name in MODES.items()}
    rows: list[OverheadRow] = []
    for call, make in CALLS.items():
        # A block with backward is as long as the others with a tenth of the calls.
        repeats = max(1, calls // 10) if "backward" in call else calls
        if is_step(call):
            repeats = 1
        variants = [
            Variant(mode, partial(make, mode, repeats), context)
            for mode, context in contexts.items()
            if context is not None
        ]
        timings = interleave(
            variants,
            rounds=rounds,
            budget=budget,
            label=f"overhead: {call}",
            progress=progress,
        )
        stock = timings["stock"].per_call(repeats)
        for mode, timing in timings.items():
            time = timing.per_call(repeats)
            rows.append(OverheadRow(call, mode, time, time.minimum - stock.minimum))
    return tuple(rows)


def table(rows: Sequence[OverheadRow]) -> Table:
    """One line for each call: stock, and what each mode adds to it."""
    lines: dict[str, list[str]] = {}
    for row in rows:
        line = lines.setdefault(row.call, [row.call])
        own = text.seconds(row.time.minimum)
        more = f"{row.added * 1e6:+.2f} µs"
        if is_step(row.call):
            more = f"{row.time.minimum / (row.time.minimum - row.added):.2f} x"
        line.append(own if row.mode == "stock" else f"{own} ({more})")
    modes = dict.fromkeys(row.mode for row in rows)
    title = "Overhead: one call, min (added to stock; of a step, times stock)"
    return text.grid(title, ("", *modes), lines.values())


def main() -> int:
    json.dump([text.to_json(row) for row in run()], sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
