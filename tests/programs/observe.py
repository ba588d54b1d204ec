"""What a run of a program shows to its user, and how two runs are compared.

Recording keeps copies, never tensors. Everything a user can see of a tensor is recorded, except ``grad_fn``, ``_base`` and
``_is_view()``: those are what the cures change, and reading ``grad_fn`` would itself change a stale view.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.autograd.forward_ad as fwAD
from torch import Tensor

_FLAGS = ("shape", "stride", "offset", "dtype", "requires_grad", "leaf", "version")


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor at one moment: ``flags`` in the order of `_FLAGS`, the elements' bits, gradient and tangent."""

    flags: tuple[object, ...]
    elements: np.ndarray[Any, Any]
    grad: Value | None = None
    tangent: Value | None = None


@dataclass(frozen=True)
class Failure:
    """A raised error with everything taken out of its message that names a node or an address."""

    kind: str
    message: str


@dataclass
class Record:
    """The ``record`` that programs call. ``entries`` holds (label, observation) in the order of events."""

    entries: list[tuple[str, object]] = field(default_factory=list)
    _kept: list[tuple[str, Tensor | None]] = field(default_factory=list)

    def __call__(self, label: str, value: object) -> None:
        try:
            self.entries.append((label, observe(value)))
        except RuntimeError as error:
            # Even `is_leaf` raises on a view that another view's in-place operator has spoilt.
            self.error(label, error)

    def error(self, label: str, error: BaseException) -> None:
        self.entries.append((label, Failure(type(error).__name__, normalise(str(error)))))

    def refuse(self, label: str, kind: str, message: str) -> None:
        """What a reference run records in the place of a statement it leaves out."""
        self.entries.append((label, Failure(kind, message)))

    def hook(
        self, label: str, scale: float | None = None
    ) -> Callable[[Tensor | None], Tensor | None]:
        def call(grad: Tensor | None) -> Tensor | None:
            self.entries.append((f"hook {label}", _gradient(grad)))
            return None if scale is None or grad is None else grad * scale

        return call

    def keep(self, label: str) -> Callable[[Tensor | None], None]:
        """A hook that holds the gradient itself until the end: whoever overwrites it is seen."""

        def call(grad: Tensor | None) -> None:
            self._kept.append((f"kept {label}", grad))

        return call

    def accumulated(self, label: str) -> Callable[[Tensor], None]:
        def call(leaf: Tensor) -> None:
            self.entries.append((f"accumulated {label}", _gradient(leaf.grad)))

        return call

    def node_hook(self, label: str) -> Callable[..., None]:
        """For `Node.register_prehook` and `register_hook`: the last argument is what flows into the node."""

        def call(*grads: tuple[Tensor | None, ...]) -> None:
            seen = tuple(map(_gradient, grads[-1]))
            self.entries.append((f"node {label}", seen))

        return call

    def module_hook(
        self, label: str
    ) -> Callable[[object, object, tuple[Tensor | None, ...]], None]:
        def call(module: object, grad_in: object, grad_out: tuple[Tensor | None, ...]) -> None:
            seen = tuple(map(_gradient, grad_out))
            self.entries.append((f"module {label}", seen))

        return call

    def finish(self) -> None:
        """Records the gradients that hooks kept and lets them go."""
        self.entries += [(label, _gradient(grad)) for label, grad in self._kept]
        self._kept.clear()


def observe(value: object) -> object:
    """A copy of what can be seen of a variable."""
    if isinstance(value, Tensor):
        with torch.no_grad():
            return _value(value)
    if isinstance(value, torch.nn.Module):
        return tuple((name, observe(parameter)) for name, parameter in value.named_parameters())
    if isinstance(value, np.ndarray):
        return Value(("numpy", value.shape), value.copy())
    if isinstance(value, torch.UntypedStorage):
        return Storage(bytes(value.tolist()))
    if isinstance(value, list | tuple):
        return tuple(observe(item) for item in value)
    if callable(value):
        return ("weak reference", value() is None)
    return value


@dataclass(frozen=True)
class Storage:
    """The bytes of a storage; an unaliased tensor has another one, so only exact comparisons look at it."""

    content: bytes


