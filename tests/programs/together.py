"""Several programs at once, each in a thread of its own, in one process with one set of cures."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from .execute import execute
from .record import Entries
from .statements import Block, Call, Let, Module, Program, Unpack, Write, walk

# Seconds a thread runs before another may take over: many switches within a program.
_SWITCH_INTERVAL = 1e-5

# PyTorch keeps these contexts in variables of the process.
_OF_THE_PROCESS = ("dual", "anomaly", "allow_mutation")


def execute_together(
    programs: list[Program], threads: int, begin: Callable[[int], None]
) -> list[Entries]:
    """Runs all programs, ``threads`` at once where they may share a process, the others alone.

    ``begin`` is told which program is about to run, -1 for all that run together.
    """
    found: dict[int, Entries] = {}
    for index, program in enumerate(programs):
        if not may_run_together(program):
            begin(index)
            found[index] = execute(program)
    shared = [index for index in range(len(programs)) if index not in found]
    begin(-1)
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL)
    try:
        with ThreadPoolExecutor(threads) as pool:
            runs = pool.map(lambda i: execute(programs[i], random=OwnRandom()), shared)
            found.update(zip(shared, runs, strict=True))
    finally:
        sys.setswitchinterval(before)
    return [found[index] for index in range(len(programs))]


def may_run_together(program: Program) -> bool:
    """False for programs that use what a process has one of.

    That is the random numbers of modules and dropout, the level of forward mode, anomaly mode,
    and the mode that allows to write to saved tensors.
    """
    for statement in walk(program):
        if isinstance(statement, Module):
            return False
        if isinstance(statement, Block) and statement.context in _OF_THE_PROCESS:
            return False
        if isinstance(statement, Call) and statement.transform in ("jvp", "jacfwd"):
            return False
        if isinstance(statement, Let | Unpack | Write):
            last = (statement.step,) if isinstance(statement, Write) else ()
            if any("dropout" in str(step[0]) for step in (*statement.chain, *last)):
                return False
    return True


class OwnRandom:
    """``torch`` as a program names it, with a random generator of its own: the same numbers."""

    def __init__(self) -> None:
        self.default_generator = torch.Generator()

    def __getattr__(self, name: str) -> object:
        return getattr(torch, name)

    def randn(self, *arguments: object, **options: object) -> torch.Tensor:
        return torch.randn(*arguments, generator=self.default_generator, **options)  # type: ignore[call-overload,no-any-return]
