"""Random programs, most of them valid, many of them writing in place to a view whose base nobody can see.

Each statement is tried once on stock PyTorch while the program is being written (the *draft*): that gives shapes, and
a statement that raises is usually thrown away. Some that raise are kept inside ``try``, those whose error a cure may
make go away always.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Iterator
from random import Random

import torch
import torch.autograd.forward_ad as fwAD
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor

from . import operators
from .observe import Record
from .oracle import is_curable
from .source import Printer
from .statements import (
    Alias,
    Backward,
    Block,
    Call,
    Delete,
    Deref,
    Export,
    Foreach,
    Hook,
    Leaf,
    Let,
    Loop,
    Module,
    Peek,
    Program,
    Stash,
    Statement,
    Step,
    Unpack,
    WeakRef,
    Write,
)
from .support import NAMES

GLOBALS: dict[str, object] = {
    "torch": torch,
    "F": F,
    "fwAD": fwAD,
    "weakref": weakref,
    **NAMES,
}

DTYPES = {"float32": 10, "float64": 4, "bfloat16": 2, "complex64": 3}

WEIGHTS = {
    "let": 10.0,
    "hidden_view": 8.0,
    "view": 6.0,
    "write": 12.0,
    "unpack": 1.5,
    "foreach": 0.7,
    "alias": 0.7,
    "delete": 4.0,
    "stash": 0.5,
    "weak": 0.7,
    "export": 0.6,
    "hook": 3.0,
    "peek": 1.5,
    "module": 1.0,
    "backward": 2.0,
    "block": 1.5,
    "loop": 1.0,
    "call": 1.5,
    "dual": 0.5,
}

# A theme makes one kind of statement frequent, so that its interplay with everything else is tried.
THEMES: dict[str, dict[str, float]] = {
    "general": {},
    "hidden": {"hidden_view": 20, "write": 20},
    "visible": {"view": 15, "delete": 8, "alias": 2, "weak": 2, "export": 2, "stash": 2},
    "loops": {"loop": 10},
    "reads": {"view": 20, "loop": 3, "write": 4},
    "transforms": {"call": 10},
    "forward": {"dual": 8},
    "hooks": {"hook": 12, "backward": 5},
    "modules": {"module": 8},
    "engine": {"backward": 12, "hook": 4},
    "blocks": {"block": 10},
}


class Draft:
    """A program being written: its statements so far, and the stand-in values of its variables."""

    def __init__(self, rng: Random, parent: Draft | None = None, *, function: bool = False) -> None:
        self.rng = rng
        self.statements: list[Statement] = []
        self.parent = parent
        self.function = function
        self.values: dict[str, object] = {} if parent is None else parent.values
        self.locals: set[str] = set()
        self.dtype = "float32" if parent is None else parent.dtype
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
        """Executes the statement on the stand-ins; keeps it where it worked, returns the error otherwise."""
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
                step = self._step(operator, x)
                if step is None:
                    continue
                result = self._apply(step, x)
                if isinstance(result, Tensor) and result.numel() <= 64 and result.dim() <= 4:
                    steps.append(step)
                    x = result
                    break
            else:
                return None
        return tuple(steps)

    def _step(self, operator: operators.Operator, x: Tensor) -> Step | None:
        try:
            parameters = operator.sample(self.rng, x, self)
        except Exception:
            return None
        return None if parameters is None else (operator.name, *parameters)

    def _apply(self, step: Step, x: Tensor) -> object:
        scope = {**self.values, **GLOBALS, "source": x}
        try:
            return eval(operators.render_step(step, "source"), scope)
        except Exception:
            return None

    @contextlib.contextmanager
    def child(self, *, function: bool = False) -> Iterator[Draft]:
        yield Draft(self.rng, self, function=function)


def _is_readable(x: Tensor) -> bool:
    """False for a view of several that another view's in-place operator has spoilt: whatever is asked of it raises."""
    try:
        return x.is_leaf or True
    except RuntimeError:
        return False


def generate(seed: int, index: int) -> Program:
    """Program number ``index`` of the campaign ``seed``; the same for the same PyTorch."""
    from .grow import finish, grow

    rng = Random(f"{seed}/{index}")
    torch.manual_seed(0)
    draft = Draft(rng)
    draft.dtype = rng.choices(list(DTYPES), list(DTYPES.values()))[0]
    weights = WEIGHTS | THEMES[rng.choice(list(THEMES))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(rng.randint(1, 2)):
            name = draft.new_name("x")
            draft.add(Leaf(name, _shape(rng), draft.dtype, True))
        for _ in range(rng.randint(4, 16)):
            grow(draft, weights)
        finish(draft)
    return tuple(draft.statements)


def _shape(rng: Random) -> tuple[int, ...]:
    dims = rng.choices(range(5), [1, 3, 6, 5, 1])[0]
    sizes = tuple(rng.choices(range(5), [0.2, 1, 5, 4, 2])[0] for _ in range(dims))
    return sizes