def _value(x: Tensor) -> Value:
    # `requires_grad` first: a stale view brings itself up to date when its grad_fn is asked for.
    flags = (
        tuple(x.shape),
        x.stride(),
        x.storage_offset(),
        str(x.dtype),
        x.requires_grad,
        x.is_leaf,
        None if x.is_inference() else x._version,
    )
    grad = _gradient(x.grad) if x.is_leaf or x.retains_grad else None
    tangent = _gradient(fwAD.unpack_dual(x).tangent) if fwAD._current_level >= 0 else None
    return Value(flags, _elements(x), grad, tangent)


def _gradient(x: Tensor | None) -> Value | None:
    """Values and shape only: how the engine laid a gradient out and who wrote it is PyTorch's own business."""
    if x is None:
        return None
    return Value((tuple(x.shape), str(x.dtype), x.requires_grad), _elements(x))


def _elements(x: Tensor) -> np.ndarray[Any, Any]:
    with torch.no_grad():
        copy = x.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
        return np.asarray(
            (copy.view(torch.int16) if copy.dtype == torch.bfloat16 else copy).numpy()
        )


_NORMAL = [
    (re.compile(r"\w*Backward\w*|\bCopySlices\b|torch::autograd::\w+"), "*"),
    (re.compile(r"0x[0-9a-f]+"), "0x"),
    (re.compile(r"which is output \d+ of [\w*]+, "), ""),
]


def normalise(message: str) -> str:
    for pattern, replacement in _NORMAL:
        message = pattern.sub(replacement, message)
    return message


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

    def __str__(self) -> str:
        return f"{self.label}: {self.what}\n  expected {self.expected}\n  actual   {self.actual}"


@dataclass(frozen=True)
class Leniency:
    """What two runs may differ in.

    ``unaliased``: the expected run gave some results a storage of their own, so that offsets and storages are not comparable.
    ``engine_made``: variables that hold gradients; which of them the engine wrote in place, and so their version, is not
    for the user to rely on.
    """

    unaliased: bool = False
    engine_made: frozenset[str] = frozenset()

    def ignores(self, flag: str, label: str) -> bool:
        return (self.unaliased and flag == "offset") or (
            flag == "version" and label.split("@")[0] in self.engine_made
        )


def differences(
    expected: list[tuple[str, object]],
    actual: list[tuple[str, object]],
    leniency: Leniency | None = None,
) -> list[Difference]:
    """All disagreements between two records, entry by entry; the order of entries counts."""
    leniency = leniency or Leniency()
    found = []
    for (label, left), (other, right) in zip(expected, actual, strict=False):
        if label != other:
            return [
                *found,
                Difference(label, "another event", f"{label} {left}", f"{other} {right}"),
            ]
        found += _compare(label, left, right, leniency)
    if len(expected) != len(actual):
        longer = max(expected, actual, key=len)[min(len(expected), len(actual))]
        found.append(
            Difference(
                longer[0],
                "number of events",
                f"{len(expected)} events",
                f"{len(actual)}; first extra: {longer}",
            )
        )
    return found


def _compare(label: str, left: object, right: object, leniency: Leniency) -> list[Difference]:
    if isinstance(left, Value) and isinstance(right, Value):
        return _compare_values(label, left, right, leniency)
    if isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right):
        pairs = zip(left, right, strict=True)
        return [item for pair in pairs for item in _compare(label, *pair, leniency)]
    if isinstance(left, Storage) and isinstance(right, Storage) and leniency.unaliased:
        return []
    if left == right:
        return []
    return [Difference(label, "observation", str(left), str(right))]


def _compare_values(label: str, left: Value, right: Value, leniency: Leniency) -> list[Difference]:
    found = []
    if len(left.flags) == len(right.flags) == len(_FLAGS):
        for name, expected, actual in zip(_FLAGS, left.flags, right.flags, strict=True):
            if expected != actual and not leniency.ignores(name, label):
                found.append(Difference(label, name, str(expected), str(actual)))
    elif left.flags != right.flags:
        found.append(
            Difference(label, "shape, dtype or requires_grad", str(left.flags), str(right.flags))
        )
    if not any(item.what in ("shape", "dtype", "shape, dtype or requires_grad") for item in found):
        found += _compare_elements(label, left, right)
    for name in ("grad", "tangent"):
        inner = getattr(left, name), getattr(right, name)
        if None not in inner:
            found += _compare_values(f"{label}.{name}", *inner, leniency)
        elif inner != (None, None):
            found.append(Difference(f"{label}.{name}", "presence", str(inner[0]), str(inner[1])))
    return found


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
