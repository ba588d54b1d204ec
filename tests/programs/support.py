"""What programs may call besides PyTorch: custom functions, saved-tensor hooks, threads.

Everything here is plain user code; none of it keeps a tensor alive.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.autograd.forward_ad as fwAD
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor
from torch.autograd import Function


class ReturnsView(Function):
    """A custom function whose result is a view of its input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


class ReturnsHiddenView(Function):
    """A custom function whose result is a view of a temporary of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.shape = x.shape
        return (x * 2).flatten()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.reshape(ctx.shape) * 2


class ReturnsInput(Function):
    """A custom function that returns its input itself."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


class SavesOutput(Function):
    """``exp`` that saves its output."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return grad * y


class SavesBase(Function):
    """``exp`` that saves the base of the view it returns."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.exp()
        ctx.save_for_backward(y)
        return y.flatten()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return grad.reshape(y.shape) * y


class DoublesInPlace(Function):
    """A custom in-place function."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 2


def pack_same(x: Tensor) -> Tensor:
    """Saves the tensor itself: one more owner."""
    return x


def pack_clone(x: Tensor) -> Tensor:
    """Saves a copy: no owner, and no version to check."""
    return x.clone()


def unpack_same(x: Tensor) -> Tensor:
    return x


def pull_back_ones(value: Tensor, pull: Callable[[Tensor], tuple[Tensor]]) -> tuple[Tensor, Tensor]:
    """Value and vector-Jacobian product with ones, of what `torch.func.vjp` returns."""
    (gradient,) = pull(torch.ones_like(value))
    return value, gradient


def in_thread(work: Callable[[], object]) -> Any:
    """Runs ``work`` in another thread to its end; its result and its error are the caller's."""
    outcome: list[object] = []
    errors: list[BaseException] = []

    def target() -> None:
        try:
            outcome.append(work())
        except Exception as error:
            # The traceback holds the frames, and with them every tensor they name.
            errors.append(error.with_traceback(None))

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    if errors:
        raise errors.pop()
    return outcome.pop()


# Filled with the places at which there is a view during `execute.view_places`.
VIEW_PLACES: set[tuple[int, int]] | None = None


class _WithoutAlias(Function):
    """The identity into a copy of the whole storage, same offset and strides."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        storage = x.untyped_storage().clone()
        return x.new_empty(0).set_(storage, x.storage_offset(), x.size(), x.stride())

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> Tensor | None:
        return grad

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor | None) -> Tensor | None:
        return None if tangent is None else tangent.clone()


class _SameMemory(_WithoutAlias):
    """The identity into a storage of its own over the same memory, as dlpack makes one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        whole = torch.from_dlpack(x.detach().new_empty(0).set_(x.untyped_storage()))
        storage = whole.untyped_storage()
        return x.new_empty(0).set_(storage, x.storage_offset(), x.size(), x.stride())


def unaliased(
    x: object,
    place: tuple[int, int] = (-1, 0),
    recorded: bool = False,
    same_memory: bool = False,
) -> object:
    """A view's values, geometry and gradient in a storage of their own: as if it were no view.

    The version counter goes on from the same number, but is shared with nobody. What is no view
    stays as it is; a wrapper of `torch.func` does not say whether it holds one. ``recorded``:
    nothing is done under `no_grad`. ``same_memory``: PyTorch does not know that it is shared.
    """
    if not isinstance(x, Tensor) or (recorded and not torch.is_grad_enabled()):
        return x
    transformed = torch._C._functorch.peek_interpreter_stack() is not None
    if not x._is_view() and not transformed:
        return x
    if VIEW_PLACES is not None:
        VIEW_PLACES.add(place)
    if transformed:
        copy = x.clone()
        if copy.stride() != x.stride():
            copy = x.new_empty_strided(x.size(), x.stride()).copy_(x)
    elif not (x.is_conj() or x.is_neg()):
        copy = (_SameMemory if same_memory else _WithoutAlias).apply(x)
    elif torch._debug_has_internal_overlap(x) == 0:
        copy = x.new_empty_strided(x.size(), x.stride()).copy_(x)
    else:
        copy = x.clone()
    if not x.is_inference():
        torch._C._autograd._unsafe_set_version_counter((copy,), (x._version,))
    if x.retains_grad and not copy.is_leaf:
        copy.retain_grad()
    return copy


def unaliased_among(
    tensors: tuple[object, ...], site: int, parts: tuple[int, ...], **options: bool
) -> tuple[object, ...]:
    """`unaliased` of some tensors; what is one tensor under two names stays one."""
    copies = {
        id(tensors[part]): unaliased(tensors[part], (site, part), **options) for part in parts
    }
    return tuple(copies.get(id(tensor), tensor) for tensor in tensors)


def put_back(before: tuple[object, ...], now: tuple[object, ...]) -> tuple[object, ...]:
    """The tensors that were replaced for a call that raised, with what it has written by then."""
    for old, new in zip(before, now, strict=True):
        if old is not new and isinstance(old, Tensor) and isinstance(new, Tensor):
            for _ in range(new._version - old._version):
                old.detach().copy_(new.detach())
    return before


def own_tangent(x: Tensor, place: tuple[int, int]) -> Tensor:
    """The tensor with a tangent in a storage of its own: `jacfwd` hands out views of one tensor."""
    primal, tangent = fwAD.unpack_dual(x)
    if tangent is None:
        return x
    if VIEW_PLACES is not None:
        VIEW_PLACES.add(place)
    return fwAD.make_dual(primal, tangent.clone())


class ExactTangents:
    """``F`` with a linear that takes no operand's missing tangent for one of zeros.

    PyTorch's is made of products whose formulas do, so that its tangent has a history where it
    depends on nothing.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(F, name)

    def linear(self, *operands: Tensor) -> Tensor:
        if fwAD._current_level < 0:
            return F.linear(*operands)
        duals = [fwAD.unpack_dual(operand) for operand in operands]
        x, weight, *bias = [dual.primal for dual in duals]
        x_tangent, weight_tangent, *bias_tangent = [dual.tangent for dual in duals]
        result = F.linear(x, weight, *bias)
        terms = []
        if x_tangent is not None:
            terms.append(F.linear(x_tangent, weight))
        if weight_tangent is not None:
            terms.append(F.linear(x, weight_tangent))
        if bias_tangent and bias_tangent[0] is not None:
            terms.append(bias_tangent[0].expand_as(result))
        return fwAD.make_dual(result, sum(terms[1:], terms[0])) if terms else result


class Unaliased(torch.nn.Module):
    """`unaliased` between two modules."""

    def __init__(self, place: tuple[int, int] = (-1, 0), **options: bool) -> None:
        super().__init__()
        self._place, self._options = place, options

    def forward(self, x: Tensor) -> Tensor:
        copy = unaliased(x, self._place, **self._options)
        assert isinstance(copy, Tensor)
        return copy


# What a program may name.
GLOBALS: dict[str, object] = {
    "torch": torch,
    "nn": torch.nn,
    "F": F,
    "fwAD": fwAD,
    "weakref": weakref,
    **{
        value.__name__: value
        for value in (
            ReturnsView,
            ReturnsHiddenView,
            ReturnsInput,
            SavesOutput,
            SavesBase,
            DoublesInPlace,
            pack_same,
            pack_clone,
            unpack_same,
            pull_back_ones,
            in_thread,
            unaliased,
            unaliased_among,
            put_back,
            own_tangent,
            Unaliased,
        )
    },
}
