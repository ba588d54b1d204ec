"""The statements a random program is made of: small, typed, JSON serialisable, printable as Python.

A variable is written ``"$name"`` wherever it is used, so that what a statement reads and binds can
be found without knowing its kind. An operator with its parameters is a *step*, ``("transpose", 0,
1)``; a chain of steps applied to a variable is one Python expression, which is what makes a base
hidden at once: ``y = x.exp().view(3, 2)``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TypeAlias

Parameter: TypeAlias = "None | bool | int | float | str | tuple[Parameter, ...]"
Step: TypeAlias = "tuple[Parameter, ...]"


@dataclass(frozen=True)
class Leaf:
    """``out = torch.randn(shape, dtype=..., requires_grad=...)`` (or zeros, ones)."""

    out: str
    shape: tuple[int, ...]
    dtype: str
    requires_grad: bool
    fill: str = "randn"


@dataclass(frozen=True)
class Let:
    """``out = source.step.step...``; rebinding when ``out`` is already bound."""

    out: str
    source: str
    chain: tuple[Step, ...]


@dataclass(frozen=True)
class Unpack:
    """``a, b = source.step.split(...)``: the last step gives one tensor for each name."""

    outs: tuple[str, ...]
    source: str
    chain: tuple[Step, ...]


@dataclass(frozen=True)
class Write:
    """An in-place operator on ``target`` or a temporary view of it, here or in another thread."""

    target: str
    chain: tuple[Step, ...]
    step: Step
    thread: bool = False


@dataclass(frozen=True)
class Foreach:
    """``torch._foreach_mul_([a, b], 2.0)``."""

    targets: tuple[str, ...]
    step: Step


@dataclass(frozen=True)
class Alias:
    """``out = source``: a second Python name for the same tensor."""

    out: str
    source: str


@dataclass(frozen=True)
class Delete:
    """``del name``."""

    name: str


@dataclass(frozen=True)
class Stash:
    """``stash.append(source)``."""

    source: str


@dataclass(frozen=True)
class WeakRef:
    """``out = weakref.ref(source)``."""

    out: str
    source: str


@dataclass(frozen=True)
class Deref:
    """``out = source()``: what the weak reference still reaches."""

    out: str
    source: str


@dataclass(frozen=True)
class Export:
    """Shares a tensor's storage outside PyTorch's tensors: ``numpy``, ``dlpack``, ``storage``."""

    out: str
    source: str
    way: str


@dataclass(frozen=True)
class Hook:
    """A hook on a tensor.

    ``way`` is ``log``, ``scale``, ``keep``, ``retain_grad``, ``post_accumulate``, ``node`` or
    ``node_pre``.
    """

    target: str
    way: str


@dataclass(frozen=True)
class Peek:
    """Records value, version, flags and gradient of a variable in mid-program."""

    source: str


@dataclass(frozen=True)
class Module:
    """``out = torch.nn....``; ``hooked`` registers a full backward hook."""

    out: str
    way: str
    sizes: tuple[int, ...]
    hooked: bool


@dataclass(frozen=True)
class Backward:
    """One run of the engine, from a sum of ``terms`` or from one term with a ``gradient``.

    With ``inputs`` it is ``torch.autograd.grad`` and binds ``outs``, otherwise ``.backward()``.
    """

    outs: tuple[str, ...]
    terms: tuple[Step, ...]
    inputs: tuple[str, ...]
    gradient: str | None
    retain_graph: bool
    create_graph: bool
    thread: bool = False


@dataclass(frozen=True)
class Block:
    """Statements under a context out of `source.CONTEXTS`; ``guard`` is ``try``."""

    context: str
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Loop:
    """``for t in range(steps)``; ``t`` appears in the body as an index."""

    steps: int
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Call:
    """A local function, called through a transform out of `source.TRANSFORMS`."""

    outs: tuple[str, ...]
    transform: str
    arguments: tuple[str, ...]
    parameters: tuple[str, ...]
    body: tuple[Statement, ...]
    result: Step


Statement: TypeAlias = (
    Leaf
    | Let
    | Unpack
    | Write
    | Foreach
    | Alias
    | Delete
    | Stash
    | WeakRef
    | Deref
    | Export
    | Hook
    | Peek
    | Module
    | Backward
    | Block
    | Loop
    | Call
)
Program: TypeAlias = "tuple[Statement, ...]"

_KINDS = {kind.__name__: kind for kind in Statement.__args__}
_BINDING_FIELDS = {"out", "outs", "parameters"}


def render(parameter: Parameter) -> str:
    """A parameter as Python source."""
    if isinstance(parameter, str):
        return parameter.removeprefix("$")
    if isinstance(parameter, tuple):
        inner = ", ".join(render(item) for item in parameter)
        return f"({inner},)" if len(parameter) == 1 else f"({inner})"
    return repr(parameter)


def render_index(index: Parameter) -> str:
    """``x[...]``'s index: integers and names, ``(start, stop, step)``, ``"..."`` and None."""
    if not isinstance(index, tuple):
        return render(index)
    parts = []
    for item in index:
        if isinstance(item, tuple):
            start, stop, step = ("" if bound is None else render(bound) for bound in item)
            parts.append(f"{start}:{stop}" + (f":{step}" if step else ""))
        else:
            parts.append(render(item))
    return ", ".join(parts) or "()"


