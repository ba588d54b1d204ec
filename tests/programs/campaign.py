"""Many programs: generate, run on stock, run cured, judge, shrink, count.

Work is done in forked processes, a chunk at a time, so that a crash costs one program and is
reported like any other mismatch. Stock runs come before the cures are switched on and judging after
they are off, chunk by chunk: that `disable()` gives stock PyTorch back is tested along the way.
"""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from .aliases import replaceable
from .cures import counters, cure
from .execute import execute, is_valid
from .generate import generate
from .oracle import Verdict, judge
from .record import Entries, Failure
from .reproduction import write
from .shrink import shrink
from .source import Reference
from .statements import Block, Leaf, Let, Program, Unpack, Write, walk
from .together import execute_together

CHUNK = 500
_PATIENCE = 120.0


@dataclass(frozen=True)
class Mismatch:
    """A shrunk program on which cured and stock runs differ."""

    seed: int
    index: int
    program: Program
    verdict: Verdict


@dataclass
class Statistics:
    """What was run; every field adds up over chunks."""

    programs: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    statements: Counter[str] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    raising: int = 0
    unaliased: Counter[str] = field(default_factory=Counter)
    cured: Counter[str] = field(default_factory=Counter)
    counters: Counter[str] = field(default_factory=Counter)
    differences: Counter[str] = field(default_factory=Counter)
    dtypes: Counter[str] = field(default_factory=Counter)

    def add(self, other: Statistics) -> None:
        for name, value in vars(other).items():
            if isinstance(value, Counter):
                getattr(self, name).update(value)
            else:
                setattr(self, name, getattr(self, name) + value)

    def count(self, program: Program, stock: Entries) -> None:
        self.programs += 1
        leaves = [item for item in walk(program) if isinstance(item, Leaf)]
        self.dtypes.update({leaf.dtype for leaf in leaves if leaf.requires_grad})
        for statement in walk(program):
            name = type(statement).__name__
            self.statements[
                f"{name} {statement.context}" if isinstance(statement, Block) else name
            ] += 1
            chain = getattr(statement, "chain", ())
            if isinstance(statement, Let | Unpack | Write):
                steps = (*chain, statement.step) if isinstance(statement, Write) else chain
                self.steps.update(str(step[0]) for step in steps)
            transform = getattr(statement, "transform", None)
            if transform is not None:
                self.statements[f"Call {transform}"] += 1
        failures = [entry for _, entry in stock if isinstance(entry, Failure)]
        self.raising += bool(failures)
        self.errors.update(f"{entry.kind}: {_kind_of_message(entry.message)}" for entry in failures)


def _kind_of_message(message: str) -> str:
    for known in (
        "is a view and is being modified inplace",
        "is a view and its base or another view of its base has been modified inplace",
        "A view was created in no_grad mode",
        "A view was created in inference mode",
        "modified by an inplace operation",
        "backward through the graph a second time",
        "leaf Variable that requires grad",
        "more than one element of the written-to tensor",
    ):
        if known in message:
            return known
    return message[:50]


