"""How two runs of a program are compared: bit by bit, except that all NaNs are equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .record import (
    FLAGS,
    GRADIENT_FLAGS,
    Entries,
    Failure,
    Storage,
    Value,
    without_numbers_and_levels,
)


@dataclass(frozen=True)
class Difference:
    """The first thing two runs disagree on."""

    label: str
    what: str
    expected: str
    actual: str
    rounding: bool = False
    """True where both are numbers within the rounding of a few additions."""
    signed_zero: bool = False
    of_gradient: bool = False
    """True of a variable that holds a gradient."""

    def __str__(self) -> str:
        return f"{self.label}: {self.what}\n  expected {self.expected}\n  actual   {self.actual}"


@dataclass(frozen=True)
class Leniency:
    """What two runs may differ in.

    ``unaliased``: the expected run gave some results a storage of their own, so that offsets and
    storages are not comparable. ``engine_made``: variables that hold gradients; which of them the
    engine wrote in place, and so their version, is not for the user to rely on, nor are their
    strides where the reference has another graph. ``one_node_of_linear``: where it raises, a hook
    on it is not called, and stock has called that of a node in front of the one that raises. Of the
    two gradients of a tensor that is both operands the engine may add to the other one, which may
    have other strides along dimensions of one element. ``outliving``: weak references that may
    still reach an operand of linear, which saves it where stock saves a view of its base.
    """

    unaliased: bool = False
    engine_made: frozenset[str] = frozenset()
    one_node_of_linear: bool = False
    outliving: frozenset[str] = frozenset()

    def is_gradient(self, label: str) -> bool:
        return label.split("@")[0] in self.engine_made

    def ignores(self, flag: str, label: str) -> bool:
        if self.is_gradient(label):
            return flag == "version" or (self.unaliased and flag in ("stride", "offset"))
        return self.unaliased and flag == "offset"


def differences(
    expected: Entries,
    actual: Entries,
    leniency: Leniency | None = None,
) -> list[Difference]:
    """All disagreements between two records, entry by entry; the order of entries counts."""
    leniency = leniency or Leniency()
    if leniency.one_node_of_linear:
        expected = _without_hook_before_error(expected, actual)
    found: list[Difference] = []
    for (label, left), (other, right) in zip(expected, actual, strict=False):
        if label != other:
            what = _event(left, right)
            return [*found, Difference(label, what, f"{label} {left}", f"{other} {right}")]
        found += _compare(label, left, right, leniency)
    if len(expected) != len(actual):
        label, entry = max(expected, actual, key=len)[min(len(expected), len(actual))]
        counts = f"{len(expected)} events", f"{len(actual)}; first extra: {label} {entry}"
        found.append(Difference(label, "number of events", *counts))
    return found


def _without_hook_before_error(expected: Entries, actual: Entries) -> Entries:
    """The first record without a hook's entry where an error is all that the second one has."""
    for i, ((label, _), (other, right)) in enumerate(zip(expected, actual, strict=False)):
        if label != other:
            is_hook = label.startswith("node ") and isinstance(right, Failure)
            return [*expected[:i], *expected[i + 1 :]] if is_hook else expected
    return expected


def _event(left: object, right: object) -> str:
    """The kind of disagreement where different things happened."""
    if isinstance(right, Failure):
        return f"raises {right.message[:40]}"
    return f"does not raise {left.message[:40]}" if isinstance(left, Failure) else "another event"


def _compare(label: str, left: object, right: object, leniency: Leniency) -> list[Difference]:
    if isinstance(left, Value) and isinstance(right, Value):
        return _compare_values(label, left, right, leniency)
    if isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right):
        pairs = zip(left, right, strict=True)
        return [item for pair in pairs for item in _compare(label, *pair, leniency)]
    if isinstance(left, tuple) and isinstance(right, tuple) and label.startswith("node "):
        # A hook on a node sees what flows into the node, and of linear's there is one where stock
        # has one for each of its outputs.
        return [] if _is_among(label, left, right, leniency) else [_unlike(label, left, right)]
    if isinstance(left, Storage) and isinstance(right, Storage) and leniency.unaliased:
        return []
    if label.split("@")[0] in leniency.outliving and (left, right) == (True, False):
        return []
    if left == right or (not leniency.unaliased and _same_error(left, right)):
        return []
    return [_unlike(label, left, right)]


