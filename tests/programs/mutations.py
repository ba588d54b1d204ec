"""Broken cures: each makes PyTorch wrong in one way a cure could, to show that the programs notice.

They patch Python methods only, so they reach what programs call by name; that is enough to test the
tester.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

Cure = Callable[[], contextlib.AbstractContextManager[object]]


@contextlib.contextmanager
def unproven_view() -> Iterator[None]:
    """`view` never tells autograd that it is one: right where the base is hidden, wrong everywhere
    else.
    """
    original, unsafe = Tensor.view, torch.ops.aten._unsafe_view.default

    def view(x: Tensor, *shape: Any) -> Tensor:
        if isinstance(shape[0], torch.dtype):
            return original(x, *shape)
        sizes = shape[0] if isinstance(shape[0], tuple | list) else shape
        return unsafe(x, list(sizes))

    with mock.patch.object(Tensor, "view", view):
        yield


@contextlib.contextmanager
def unshared_version() -> Iterator[None]:
    """An in-place multiplication that leaves the version: overwriting a saved value is not seen."""
    original = Tensor.mul_

    def mul_(x: Tensor, other: Any) -> Tensor:
        with torch.autograd._unsafe_preserve_version_counter(x):
            return original(x, other)

    with mock.patch.object(Tensor, "mul_", mul_):
        yield


@contextlib.contextmanager
def dropped_hooks() -> Iterator[None]:
    """Hooks on views never fire."""
    original = Tensor.register_hook

    def register_hook(x: Tensor, hook: Any) -> Any:
        return None if x._is_view() else original(x, hook)

    with mock.patch.object(Tensor, "register_hook", register_hook):
        yield


@contextlib.contextmanager
def doubled_hooks() -> Iterator[None]:
    """Every hook fires twice."""
    original = Tensor.register_hook

    def register_hook(x: Tensor, hook: Any) -> Any:
        original(x, hook)
        return original(x, hook)

    with mock.patch.object(Tensor, "register_hook", register_hook):
        yield


class _GreedyTanh(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.tanh(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        if torch.is_grad_enabled() or not grad.is_contiguous():
            return grad * (1 - y * y)
        return grad.mul_(1 - y * y)


@contextlib.contextmanager
def unowned_gradient() -> Iterator[None]:
    """The backward of `tanh` overwrites its gradient without asking who else holds it."""
    with mock.patch.object(Tensor, "tanh", lambda x: _GreedyTanh.apply(x)):
        yield


_set_item = torch._C.TensorBase.__setitem__


class _GreedySlice(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Any, value: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        ctx.index, ctx.shape = index, value.shape
        with torch.autograd._unsafe_preserve_version_counter(x):
            _set_item(x, index, value)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        part = grad[ctx.index].clone()
        with torch.no_grad():
            grad[ctx.index].zero_()
        return grad, None, part.sum_to_size(ctx.shape)


@contextlib.contextmanager
def unowned_slice_update() -> Iterator[None]:
    """`x[i] = v` zeroes the part in the incoming gradient without asking who else holds it."""

    def setitem(x: Tensor, index: Any, value: Any) -> None:
        differentiable = isinstance(value, Tensor) and (x.requires_grad or value.requires_grad)
        if not differentiable or x._is_view() or x.is_leaf or not torch.is_grad_enabled():
            _set_item(x, index, value)
        else:
            _GreedySlice.apply(x, index, value)

    with mock.patch.object(Tensor, "__setitem__", setitem):
        yield


@contextlib.contextmanager
def copied_view() -> Iterator[None]:
    """`transpose` gives a copy: writes to it do not reach the base."""
    original = Tensor.transpose
    with mock.patch.object(Tensor, "transpose", lambda x, *dims: original(x, *dims).clone()):
        yield


@contextlib.contextmanager
def forgiving_in_place() -> Iterator[None]:
    """`F.relu(inplace=True)` on a multi-output view is done out of place instead of raising,
    whoever sees the base.
    """
    original = F.relu

    def relu(x: Tensor, inplace: bool = False) -> Tensor:
        try:
            return original(x, inplace)
        except RuntimeError:
            return original(x)

    with mock.patch.object(F, "relu", relu):
        yield


MUTATIONS: dict[str, Cure] = {
    mutation.__name__: mutation
    for mutation in (
        unproven_view,
        unshared_version,
        dropped_hooks,
        doubled_hooks,
        unowned_gradient,
        unowned_slice_update,
        copied_view,
        forgiving_in_place,
    )
}