@dataclass
class Campaign:
    """A run of ``count`` programs of ``seed``, or as many as fit into ``seconds``."""

    seed: int
    count: int
    cures: str
    out: Path | None = None
    first: int = 0
    seconds: float | None = None
    reports: int = 40
    progress: Callable[[Statistics, int], None] = lambda statistics, index: None
    threads: int = 1
    """How many programs run at once while the cures are on."""
    attempts: int = 1500
    """How many smaller programs are tried in the place of one that differs."""

    def run(self) -> tuple[Statistics, list[Mismatch]]:
        # Before forking, or every process would do it anew: load the core, and what checkpointing
        # and forward mode import.
        with cure(self.cures)():
            pass
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module("torch._dynamo")
            importlib.import_module("torch._decomp.decompositions_for_jvp")
        statistics, mismatches = Statistics(), list[Mismatch]()
        start, index, end = time.monotonic(), self.first, self.first + self.count
        while index < end and (self.seconds is None or time.monotonic() - start < self.seconds):
            stop = min(end, index + CHUNK)
            index = self._chunk(index, stop, statistics, mismatches, self.threads)
            self.progress(statistics, index)
        return statistics, mismatches

    def _chunk(
        self,
        first: int,
        stop: int,
        statistics: Statistics,
        mismatches: list[Mismatch],
        threads: int = 1,
    ) -> int:
        """Runs programs ``first`` to ``stop`` in one process; gives the index to go on with."""
        room = self.reports - len(mismatches)
        phase, index = "start", first
        for message in _in_process(
            _work,
            self.seed,
            first,
            stop,
            self.cures,
            room,
            Counter(mismatch.verdict.what for mismatch in mismatches),
            threads,
            self.attempts,
        ):
            if isinstance(message, tuple):
                phase, index = message
            elif isinstance(message, Statistics):
                statistics.add(message)
                phase = "done"
            elif isinstance(message, Mismatch):
                mismatches.append(message)
                self._write(message)
            elif isinstance(message, str):
                raise RuntimeError(
                    f"the machine itself failed at program {index} ({phase}):\n{message}"
                )
        if phase == "done":
            return stop
        if phase == "together":
            statistics.verdicts["crash with other programs"] += 1
            print(f"\ncrash in programs {first} to {stop}, run together", file=sys.stderr)
            return self._chunk(first, stop, statistics, mismatches)
        if phase == "cured":
            self._crash(index, statistics, mismatches)
        else:
            # Stock PyTorch itself: in a reference run, or while a program was being written.
            statistics.verdicts[f"stock crashes in {phase}"] += 1
            print(f"\nstock crashes at program {index}, in {phase}", file=sys.stderr)
        # The chunk's own statistics died with it; run what came before the crash once more, then go
        # on after it.
        if index > first:
            self._chunk(first, index, statistics, mismatches)
        return index + 1

    def _crash(self, index: int, statistics: Statistics, mismatches: list[Mismatch]) -> None:
        program = generate(self.seed, index)
        if _ends_in(_try_reference, program) == "reference":
            statistics.verdicts["stock crashes in reference"] += 1
            return
        statistics.verdicts["crash"] += 1
        if len(mismatches) >= self.reports or statistics.verdicts["crash"] > 8:
            return
        small = shrink(program, lambda candidate: _crashes(candidate, self.cures), attempts=300)
        mismatch = Mismatch(self.seed, index, small, Verdict("crash"))
        mismatches.append(mismatch)
        self._write(mismatch)

    def _write(self, mismatch: Mismatch) -> None:
        if self.out is not None:
            write(
                self.out,
                mismatch.program,
                mismatch.verdict,
                self.cures,
                f"seed {mismatch.seed}, program {mismatch.index}",
            )


def compare(program: Program, cures: str) -> Verdict:
    """Runs one program on stock and cured, in this process."""
    stock = execute(program)
    with cure(cures)():
        cured = execute(program)
    return judge(program, stock, cured)


def fails_like(verdict: Verdict, cures: str) -> Callable[[Program], bool]:
    """True for valid programs that differ in the same kind of observation."""

    def fails(program: Program) -> bool:
        try:
            stock = execute(program)
        except SyntaxError:
            return False
        if not is_valid(stock):
            return False
        found = compare(program, cures)
        return found.kind == verdict.kind and found.what == verdict.what

    return fails


