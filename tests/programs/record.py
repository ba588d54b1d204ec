"""What a run of a program shows to its user.

Recording keeps copies, never tensors. Everything a user can see of a tensor is recorded, except
``grad_fn``, ``_base`` and ``_is_view()``: those are what the cures change, and reading ``grad_fn``
would itself change a stale view.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.autograd.forward_ad as fwAD
from torch import Tensor

Entries = list[tuple[str, object]]

SOURCE = "<program>"
"""What a program's source is called in tracebacks."""

FLAGS = ("shape", "stride", "offset", "dtype", "requires_grad", "leaf", "version")
GRADIENT_FLAGS = ("shape", "dtype", "requires_grad")


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor at one moment: ``flags`` in the order of `FLAGS` (of `GRADIENT_FLAGS` for a gradient
    that the engine hands out), the elements' bits, gradient and tangent.
    """

    flags: tuple[object, ...]
    elements: np.ndarray[Any, Any]
    grad: Value | None = None
    tangent: Value | None = None


@dataclass(frozen=True)
class Failure:
    """A raised error with everything taken out of its message that names a node or an address."""

    kind: str
    message: str
    line: int = field(default=0, compare=False)
    """Of the program's source, where it has one."""


@dataclass
class Record:
    """The ``record`` that programs call. ``entries`` holds (label, observation) in the order of
    events.
    """

    entries: list[tuple[str, object]] = field(default_factory=list)
    _kept: list[tuple[str, Tensor | None]] = field(default_factory=list)

    def __call__(self, label: str, value: object) -> None:
        try:
            self.entries.append((label, observe(value)))
        except RuntimeError as error:
            # Even `is_leaf` raises on a view that another view's in-place operator has spoilt.
            self.error(label, error)

    def error(self, label: str, error: BaseException) -> None:
        failure = Failure(type(error).__name__, normalise(str(error)), _line(error))
        self.entries.append((label, failure))

    def refuse(self, label: str, kind: str, message: str, times: int) -> bool:
        """What a reference run records in the place of a statement it leaves out ``times`` times.

        False from then on.
        """
        failure = label, Failure(kind, message)
        refused = self.entries.count(failure) < times
        if refused:
            self.entries.append(failure)
        return refused

    def hook(
        self, label: str, scale: float | None = None
    ) -> Callable[[Tensor | None], Tensor | None]:
        def call(grad: Tensor | None) -> Tensor | None:
            self.entries.append((f"hook {label}", _gradient(grad)))
            return None if scale is None or grad is None else grad * scale

        return call

    def keep(
        self, label: str, unaliased: Callable[[Tensor | None], Tensor | None] | None = None
    ) -> Callable[[Tensor | None], Tensor | None]:
        """A hook that holds the gradient itself until the end: whoever overwrites it is seen.

        In a reference run the gradient goes on ``unaliased``, as what the hook holds.
        """

        def call(grad: Tensor | None) -> Tensor | None:
            held = unaliased(grad) if unaliased else grad
            self._kept.append((f"kept {label}", held))
            return held if unaliased else None

        return call

    def accumulated(self, label: str) -> Callable[[Tensor], None]:
        def call(leaf: Tensor) -> None:
            self.entries.append((f"accumulated {label}", _gradient(leaf.grad)))

        return call

    def node_hook(self, label: str) -> Callable[..., None]:
        """For `Node.register_prehook` and `register_hook`: the last argument is what flows into the
        node.
        """

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


def _line(error: BaseException) -> int:
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno or 0 for frame in reversed(frames) if frame.filename == SOURCE), 0)


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
    """The bytes of a storage; an unaliased tensor has another one, so only exact comparisons look
    at it.
    """

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
    """Values and shape only: how the engine laid a gradient out and who wrote it is PyTorch's own
    business.
    """
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
    # A node's name without "Backward0", of what a module's hooks see.
    (re.compile(r"^Output (\d+) of [\w*]+( is a view and its base or)"), r"Output \1 of *\2"),
    # What was saved has other shapes where linear is one operator.
    (re.compile(r"\[((torch|CPU|CUDA)\w*\.?\w*Tensor|\w+Type) \[[\d, ]*\]\]"), "[a tensor]"),
    (re.compile(r"(, which is output \d+ of [\w*]+)?,? is at version"), " is at version"),
]
_VERSIONS = re.compile(r"is at version (\d+); expected version (\d+) instead")
_MODIFIED = re.compile(
    "modified by an inplace operation: .* at version"
    "|its base or another view of its base has been modified inplace"
)
_VIEW = re.compile(r"^Output (\d+) of [\w*]+ is a view and is being modified")


def normalise(message: str) -> str:
    for pattern, replacement in _NORMAL:
        message = pattern.sub(replacement, message)
    return message


def without_numbers_and_levels(message: str) -> str:
    """The message with less in it, for errors that are known to be raised by one statement.

    Which version a write to a gradient begins with depends on who in the engine wrote it before.
    What is told first of several saved values that were modified depends on the order in which a
    node looks at them. And of a view inside several transforms any level may be the one that
    refuses a write, and each has a node of its own.
    """
    if _MODIFIED.search(message):
        return "modified"
    message = _VERSIONS.sub(lambda found: f"is {int(found[1]) - int(found[2])} ahead", message)
    return _VIEW.sub(r"Output \1 of * is a view and is being modified", message)