def walk(program: Program) -> Iterator[Statement]:
    """Every statement, outer before inner; a statement's position in it is its *site*."""
    for statement in program:
        yield statement
        yield from walk(getattr(statement, "body", ()))


def reads(statement: object) -> set[str]:
    """Names a statement, body included, uses; those bound inside its own body are left out."""
    found: set[str] = set()
    for field in fields(statement):  # type: ignore[arg-type]
        value = getattr(statement, field.name)
        if field.name == "body":
            inner: set[str] = set(getattr(statement, "parameters", ()))
            for child in value:
                found |= reads(child) - inner
                inner |= binds(child)
        elif field.name not in _BINDING_FIELDS:
            found |= set(_variables(value))
    if isinstance(statement, Call):
        found -= set(statement.parameters).union(*(binds(child) for child in statement.body))
    return found


def binds(statement: object) -> set[str]:
    """Names a statement binds in its own scope, which a block shares and a function does not."""
    found: set[str] = set()
    for field in fields(statement):  # type: ignore[arg-type]
        value = getattr(statement, field.name)
        if field.name in ("out", "outs"):
            found |= set(_variables(value))
        elif field.name == "body" and not isinstance(statement, Call):
            for child in value:
                found |= binds(child)
    return found


def rename(statement: Statement, old: str, new: str) -> Statement:
    """The statement with one variable in the place of another."""

    def renamed(value: object) -> object:
        if isinstance(value, tuple):
            return tuple(renamed(item) for item in value)
        if is_dataclass(value):
            changes = {field.name: renamed(getattr(value, field.name)) for field in fields(value)}
            return replace(value, **changes)  # type: ignore[type-var]
        return new if value == old else value

    result = renamed(statement)
    assert isinstance(result, type(statement))
    return result


def _variables(value: object) -> Iterator[str]:
    if isinstance(value, str) and value.startswith("$"):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _variables(item)


def dumps(program: Program) -> str:
    """The program as JSON, one statement a line."""
    lines = ",\n ".join(json.dumps(_encode(statement)) for statement in program)
    return f"[{lines}]\n"


def loads(text: str) -> Program:
    """The program written by `dumps`."""
    decoded = _decode(json.loads(text))
    assert isinstance(decoded, tuple)
    return decoded


def _encode(value: object) -> object:
    if is_dataclass(value):
        encoded = {field.name: _encode(getattr(value, field.name)) for field in fields(value)}
        return {"kind": type(value).__name__, **encoded}
    return [_encode(item) for item in value] if isinstance(value, tuple) else value


def _decode(value: object) -> object:
    if isinstance(value, dict):
        kind = _KINDS[value.pop("kind")]
        return kind(**{name: _decode(item) for name, item in value.items()})
    return tuple(_decode(item) for item in value) if isinstance(value, list) else value
