"""Tensor subclasses and modes."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map
from torch.utils.flop_counter import FlopCounterMode

import noalias
from noalias.linear.capture import whole_capture
from tests.linear.support import dispatched

pytestmark = pytest.mark.usefixtures("core")

CALLS: list[str] = []


class Dispatching(torch.Tensor):
    """An unknown wrapper that writes down what it is asked for."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Dispatching:
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype,
            requires_grad=inner.requires_grad,
        )  # fmt: skip

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner.detach()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        CALLS.append(str(func))
        unwrap = lambda t: t.inner if isinstance(t, cls) else t  # noqa: E731
        wrap = lambda t: cls(t) if isinstance(t, torch.Tensor) else t  # noqa: E731
        found = func(*tree_map(unwrap, args), **tree_map(unwrap, kwargs or {}))
        return tree_map(wrap, found)


class Plain(Dispatching):
    """The same without ``__torch_function__``."""

    __torch_function__ = torch._C._disabled_torch_function_impl


class Functional(torch.Tensor):
    """An unknown subclass that sees functions."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        CALLS.append(f"{getattr(func, '__name__', func)}{len(args)}{sorted(kwargs or {})}")
        return super().__torch_function__(func, types, args, kwargs)


def calls(run) -> list[str]:
    CALLS.clear()
    run()
    return list(CALLS)


WHICH = [which for which in itertools.product([False, True], repeat=3) if any(which)]


@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("kind", [Dispatching, Plain])
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4)])
def test_a_dispatching_subclass_gets_what_linear_of_stock_gives_it(kind, which, shape) -> None:
    tensors = torch.randn(shape), torch.randn(5, 4), torch.randn(5)

    def run(linear) -> None:
        operands = [
            kind(t.requires_grad_()) if wrapped else t.detach().requires_grad_()
            for t, wrapped in zip(tensors, which, strict=True)
        ]
        linear(*operands).relu_().sum().backward()

    expected = calls(lambda: run(F.linear))
    assert calls(lambda: run(noalias.linear)) == expected
    assert not any("noalias" in name for name in expected)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_a_dispatching_subclass_without_gradients(context) -> None:
    def run(linear) -> None:
        with context():
            linear(Plain(torch.randn(2, 3, 4)), torch.randn(5, 4), torch.randn(5))

    assert calls(lambda: run(noalias.linear)) == calls(lambda: run(F.linear))


@pytest.mark.parametrize("which", WHICH)
def test_a_function_subclass_sees_linear_of_stock(which) -> None:
    operands = [
        t.as_subclass(Functional) if wrapped else t
        for t, wrapped in zip(
            (torch.randn(2, 3, 4), torch.randn(5, 4), torch.randn(5)), which, strict=True
        )
    ]
    assert calls(lambda: noalias.linear(*operands)) == calls(lambda: F.linear(*operands))
    assert type(noalias.linear(*operands)) is Functional


def test_whole_capture_hands_a_subclass_the_operator() -> None:
    x, w = Plain(torch.randn(2, 3, 4, requires_grad=True)), torch.randn(5, 4, requires_grad=True)
    with whole_capture():
        names = calls(lambda: noalias.linear(x, w).sum().backward())
    linears = [name for name in names if "linear" in name]
    assert linears == ["noalias.linear.default", "noalias.linear_backward.default"]
    assert not any("mm" in name for name in names)


def test_under_a_default_device_the_result_is_still_no_view() -> None:
    torch.set_default_device("cpu")
    try:
        y = noalias.linear(
            torch.randn(2, 3, 4), torch.randn(5, 4, requires_grad=True), torch.randn(5)
        )
    finally:
        torch.set_default_device(None)
    assert not y._is_view()
    assert y.grad_fn.name() == "LinearBackward0"


def test_a_function_mode_is_handed_the_operator() -> None:
    seen = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x, w = torch.randn(2, 3, 4), torch.randn(5, 4)
    with Mode():
        y = noalias.linear(x, w)
    assert [str(func) for func in seen] == ["noalias.linear"]
    assert torch.equal(y, F.linear(x, w))


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4)])
@pytest.mark.parametrize("with_bias", [True, False])
def test_flops_are_counted_as_those_of_stock(shape: tuple[int, ...], with_bias: bool) -> None:
    def flops(linear, context=torch.enable_grad) -> int:
        x, w = torch.randn(shape, requires_grad=True), torch.randn(5, 4, requires_grad=True)
        b = torch.randn(5, requires_grad=True) if with_bias else None
        with FlopCounterMode(display=False) as counter, context():
            y = linear(x, w, b)
            if y.requires_grad:
                y.sum().backward()
        return counter.get_total_flops()

    expected = flops(F.linear)
    assert flops(noalias.linear) == expected > 0
    with whole_capture():
        assert flops(noalias.linear) == expected
    assert flops(noalias.linear, torch.no_grad) == flops(F.linear, torch.no_grad)
    assert flops(noalias.linear, torch.inference_mode) == flops(F.linear, torch.inference_mode)


def test_in_inference_mode_a_dispatch_mode_sees_what_it_sees_of_stock() -> None:
    with torch.inference_mode():
        x, w, b = torch.randn(2, 3, 4), torch.randn(5, 4), torch.randn(5)
        with dispatched() as ours:
            noalias.linear(x, w, b)
        with dispatched() as stock:
            F.linear(x, w, b)
    assert ours == stock


def test_parameters_and_buffers_are_plain_tensors() -> None:
    w = torch.nn.Parameter(torch.randn(5, 4))
    b = torch.nn.Buffer(torch.randn(5))
    assert noalias.linear(torch.randn(2, 3, 4), w, b).grad_fn.name() == "LinearBackward0"
