"""Which variables of a program a cure may change the view of, and which hold gradients."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .compare import Difference
from .execute import meets_no_elements
from .record import Entries, Failure, Value
from .source import Place
from .statements import (
    Alias,
    Backward,
    Block,
    Call,
    Deref,
    Foreach,
    Hook,
    Let,
    Loop,
    Module,
    Program,
    Stash,
    Statement,
    Unpack,
    WeakRef,
    Write,
    binds,
    walk,
)

# Errors a user gets only because PyTorch keeps the history of an alias. The last one when a stale
# view, left without grad_fn by a differentiable write to another view of its base, is taken for a
# leaf: `b = zeros.view(2, 2); b[0] = w; b.mul_(2)`.
_CURABLE = re.compile(
    "|".join(
        (
            "is a view and is being modified inplace",
            "is a view and its base or another view of its base has been modified inplace",
            "is being modified inplace with grad mode enabled",
            "A view was created in (no_grad|inference) mode",
            "backward through the graph a second time",
            "Can't detach views in-place",
            "^a leaf Variable that requires grad is being used",
        )
    )
)


_LEAF_WRITTEN = "raises a leaf Variable that requires grad"


def is_curable(message: str) -> bool:
    """True for the message of an error that goes away when a hidden base does."""
    return _CURABLE.search(message) is not None


def engine_made(program: Program) -> frozenset[str]:
    """Variables that hold gradients or a transform's results, or views and copies of such."""
    made: set[str] = set()
    for statement in walk(program):
        if isinstance(statement, Backward) or (
            isinstance(statement, Call) and statement.transform in _DIFFERENTIATING
        ):
            made |= set(statement.outs)
        elif isinstance(statement, Let | Unpack | Alias | Deref) and statement.source in made:
            made |= binds(statement)
        elif isinstance(statement, Stash) and statement.source in made:
            made.add("$stash")
    return frozenset(name.removeprefix("$") for name in made)


_DIFFERENTIATING = ("grad", "grad_and_value", "vjp", "vmap_grad", "jacrev", "jvp", "jacfwd", "vmap")


def calls_linear(program: Program) -> bool:
    """Whether there is a `linear` in it, by itself or in a module."""
    return any(
        (isinstance(item, Let) and any(str(step[0]).startswith("linear") for step in item.chain))
        or (isinstance(item, Module) and "linear" in item.way)
        for item in walk(program)
    )


def outliving(program: Program) -> frozenset[str]:
    """Names of weak references that may reach an operand of `linear` for longer than on stock."""
    if not calls_linear(program):
        return frozenset()
    return frozenset(
        item.out.removeprefix("$") for item in walk(program) if isinstance(item, WeakRef)
    )


# Operators that may return the tensor they are given.
_SAME_TENSOR = ("contiguous", "double")


def replaceable(
    program: Program, stock: Entries, found: Sequence[Difference] = ()
) -> dict[Place, str]:
    """Places of tensors whose being a view a cure may end, and why, latest first.

    ``found`` are the differences between stock and cured run.

    - ``error``: stock raised a curable error somewhere, and the tensor is written to;
    - ``hook``: it carries a hook, which stock drops when the view's base is written to;
    - ``input``: it is an input of `torch.autograd.grad`. After an in-place operator on a sibling
      view stock finds no path to a view, where to an ordinary tensor there is one;
    - ``empty``: some tensor has no elements, and it is written to. `CopySlices` over no elements
      loses the gradient's ``requires_grad`` under ``create_graph``;
    - ``constant``: the runs differ in whether a gradient requires grad, and it is written to.
      `CopySlices` copies it: under ``create_graph`` one that depends on nothing gets a history,
      and without, a gradient that the caller gave and that requires grad loses it;
    - ``strides``: the runs differ first in the strides of a gradient, and it is written to.
      `CopySlices` gives a gradient the strides of the base;
    - ``rounding``: the runs differ first by the rounding of a sum or a product, which runs over a
      gradient in the order of its strides, and it is written to;
    - ``lifetime``: the runs differ first in that a weak reference still reaches something, and it
      is written to or is what the reference reaches: linear as one operator saves its operand
      where PyTorch's saves a view of it. What is no view is the base of the views made of it, and
      lives on in them;
    - ``foreach``: the runs differ first in a gradient, and one foreach operator writes to it and to
      another view of its base. Stock then loses one of the two writes from the history of the
      first: of ``a`` and ``b`` over the same memory, doubled by one ``_foreach_mul_``, the values
      are four times the base and the gradient of ``a`` is twice (2.9 to 2.15).

    - ``given``: the runs differ first in elements, in whether a tensor is a leaf, or in the error
      for a leaf that is written to, the caller gives `backward` a gradient, and it is written to.
      `CopySlices` copies the gradient; behind nothing but views and copies it is else what
      `autograd.grad` returns, or its memory that of a leaf's ``.grad``, to which the next backward
      adds.

    A view may be replaced where it is made, or `late`, just before it is written to: in between it
    carries hooks and takes part in backward runs as the view that it is.
    """
    raised = any(isinstance(entry, Failure) and is_curable(entry.message) for _, entry in stock)
    reason = of_difference = _reason_of(found, program)
    if raised:
        reason = "error"
    elif not reason and _handles_no_elements(program, stock):
        reason = "empty"
    origins = _Origins()
    places: dict[Place, str] = {}
    for site, statement in enumerate(walk(program)):
        if isinstance(statement, Hook):
            places |= dict.fromkeys(origins.of(statement.target), "hook")
            if statement.way == "keep" and reason:
                places[site, 0] = reason
        elif isinstance(statement, WeakRef) and of_difference == "lifetime":
            places |= dict.fromkeys(origins.of(statement.source), of_difference)
        elif isinstance(statement, Backward):
            for name in statement.inputs:
                places |= dict.fromkeys(origins.of(name), "input")
        elif isinstance(statement, Write | Foreach):
            names = (statement.target,) if isinstance(statement, Write) else statement.targets
            for part, name in enumerate(names):
                made = origins.of(name)
                places |= dict.fromkeys(made, reason) if reason else {}
                if reason or places.keys() & made:
                    places[site, part] = reason or "hook"
        elif isinstance(statement, Module) and (statement.hooked or reason):
            places[site, 0] = "hook" if statement.hooked else reason
            origins.hooked |= {statement.out} if statement.hooked else set()
        elif isinstance(statement, Call) and statement.transform in ("jvp", "jacfwd") and reason:
            places[site, len(statement.outs)] = reason
        elif isinstance(statement, Let) and origins.is_hooked_call(statement):
            places[site, 0] = "hook"
        origins.bind(site, statement)
    return dict(sorted(places.items(), reverse=True))


