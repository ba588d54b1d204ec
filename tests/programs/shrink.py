"""Makes a failing program as small as it gets while it still fails in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace

from .statements import (
    Alias,
    Backward,
    Block,
    Call,
    Leaf,
    Let,
    Loop,
    Module,
    Program,
    Statement,
    Step,
    Write,
    binds,
    reads,
    rename,
)

Fails = Callable[[Program], bool]


def shrink(program: Program, fails: Fails, attempts: int = 3000) -> Program:
    """The smallest program found; ``fails`` must hold for ``program`` and decides for every
    candidate.
    """
    for size in (8, 4, 2, 1):
        program, attempts = _drop(program, fails, size, attempts)
    progress = True
    while progress and attempts > 0:
        progress = False
        for candidate in _smaller(program):
            attempts -= 1
            if attempts <= 0:
                break
            if fails(candidate):
                program, progress = candidate, True
                break
    return program


def _drop(program: Program, fails: Fails, size: int, attempts: int) -> tuple[Program, int]:
    """Takes out runs of ``size`` statements, from the end, with all that depends on them."""
    start = len(program)
    while start > 0 and attempts > 0:
        start = max(0, start - size)
        candidate = without(program, range(start, start + size))
        attempts -= 1
        if len(candidate) < len(program) and fails(candidate):
            program = candidate
    return program, attempts


def without(program: Program, positions: range) -> Program:
    """The program less these statements and those that read what only they bound."""
    kept: list[Statement] = []
    bound: set[str] = set()
    missing: set[str] = set()
    for position, statement in enumerate(program):
        lost = (
            position in positions
            or bool(reads(statement) & missing)
            or _deletes_missing(statement, missing)
        )
        if lost:
            missing |= binds(statement) - bound
        else:
            kept.append(statement)
            bound |= binds(statement)
            missing -= binds(statement)
    return tuple(kept)


def _deletes_missing(statement: Statement, missing: set[str]) -> bool:
    return getattr(statement, "name", None) in missing


def _smaller(program: Program) -> Iterator[Program]:
    for i in reversed(range(len(program))):
        yield without(program, range(i, i + 1))
    for i, statement in enumerate(program):
        if isinstance(statement, Alias | Let) and statement.out != statement.source:
            rest = (rename(later, statement.out, statement.source) for later in program[i + 1 :])
            yield (*program[:i], *rest)
    for i, statement in enumerate(program):
        for pieces in _simpler(statement):
            yield (*program[:i], *pieces, *program[i + 1 :])


def _simpler(statement: Statement) -> Iterator[tuple[Statement, ...]]:
    """Simpler statements to put in the place of one."""
    if isinstance(statement, Block | Loop):
        yield statement.body
    if isinstance(statement, Block | Loop | Call):
        for body in _smaller(statement.body):
            if body or not isinstance(statement, Block):
                yield (replace(statement, body=body),)
    if isinstance(statement, Loop) and statement.steps > 1:
        yield (replace(statement, steps=statement.steps - 1),)
    if isinstance(statement, Call) and statement.transform != "plain" and len(statement.outs) == 1:
        yield (replace(statement, transform="plain"),)
    if isinstance(statement, Let) and len(statement.chain) == 1:
        yield (Alias(statement.out, statement.source),)
    if isinstance(statement, Write) or (isinstance(statement, Let) and len(statement.chain) > 1):
        yield from ((replace(statement, chain=chain),) for chain in _shorter(statement.chain))
    if isinstance(statement, Let):
        yield from (
            (replace(statement, chain=(step,)),)
            for step in statement.chain
            if len(statement.chain) > 1
        )
        if statement.chain and statement.chain[0][0] not in _PLAIN_STEPS:
            yield from (
                (replace(statement, chain=(plain, *statement.chain[1:])),)
                for plain in (("mul_number", 2),)
            )
    if isinstance(statement, Write) and statement.step[0] not in ("mul_number_", "add_number_"):
        yield from (
            (replace(statement, step=step),) for step in (("mul_number_", 2), ("add_number_", 1))
        )
    if isinstance(statement, Backward):
        for terms in _shorter(statement.terms):
            if terms:
                yield (replace(statement, terms=terms),)
        for i in range(len(statement.inputs) if len(statement.inputs) > 1 else 0):
            pairs = {
                name: tuple(x for j, x in enumerate(getattr(statement, name)) if j != i)
                for name in ("inputs", "outs")
            }
            yield (replace(statement, **pairs),)
        for i, term in enumerate(statement.terms):
            if term[0] in ("square", "cos", "mul"):
                terms = (*statement.terms[:i], ("sum", term[1]), *statement.terms[i + 1 :])
                yield (replace(statement, terms=terms),)
    if isinstance(statement, Leaf):
        if statement.dtype != "float32":
            yield (replace(statement, dtype="float32"),)
        if len(statement.shape) > 1:
            yield (replace(statement, shape=statement.shape[1:]),)
        for i, size in enumerate(statement.shape):
            if size > 2:
                yield (
                    replace(statement, shape=(*statement.shape[:i], 2, *statement.shape[i + 1 :])),
                )
    if isinstance(statement, Module) and statement.way != "linear":
        yield (replace(statement, way="linear"),)
    for field in fields(statement):
        if getattr(statement, field.name) is True:
            yield (replace(statement, **{field.name: False}),)


_PLAIN_STEPS = {"mul_number", "add_number", "view", "index", "select", "call", "make_dual"}


def _shorter(steps: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    for i in range(len(steps)):
        yield (*steps[:i], *steps[i + 1 :])
