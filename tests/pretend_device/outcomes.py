"""What programs do on the device: run in one process that has it, and asked for by tests.

A test module keeps its cases in ``CASES``, by name; ``look_at(__name__)`` runs all of them once.
"""

from __future__ import annotations

import importlib
import json
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from noalias.bench.bits import same
from tests import pretend_device
from tests.ownership.like_stock import moved

Program = Callable[[str], Sequence[Tensor | None]]
Counts = dict[str, int]
Counted = Callable[[], Counts]
Look = Callable[[Callable[..., object] | str], Counts]


@dataclass(frozen=True)
class Case:
    """A program that stock and cures run on the device, and stock on the CPU.

    Attributes:
        cures: none named are all.
    """

    program: Program
    cures: tuple[str, ...]

    def counts(self) -> Counts:
        """How far the counters of core and device moved.

        Raises where gradients differ, or where the cures bring a race.
        """
        counts = self.counts_there()
        torch.manual_seed(0)
        there = self.program(pretend_device.NAME)
        torch.manual_seed(0)
        here = self.program("cpu")
        for number, (ours, cpus) in enumerate(zip(there, here, strict=True)):
            assert ours is not None
            assert cpus is not None
            assert same(ours.cpu(), cpus), f"tensor {number}:\ndevice {ours}\nCPU {cpus}"
        return counts

    def counts_there(self) -> Counts:
        """The same, without the CPU."""
        device = pretend_device.load()
        races: list[list[str]] = []

        def program() -> Sequence[Tensor | None]:
            device.forget_races()
            tensors = self.program(pretend_device.NAME)
            races.append(device.races())
            return tensors

        before = device.waits()
        counts = moved(program, *self.cures)
        stock, cured = races
        new = Counter(cured) - Counter(stock)
        assert not new, f"races:\n{_lines(new)}\nstock:\n{_lines(stock)}"
        return counts | {"waits": device.waits() - before, "stock_races": len(stock)}


def _lines(races: Iterable[str]) -> str:
    return "\n".join(races) or "none"


def report(module: str) -> None:
    """Run every case of a module, in the process that has the device; print what came of it."""
    cases = cast("dict[str, Counted]", importlib.import_module(module).CASES)
    outcomes: dict[str, Counts | str] = {}
    for name, counts in cases.items():
        try:
            outcomes[name] = counts()
        except Exception:
            outcomes[name] = traceback.format_exc()
    print(json.dumps(outcomes))


def look_at(module: str) -> Look:
    """Of a program, or of what has that name; fails with the error where there was one."""
    code = f"from tests.pretend_device import outcomes\noutcomes.report({module!r})"
    outcomes = cast("dict[str, Counts | str]", json.loads(pretend_device.run(code)))

    def of(program: Callable[..., object] | str) -> Counts:
        outcome = outcomes[program if isinstance(program, str) else program.__name__]
        assert isinstance(outcome, dict), outcome
        return outcome

    return of