def _unlike(label: str, left: object, right: object) -> Difference:
    what = _event(left, right) if isinstance(right, Failure) else "observation"
    return Difference(label, what, str(left), str(right))


def _is_among(
    label: str, few: tuple[object, ...], many: tuple[object, ...], leniency: Leniency
) -> bool:
    """Whether the first tuple is what remains of the second without some of its items."""
    left = iter(many)
    return all(any(not _compare(label, item, other, leniency) for other in left) for item in few)


def _same_error(left: object, right: object) -> bool:
    """Of two runs of one source: raised by one statement, and but for numbers the same.

    Or one by a level of `torch.func.vmap` below the level at which stock refuses the view.
    """
    if (
        not isinstance(left, Failure)
        or not isinstance(right, Failure)
        or left.kind != right.kind
        or not left.line == right.line != 0
    ):
        return False
    one, other = map(without_numbers_and_levels, (left.message, right.message))
    return one == other or (
        "is a view and is being modified inplace" in one and other.startswith("vmap: ")
    )


def _compare_values(label: str, left: Value, right: Value, leniency: Leniency) -> list[Difference]:
    found = []
    names = {len(FLAGS): FLAGS, len(GRADIENT_FLAGS): GRADIENT_FLAGS}.get(len(left.flags))
    if names is not None and len(left.flags) == len(right.flags):
        of_gradient = names is GRADIENT_FLAGS or leniency.is_gradient(label)
        for name, expected, actual in zip(names, left.flags, right.flags, strict=True):
            if name == "stride" and of_gradient and leniency.one_node_of_linear:
                expected, actual = (_strides_that_matter(value) for value in (left, right))
            if expected != actual and not leniency.ignores(name, label):
                values = str(expected), str(actual)
                found.append(Difference(label, name, *values, of_gradient=of_gradient))
    elif left.flags != right.flags:
        found.append(Difference(label, "shape or kind", str(left.flags), str(right.flags)))
    if not any(item.what in ("shape", "dtype", "shape or kind") for item in found):
        found += _compare_elements(label, left, right)
    for name in ("grad", "tangent"):
        inner = getattr(left, name), getattr(right, name)
        if None not in inner:
            found += _compare_values(f"{label}.{name}", *inner, leniency)
        elif inner != (None, None):
            found.append(Difference(f"{label}.{name}", "presence", str(inner[0]), str(inner[1])))
    return found


def _strides_that_matter(value: Value) -> list[int]:
    shape, strides = value.flags[:2]
    return [stride for size, stride in zip(shape, strides, strict=True) if size != 1]


def _compare_elements(label: str, left: Value, right: Value) -> list[Difference]:
    a, b = left.elements, right.elements
    if a.tobytes() == b.tobytes():
        return []
    bfloat16 = "torch.bfloat16" in left.flags
    a, b = (_widen(item) if bfloat16 else item for item in (a, b))
    equal = (a == b) | (_nan(a) & _nan(b))
    signed_zero = bool(equal.all())
    if signed_zero and a.tobytes() == np.where(_nan(a), a, b).tobytes():
        return []
    epsilon = 2.0**-7 if bfloat16 else (np.finfo(a.dtype).eps if a.dtype.kind in "fc" else 0.0)
    with np.errstate(all="ignore"):
        scale = np.maximum(np.abs(a), np.abs(b)).max(
            initial=1.0, where=np.isfinite(a) & np.isfinite(b)
        )
        rounding = bool((equal | (np.abs(a - b) <= 16 * epsilon * scale)).all())
    return [Difference(label, "elements", str(a.tolist()), str(b.tolist()), rounding, signed_zero)]


def _nan(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.isnan(a) if a.dtype.kind in "fc" else np.zeros(a.shape, bool)


def _widen(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return (bits.astype(np.uint16).astype(np.uint32) << 16).view(np.float32)
