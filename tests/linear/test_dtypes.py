"""Dtypes, autocast, and the precision setting of float32 products."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import noalias
from tests.linear.support import Linear

DTYPES = [
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
    torch.int32,
    torch.int64,
]


def operands(dtype: torch.dtype, device: str = "cpu") -> list[torch.Tensor]:
    shapes = (2, 3, 4), (5, 4), (5,)
    return [(torch.randn(*shape, device=device) * 4).to(dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtype_and_values_are_those_of_stock(linear: Linear, dtype: torch.dtype) -> None:
    x, w, b = operands(dtype)
    assert torch.equal(linear(x, w, b), F.linear(x, w, b))
    assert linear(x, w, b).dtype is dtype


@pytest.mark.parametrize("dtype", [torch.bool, torch.complex32])
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_dtypes_without_a_product_raise_what_stock_raises(linear: Linear, dtype) -> None:
    x, w, b = operands(dtype)
    with pytest.raises(NotImplementedError) as stock:
        F.linear(x, w, b)
    with pytest.raises(NotImplementedError) as ours:
        linear(x, w, b)
    assert str(ours.value) == str(stock.value)


@pytest.mark.parametrize("cast", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dtype", DTYPES)
def test_autocast_gives_the_dtypes_of_stock(linear: Linear, dtype, cast) -> None:
    x, w, b = operands(dtype)
    with torch.autocast("cpu", dtype=cast):
        assert linear(x, w, b).dtype is F.linear(x, w, b).dtype


def test_autocast_joins_mixed_dtypes(linear: Linear) -> None:
    x, w, b = operands(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = linear(x.bfloat16(), w, b)
        assert torch.equal(found, F.linear(x.bfloat16(), w, b))
        assert found.dtype is torch.bfloat16


def test_gradients_under_autocast_have_the_dtypes_and_bits_of_stock(linear: Linear) -> None:
    def gradients(f: Linear) -> tuple[torch.Tensor, ...]:
        leaves = [t.requires_grad_() for t in operands(torch.float32)]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = f(*leaves)
        return torch.autograd.grad(y.float().square().sum(), leaves)

    torch.manual_seed(1)
    actual = gradients(linear)
    torch.manual_seed(1)
    for left, right in zip(actual, gradients(F.linear), strict=True):
        assert left.dtype is torch.float32
        assert torch.equal(left, right)


def test_autocast_casts_a_weight_once_for_all_its_calls(core) -> None:
    x, w, b = operands(torch.float32)
    w.requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        first, second = noalias.linear(x, w, b).grad_fn, noalias.linear(x, w, b).grad_fn
    assert first.next_functions[1][0] is second.next_functions[1][0]


@pytest.mark.parametrize("device", ["cuda", "mps", "xpu"])
def test_every_autocast_key_of_stock_has_a_kernel(core, device: str) -> None:
    key = {"cuda": "AutocastCUDA", "mps": "AutocastMPS", "xpu": "AutocastXPU"}[device]
    for name in ("aten::linear", "noalias::linear"):
        assert torch._C._dispatch_has_kernel_for_dispatch_key(name, key)


def test_float32_matmul_precision_reaches_the_product(core) -> None:
    if not torch.backends.mkldnn.is_available() or not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("no bfloat16 units: the setting changes nothing on this CPU")
    x, w = torch.randn(64, 512, 256), torch.randn(512, 256)
    exact = noalias.linear(x, w)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        rough, stock = noalias.linear(x, w), F.linear(x, w)
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(rough, stock)
    assert torch.equal(exact, F.linear(x, w))
    assert torch.equal(exact, rough) == torch.equal(exact, stock)


def test_a_lazily_conjugated_operand_is_not_copied(core) -> None:
    x, w, b = operands(torch.complex64)
    for left, right in ((x.conj(), w), (x, w.conj()), (x.conj(), w.conj())):
        torch.testing.assert_close(noalias.linear(left, right, b), F.linear(left, right, b))
        with torch.inference_mode():
            torch.testing.assert_close(noalias.linear(left, right, b), F.linear(left, right, b))


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_without_gradients_nothing_is_recorded(linear: Linear, context) -> None:
    x, w, b = (t.requires_grad_() for t in operands(torch.float32))
    with context():
        y = linear(x, w, b)
    assert y.grad_fn is None
    assert not y.requires_grad
    assert y.is_inference() is (context is torch.inference_mode)