def _work(
    send: Connection,
    seed: int,
    first: int,
    stop: int,
    cures: str,
    room: int,
    known: Counter[str],
    threads: int,
    attempts: int,
) -> None:
    gc.disable()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    statistics = Statistics()
    programs, stock, cured = list[Program](), list[Entries](), list[Entries]()
    for index in range(first, stop):
        send.send(("draft", index))
        programs.append(generate(seed, index))
        send.send(("stock", index))
        stock.append(execute(programs[-1]))
    with cure(cures)():
        before = counters()
        if threads > 1:

            def begin(i: int) -> None:
                send.send(("together", first) if i < 0 else ("cured", first + i))

            cured = execute_together(programs, threads, begin)
            _count_counters(statistics, before)
        for index, program in enumerate(programs if threads == 1 else (), first):
            send.send(("cured", index))
            cured.append(execute(program))
            before = _count_counters(statistics, before)
    for index, program in enumerate(programs, first):
        send.send(("judge", index))
        statistics.count(program, stock[index - first])
        verdict = judge(program, stock[index - first], cured[index - first])
        statistics.verdicts[verdict.kind] += 1
        if verdict.reasons:
            statistics.unaliased[" ".join(verdict.reasons)] += 1
        if verdict.kind in ("mismatch", "signed_zero"):
            alone = threads == 1 or compare(program, cures).kind == verdict.kind
            if not alone:
                first_difference = verdict.differences[0]
                what = f"with other programs: {first_difference.what}"
                changed = (replace(first_difference, what=what), *verdict.differences[1:])
                verdict = replace(verdict, differences=changed)
            statistics.differences[verdict.what] += 1
            if verdict.kind == "mismatch":
                known[verdict.what] += 1
                print(f"\nmismatch at program {index}: {verdict.what}", file=sys.stderr)
            if room > 0 and known[verdict.what] <= 12 and verdict.kind == "mismatch":
                room -= 1
                fails = fails_like(verdict, cures)

                def heard(
                    candidate: Program,
                    index: int = index,
                    fails: Callable[[Program], bool] = fails,
                ) -> bool:
                    send.send(("shrink", index))
                    return fails(candidate)

                small = shrink(program, heard, attempts=attempts) if alone else program
                final = compare(small, cures)
                send.send(
                    Mismatch(seed, index, small, final if final.kind == "mismatch" else verdict)
                )
    send.send(statistics)


def _count_counters(statistics: Statistics, before: dict[str, int]) -> dict[str, int]:
    """Adds how the core's counters have moved since ``before``; returns them as they are now."""
    after = counters()
    changed = {
        name: after[name] - before.get(name, 0)
        for name in after
        if after[name] != before.get(name, 0)
    }
    statistics.counters.update(changed)
    statistics.cured.update(dict.fromkeys(changed, 1))
    return after


def _crashes(program: Program, cures: str) -> bool:
    """True when stock runs the program and the cured run kills its process."""
    return _ends_in(_try, program, cures) == "cured"


def _ends_in(work: Callable[..., None], *arguments: object) -> str:
    """The last phase that ``work`` has begun, of its own process."""
    phase = ""
    for message in _in_process(work, *arguments):
        phase = message if isinstance(message, str) else phase
    return phase


def _try(send: Connection, program: Program, cures: str) -> None:
    if not is_valid(execute(program)):
        return
    with cure(cures)():
        send.send("cured")
        execute(program)
    send.send("done")


def _try_reference(send: Connection, program: Program) -> None:
    """Stock PyTorch, where all that may be replaced is an ordinary tensor."""
    places = replaceable(program, execute(program))
    send.send("reference")
    execute(program, Reference(frozenset(places)))
    send.send("done")


def _in_process(work: Callable[..., None], *arguments: object) -> Iterator[object]:
    """What ``work`` sends from a forked process, until it ends, dies, or is silent for too long."""
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_guarded, args=(work, send, *arguments))
    process.start()
    send.close()
    try:
        while receive.poll(_PATIENCE):
            yield receive.recv()
    except EOFError:
        pass
    finally:
        if process.is_alive():
            process.join(5)
            process.kill()
        process.join()


def _guarded(work: Callable[..., None], send: Connection, *arguments: object) -> None:
    import traceback

    try:
        work(send, *arguments)
    except BaseException:
        send.send(traceback.format_exc())
        raise