def _handles_no_elements(program: Program, stock: Entries) -> bool:
    shown = any(isinstance(entry, Value) and entry.elements.size == 0 for _, entry in stock)
    return shown or (_creates_graph(program) and meets_no_elements(program))


def late(program: Program) -> set[int]:
    """Sites at which a view is replaced just before it is written to."""
    return {
        site
        for site, statement in enumerate(walk(program))
        if isinstance(statement, Write | Foreach)
    }


def _reason_of(found: Sequence[Difference], program: Program) -> str:
    if not found:
        return ""
    # What such a gradient does not reach may be recorded before the gradient itself.
    of_history = {
        item.expected for item in found if item.of_gradient and item.what == "requires_grad"
    }
    if ("True" in of_history and _creates_graph(program)) or (
        "False" in of_history and _gives_gradient(program)
    ):
        return "constant"
    first = found[0]
    if _creates_graph(program) and _lacks_what_depends_on_nothing(first):
        return "constant"
    if first.rounding:
        return "rounding"
    weak = {statement.out for statement in walk(program) if isinstance(statement, WeakRef)}
    if f"${first.label.split('@')[0]}" in weak and (first.expected, first.actual) == (
        "True",
        "False",
    ):
        return "lifetime"
    if first.what == "elements" and _writes_an_alias_twice(program):
        return "foreach"
    of_what_was_given = first.what in ("elements", "leaf") or first.what.startswith(_LEAF_WRITTEN)
    if of_what_was_given and _gives_gradient(program):
        return "given"
    return "strides" if first.of_gradient and first.what == "stride" else ""


def _lacks_what_depends_on_nothing(first: Difference) -> bool:
    """Whether the cured run has no history, or no gradient, where stock's has one for no reason."""
    lacking = (
        "does not require grad",
        "doesn't require gradient",
        "has requires_grad=False",
    )
    return any(words in first.actual for words in lacking) or (
        first.what == "presence" and first.label.endswith(".grad") and first.actual == "None"
    )


def _writes_an_alias_twice(program: Program) -> bool:
    """Whether one foreach operator writes to two tensors made from a common one."""
    origins = _Origins()
    for site, statement in enumerate(walk(program)):
        if isinstance(statement, Foreach):
            made = [origins.of(name) for name in statement.targets]
            if len({place for places in made for place in places}) < sum(map(len, made)):
                return True
        origins.bind(site, statement)
    return False


def _creates_graph(program: Program) -> bool:
    """Whether gradients with a history of their own are taken anywhere."""
    return any(
        statement.create_graph
        if isinstance(statement, Backward)
        else isinstance(statement, Call) and statement.transform in _DIFFERENTIATING
        for statement in walk(program)
    )


def _gives_gradient(program: Program) -> bool:
    return any(isinstance(item, Backward) and item.gradient for item in walk(program))


class _Origins:
    """Follows names back to where their tensors were made, and what these are views of."""

    def __init__(self) -> None:
        self.hooked: set[str] = set()
        self._places: dict[str, tuple[Place, ...]] = {}

    def of(self, name: str) -> tuple[Place, ...]:
        """From the tensor's own place to that of the first one it was made from."""
        return self._places.get(name, ())

    def bind(self, site: int, statement: Statement) -> None:
        if isinstance(statement, Block | Loop):
            return
        before = self._before(statement)
        names = getattr(statement, "outs", None) or tuple(binds(statement))
        made = _makes_a_tensor(statement)
        bound = {
            name: (((site, part),) if made or isinstance(statement, Module) else ()) + before
            for part, name in enumerate(names)
        }
        if isinstance(statement, Call):
            bound |= dict.fromkeys(statement.parameters, ((site, 0), *before))
        self._places |= bound

    def is_hooked_call(self, statement: Let) -> bool:
        return any(step[-1] in self.hooked for step in statement.chain)

    def _before(self, statement: Statement) -> tuple[Place, ...]:
        """Of the source, and of the modules called: a view may be made and written inside."""
        chain = statement.chain if isinstance(statement, Let) else ()
        called = [str(step[1]) for step in chain if step[0] == "call"]
        modules = [place for module in called for place in self.of(module)[:1]]
        if isinstance(statement, Call):
            source = statement.arguments[0]
        else:
            source = str(getattr(statement, "source", ""))
        return (*modules, *self.of(source))


def _makes_a_tensor(statement: Statement) -> bool:
    """True where the bound tensor is surely another than the source."""
    if isinstance(statement, Let):
        return any(step[0] not in _SAME_TENSOR for step in statement.chain)
    return isinstance(statement, Unpack | Call | Backward)
