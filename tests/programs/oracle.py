"""Runs a program, and says whether what the cures showed is what stock PyTorch would have shown.

The reference is stock PyTorch on the same program, bit by bit. Where a cure takes an error or a dropped hook away there is no such
reference. Then stock PyTorch runs the program once more with the view concerned given a storage of its own when it is made
(`support.unaliased`): a tensor that is no view, has the same values, geometry and gradient, and shares memory with
nobody. If the base was hidden nobody can tell the two apart, so the cured run must equal that run. If the base was visible, its other observers see a difference, and the cured run equals neither reference.

Only views on which stock raised such an error, or which carried a hook or `retain_grad`, may be replaced.
"""

from __future__ import annotations

import math
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .observe import Difference, Failure, Leniency, Record, Value, differences, normalise
from .source import Reference, function_source
from .statements import (
    Alias,
    Backward,
    Block,
    Call,
    Deref,
    Foreach,
    Hook,
    Let,
    Module,
    Program,
    Stash,
    Statement,
    Unpack,
    Write,
    binds,
    walk,
)

Entries = list[tuple[str, object]]

# Errors a user gets only because PyTorch keeps the history of an alias. The last one also when a stale view, left without
# grad_fn by a differentiable write to another view of its base, is taken for a leaf: `b = zeros.view(2, 2); b[0] = w; b.mul_(2)`.
_CURABLE = re.compile(
    r"is a view and (is being|its base or another view of its base has been) modified inplace|is being modified inplace with grad mode enabled"
    r"|A view was created in (no_grad|inference) mode|backward through the graph a second time"
    r"|Can't detach views in-place|^a leaf Variable that requires grad is being used"
)


def is_curable(message: str) -> bool:
    return _CURABLE.search(message) is not None


def execute(program: Program, reference: Reference | None = None) -> Entries:
    """What the program shows when it runs now, with whatever cures are on."""
    from .generate import GLOBALS

    scope = dict(GLOBALS)
    exec(compile(function_source(program, reference), "<program>", "exec"), scope)
    record = Record()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            scope["program"](record)  # type: ignore[operator]
        except Exception as error:
            record.error("uncaught", error)
        record.finish()
    return record.entries


def is_valid(entries: Entries) -> bool:
    """False when the program itself is broken, as a shrunk one may be."""
    broken = ("NameError", "UnboundLocalError", "SyntaxError", "AttributeError")
    return not any(isinstance(entry, Failure) and entry.kind in broken for _, entry in entries)


@dataclass(frozen=True)
class Verdict:
    """``kind``: equal, unaliased, rounding, signed_zero or mismatch."""

    kind: str
    differences: tuple[Difference, ...] = ()
    sites: tuple[int, ...] = ()

    @property
    def what(self) -> str:
        return self.differences[0].what if self.differences else ""


def judge(program: Program, stock: Entries, cured: Entries) -> Verdict:
    """Compares a cured run with its references. Call it with the cures off."""
    made = _engine_made(program)
    found = tuple(differences(stock, cured, Leniency(engine_made=made)))
    if not found:
        return Verdict("equal")
    if all(item.signed_zero for item in found):
        return Verdict("signed_zero", found)
    if all(item.rounding or item.signed_zero for item in found) and sums_may_be_reordered(program):
        return Verdict("rounding", found)
    sites = _replaced_sites(program, stock, cured, made)
    if sites is not None:
        return Verdict("unaliased", (), sites)
    return Verdict("mismatch", found)


def _replaced_sites(
    program: Program, stock: Entries, cured: Entries, made: frozenset[str]
) -> tuple[int, ...] | None:
    """The sites to replace for a reference that the cured run equals; None where there is no such reference.

    Greedy: in each step the site whose replacement makes the records agree longest.
    """
    refused = _refused(program, stock, cured)
    leniency = Leniency(unaliased=True, engine_made=made)

    def agreement(sites: tuple[int, ...]) -> float:
        reference = execute(program, Reference(frozenset(sites), refused))
        remaining = differences(reference, cured, leniency)
        if all(item.rounding or item.signed_zero for item in remaining):
            return math.inf
        return sum(1 for _ in _common_prefix(reference, cured, leniency))

    candidates = _implicated(program, stock)
    chosen, best = (), -1.0
    while candidates:
        scores = {site: agreement((*chosen, site)) for site in candidates}
        site = max(scores, key=lambda item: scores[item])
        if scores[site] <= best:
            break
        chosen, best = (*chosen, site), scores[site]
        candidates.remove(site)
        if best == math.inf:
            return chosen
    everything = tuple(_implicated(program, stock))
    return everything if everything and agreement(everything) == math.inf else None


def _common_prefix(left: Entries, right: Entries, leniency: Leniency) -> Iterator[None]:
    for one, other in zip(left, right, strict=False):
        if differences([one], [other], leniency):
            return
        yield


def _engine_made(program: Program) -> frozenset[str]:
    """Variables that hold gradients, or views and copies of such."""
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


_DIFFERENTIATING = ("grad", "grad_and_value", "vjp", "vmap_grad", "jacrev")


