"""Runs a program on whatever PyTorch is there now: stock, cured or broken."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from . import support
from .record import SOURCE, Entries, Failure, Record
from .source import Place, Reference, function_source
from .statements import Program


def execute(program: Program, reference: Reference | None = None, random: object = None) -> Entries:
    """What the program shows when it runs now, with whatever cures are on.

    ``random`` takes the place of ``torch`` where the program makes random numbers.
    """
    scope = dict(support.GLOBALS)
    if reference is not None and reference.exact_tangents:
        scope["F"] = support.ExactTangents()
    if random is not None:
        scope["torch"] = random
    exec(compile(function_source(program, reference), SOURCE, "exec"), scope)
    record = Record()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            scope["program"](record)  # type: ignore[operator]
        except Exception as error:
            record.error("uncaught", error)
        record.finish()
    return record.entries


def view_places(program: Program, replaced: Iterable[tuple[Place, ...]]) -> set[Place]:
    """Where there is a view on stock PyTorch, in runs in which these are replaced."""
    support.VIEW_PLACES = found = set[Place]()
    try:
        for places in replaced:
            execute(program, Reference(frozenset(places)))
    finally:
        support.VIEW_PLACES = None
    return found


class _Watch(TorchFunctionMode):
    """Notices a call that is ``wanted``, inside of functions given to a transform as well."""

    seen = False

    def __init__(self, wanted: Callable[[object, tuple[object, ...], object], bool]) -> None:
        super().__init__()
        self._wanted = wanted

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Collection[type],
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        result = func(*args, **(kwargs or {}))
        self.seen = self.seen or self._wanted(func, args, result)
        return result


def meets_no_elements(program: Program) -> bool:
    """Whether some operator's result has no elements on stock PyTorch."""
    with _Watch(lambda func, args, result: isinstance(result, Tensor) and not result.numel()) as it:
        execute(program)
    return it.seen


def places_of(x: Tensor) -> set[int]:
    """Where in their storage the elements lie. Of a batch there is no saying: nowhere."""
    functorch = torch._C._functorch
    while functorch.is_gradtrackingtensor(x):
        x = functorch.get_unwrapped(x)
    if functorch.is_functorch_wrapped_tensor(x):
        return set()
    places = {x.storage_offset()}
    for size, stride in zip(x.shape, x.stride(), strict=True):
        places = {place + i * stride for place in places for i in range(size)}
    return places


def reaches_beyond(program: Program, reference: Reference) -> bool:
    """Whether `as_strided` makes a view of what its argument does not reach on stock PyTorch."""

    def wanted(func: object, args: tuple[object, ...], result: object) -> bool:
        if func is not Tensor.as_strided:
            return False
        assert isinstance(args[0], Tensor)
        assert isinstance(result, Tensor)
        return not places_of(result) <= places_of(args[0])

    with _Watch(wanted) as it:
        execute(program)
        execute(program, reference)
    return it.seen


def is_valid(entries: Entries) -> bool:
    """False when the program itself is broken, as a shrunk one may be."""
    broken = ("NameError", "UnboundLocalError", "SyntaxError", "AttributeError")
    return not any(isinstance(entry, Failure) and entry.kind in broken for _, entry in entries)
