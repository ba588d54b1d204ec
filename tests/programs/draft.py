"""A program being written, each statement tried once on stock PyTorch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from random import Random

import torch
from torch import Tensor

from . import operators
from .aliases import is_curable
from .record import Record
from .source import Printer
from .statements import Block, Leaf, Statement, Step
from .support import GLOBALS

DTYPES = {"float32": 10, "float64": 4, "bfloat16": 2, "complex64": 3}


class Draft:
    """A program being written: its statements so far, and the stand-in values of its variables."""

    def __init__(self, rng: Random, parent: Draft | None = None, *, function: bool = False) -> None:
        self.rng = rng
        self.statements: list[Statement] = []
        self.parent = parent
        self.function = function
        self.values: dict[str, object] = {} if parent is None else parent.values
        self.locals: set[str] = set()
        self.dtype: str = "float32" if parent is None else parent.dtype
        if function:
            self.values = dict(self.values)

    # Variables

    def tensors(self, *, grad: bool = False, local: bool = False) -> list[str]:
        """Names of tensors, oldest first."""
        return [
            f"${name}"
            for name, value in self.values.items()
            if isinstance(value, Tensor)
            and _is_readable(value)
            and (value.requires_grad or not grad)
            and (name in self.locals or not local)
        ]

    def recent(self, names: list[str]) -> str | None:
        """One of the names, the last ones more often."""
        return (
            self.rng.choices(names, [1.5**i for i in range(-len(names), 0)])[0] if names else None
        )

    def value(self, name: str) -> Tensor:
        value = self.values[name.removeprefix("$")]
        assert isinstance(value, Tensor)
        return value

    def new_name(self, prefix: str = "") -> str:
        for letter in "abcdghklmnopqrsuvwyz" if not prefix else "":
            if letter not in self.values and self.rng.random() < 0.8:
                return f"${letter}"
        number = 0
        while f"{prefix or 'y'}{number}" in self.values:
            number += 1
        return f"${prefix or 'y'}{number}"

    def operand(self, shape: tuple[int, ...], dtype: torch.dtype) -> str:
        """A tensor of this shape and dtype, at hand or new."""
        found = [
            name
            for name in self.tensors()
            if (v := self.value(name)).shape == shape and v.dtype == dtype
        ]
        if found and self.rng.random() < 0.7:
            return self.rng.choice(found)
        return self.leaf(shape, str(dtype).removeprefix("torch."))

    def leaf(self, shape: tuple[int, ...], dtype: str) -> str:
        if self.function and self.parent is not None:
            name = self.parent.leaf(shape, dtype)
            self.values[name.removeprefix("$")] = self.parent.value(name)
            return name
        name = self.new_name("x")
        requires_grad = dtype in DTYPES and self.rng.random() < 0.7
        fill = "randn" if dtype in DTYPES and self.rng.random() < 0.9 else "zeros"
        self.add(Leaf(name, shape, dtype, requires_grad, fill))
        return name

    # Statements

    def add(self, statement: Statement) -> Exception | None:
        """Executes the statement on the stand-ins and keeps it, or returns its error."""
        error = self.attempt(statement)
        if error is None:
            self.statements.append(statement)
        elif self.rng.random() < (
            0.9 if is_curable(str(error)) else 0.5 if "modified by an" in str(error) else 0.06
        ):
            self.statements.append(Block("guard", (statement,)))
        return error

    def attempt(self, statement: Statement) -> Exception | None:
        lines = "\n".join(Printer().lines((statement,)))
        before = set(self.values)
        scope = self.values
        scope.update(GLOBALS, record=Record(), stash=[])
        try:
            exec(compile(lines, "<draft>", "exec"), scope)
        except Exception as error:
            for name in set(scope) - before:
                del scope[name]
            return error.with_traceback(None)
        for name in ("record", "stash", "__builtins__", "t", *GLOBALS):
            scope.pop(name, None)
        for name in [
            name for name, value in scope.items() if callable(value) and name.startswith("f")
        ]:
            del scope[name]
        self.locals |= set(scope) - before
        return None

    def chain(self, source: str, tables: list[list[operators.Operator]]) -> tuple[Step, ...] | None:
        """One operator of each table, each applicable to what the ones before it give."""
        steps: list[Step] = []
        x = self.value(source)
        for table in tables:
            for _ in range(6):
                operator = operators.choose(self.rng, table)
                step = self.step(operator, x)
                if step is None:
                    continue
                result = self.apply(step, x)
                if isinstance(result, Tensor) and result.numel() <= 64 and result.dim() <= 4:
                    steps.append(step)
                    x = result
                    break
            else:
                return None
        return tuple(steps)

    def step(self, operator: operators.Operator, x: Tensor) -> Step | None:
        try:
            parameters = operator.sample(self.rng, x, self)
        except Exception:
            return None
        return None if parameters is None else (operator.name, *parameters)

    def apply(self, step: Step, x: Tensor) -> object:
        scope = {**self.values, **GLOBALS, "source": x}
        try:
            return eval(operators.render_step(step, "source"), scope)
        except Exception:
            return None

    @contextlib.contextmanager
    def child(self, *, function: bool = False) -> Iterator[Draft]:
        yield Draft(self.rng, self, function=function)


def _is_readable(x: Tensor) -> bool:
    """False for a view that raises whatever is asked of it.

    An in-place operator on one of the views that a function returns together spoils the others.
    """
    try:
        return x.is_leaf or True
    except RuntimeError:
        return False


Grower = Callable[..., object]
_GROWERS: dict[str, Grower] = {}


def grows(kind: str) -> Callable[[Grower], Grower]:
    """Registers the function that adds a statement of this kind to a draft."""

    def register(grower: Grower) -> Grower:
        _GROWERS[kind] = grower
        return grower

    return register


def grow(draft: Draft, weights: dict[str, float]) -> None:
    """Adds about one statement, of a kind drawn by weight."""
    kind = draft.rng.choices(list(weights), list(weights.values()))[0]
    _GROWERS[kind](draft)