def _refused(program: Program, stock: Entries, cured: Entries) -> tuple[tuple[int, str, str], ...]:
    """Guarded writes on which the cured run raised stock's own curable error: nothing happened there."""
    raised = {
        label: entry
        for label, entry in cured
        if isinstance(entry, Failure) and (label, entry) in stock
    }
    found = []
    for site, statement in enumerate(walk(program)):
        if isinstance(statement, Block) and statement.context == "guard" and f"@{site}" in raised:
            entry = raised[f"@{site}"]
            if isinstance(statement.body[0], Write | Foreach) and is_curable(entry.message):
                found.append((site, entry.kind, entry.message))
    return tuple(found)


# Operators that may return the tensor they are given.
_SAME_TENSOR = ("contiguous", "double")


def _implicated(program: Program, stock: Entries) -> list[int]:
    """Sites that made a view on which stock raised a curable error, that carried a hook, or that is empty.

    To be an input of `torch.autograd.grad` counts as a hook: after an in-place operator on a sibling view stock finds no
    path to a view, where to an ordinary tensor there is one. Empty, because `CopySlices` over no elements loses
    `requires_grad` of a gradient under `create_graph`.
    """
    raised = any(isinstance(entry, Failure) and is_curable(entry.message) for _, entry in stock)
    raised |= any(isinstance(entry, Value) and entry.elements.size == 0 for _, entry in stock)
    hooked_modules = {
        item.out for item in walk(program) if isinstance(item, Module) and item.hooked
    }
    binders: dict[str, tuple[int, Statement]] = {}
    found: dict[int, None] = {}

    def origins(name: str) -> None:
        for _ in range(8):
            if name not in binders:
                return
            site, statement = binders[name]
            if isinstance(statement, Unpack | Call | Backward) or (
                isinstance(statement, Let)
                and any(step[0] not in _SAME_TENSOR for step in statement.chain)
            ):
                found[site] = None
            source = getattr(statement, "source", None)
            if isinstance(statement, Call):
                source = statement.arguments[0]
            if source is None or (source == name and isinstance(statement, Let)):
                return
            name = source

    for site, statement in enumerate(walk(program)):
        if isinstance(statement, Hook):
            origins(statement.target)
        elif isinstance(statement, Write) and raised:
            origins(statement.target)
        elif isinstance(statement, Foreach) and raised:
            for name in statement.targets:
                origins(name)
        elif isinstance(statement, Backward):
            for name in statement.inputs:
                origins(name)
        elif isinstance(statement, Module) and (statement.hooked or raised):
            found[site] = None
        elif isinstance(statement, Let) and any(
            step[-1] in hooked_modules for step in statement.chain
        ):
            found[site] = None
        if isinstance(statement, Let | Unpack | Alias | Deref | Call | Backward):
            names = binds(statement)
            if isinstance(statement, Call):
                names = names | set(statement.parameters)
            for name in names:
                binders[name] = (site, statement)
    return sorted(found, reverse=True)


def sums_may_be_reordered(program: Program) -> bool:
    """True when some element of a tensor gets its gradient from three or more reads, one of them a view.

    Two addends commute; three do not associate, so a node that collects the gradients of sibling views may round
    differently. Counted on a stock run, element by element and version by version.
    """
    with _ReadCounter() as counter, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        execute(program)
    return counter.reordered()


class _ReadCounter(TorchDispatchMode):
    """Counts how often each element of each tensor is read at each version; a view counts as one read of its part."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[Tensor] = []
        self._counts: dict[tuple[int, int], Counter[int]] = {}
        self._viewed: set[tuple[int, int]] = set()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        inputs = [
            item
            for item in torch.utils._pytree.tree_leaves((args, kwargs))
            if isinstance(item, Tensor)
        ]
        if not torch.is_grad_enabled():
            return func(*args, **(kwargs or {}))
        keys = [self._key(item) for item in inputs]
        result = func(*args, **(kwargs or {}))
        outputs = [
            item for item in torch.utils._pytree.tree_leaves(result) if isinstance(item, Tensor)
        ]
        is_view = func.is_view if hasattr(func, "is_view") else False
        for key in keys:
            if key is not None and is_view:
                self._viewed.add(key)
        for item, key in zip(
            outputs if is_view else inputs,
            keys[:1] * len(outputs) if is_view else keys,
            strict=False,
        ):
            if key is not None:
                self._counts.setdefault(key, Counter()).update(_offsets(item))
        self._kept += inputs + outputs
        return result

    def _key(self, x: Tensor) -> tuple[int, int] | None:
        return None if x.is_inference() else (id(x), x._version)

    def reordered(self) -> bool:
        return any(
            max(self._counts[key].values(), default=0) >= 3
            for key in self._viewed
            if key in self._counts
        )


def _offsets(x: Tensor) -> list[int]:
    offsets = [x.storage_offset()]
    for size, stride in zip(x.shape, x.stride(), strict=True):
        offsets = [offset + i * stride for offset in offsets for i in range(size)]
    return offsets


__all__ = [
    "Entries",
    "Verdict",
    "execute",
    "is_curable",
    "is_valid",
    "judge",
    "normalise",
    "sums_may_be_reordered",
]
