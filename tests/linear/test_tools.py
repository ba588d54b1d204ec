"""What PyTorch's tools are told: fake kernels, batching rules, FLOPs."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses import FakeTensorMode

from noalias.linear import tools
from noalias.linear.capture import whole_capture

pytestmark = pytest.mark.usefixtures("core")

INPUTS = {
    "contiguous": lambda: torch.randn(2, 3, 4),
    "permuted": lambda: torch.randn(3, 2, 4).transpose(0, 1),
    "1-D": lambda: torch.randn(4),
    "2-D": lambda: torch.randn(3, 4),
    "2-D, transposed": lambda: torch.randn(4, 3).t(),
    "large and permuted": lambda: torch.randn(2, 256, 64).transpose(0, 1),
}
WEIGHTS = {
    "contiguous": lambda i: torch.randn(70, i),
    "transposed": lambda i: torch.randn(i, 70).t(),
}


# From PyTorch 2.15 on opcheck itself reads .grad of operands that are views of a leaf.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
@pytest.mark.parametrize("input", INPUTS)
@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("requires_grad", [True, False])
@pytest.mark.filterwarnings("ignore:.*does not take boxed arguments")
def test_opcheck_passes(input: str, weight: str, with_bias: bool, requires_grad: bool) -> None:
    # In double: where the input is read as it lies, sums are taken in another order.
    x = INPUTS[input]().double()
    w = WEIGHTS[weight](x.shape[-1]).double()
    b = torch.randn(70).double() if with_bias else None
    x, w = x.requires_grad_(requires_grad), w.requires_grad_(requires_grad)
    torch.library.opcheck(torch.ops.noalias.linear.default, (x, w, b))
    grad = torch.randn(*x.shape[:-1], 70).double().requires_grad_(requires_grad)
    mask = [True, True, with_bias]
    torch.library.opcheck(torch.ops.noalias.linear_backward.default, (x, grad, w, mask))


@pytest.mark.parametrize("input", INPUTS)
@pytest.mark.parametrize("weight", WEIGHTS)
def test_fake_kernels_give_the_shapes_and_strides_of_the_real_ones(input: str, weight: str) -> None:
    x = INPUTS[input]()
    w, b = WEIGHTS[weight](x.shape[-1]), torch.randn(70)
    grad = torch.randn(*x.shape[:-1], 70)
    real = [
        torch.ops.noalias.linear(x, w, b),
        *torch.ops.noalias.linear_backward(x, grad, w, [True, True, True]),
    ]
    with FakeTensorMode() as mode:
        x, w, b, grad = (mode.from_tensor(t) for t in (x, w, b, grad))
        fake = [
            torch.ops.noalias.linear(x, w, b),
            *torch.ops.noalias.linear_backward(x, grad, w, [True, True, True]),
        ]
    assert [(t.shape, t.stride()) for t in fake] == [(t.shape, t.stride()) for t in real]


def test_fake_kernels_raise_what_the_real_ones_raise() -> None:
    with whole_capture(), FakeTensorMode():
        x, w = torch.empty(2, 3, 4), torch.empty(5, 7)
        with pytest.raises(RuntimeError, match=r"\[2, 3, 4\] and weight of shape \[5, 7\]"):
            torch.ops.noalias.linear(x, w)


def test_flop_formulas_count_the_products_that_are_asked_for() -> None:
    x, w, g = torch.Size([2, 3, 4]), torch.Size([5, 4]), torch.Size([2, 3, 5])
    one = 2 * 6 * 4 * 5
    assert tools.linear_flops(x, w) == one
    assert tools.linear_backward_flops(x, g, w, [True, True, True]) == 2 * one
    assert tools.linear_backward_flops(None, g, w, [True, False, True]) == one
    assert tools.linear_backward_flops(x, g, None, [False, True, False]) == one
    assert tools.linear_backward_flops(None, g, None, [False, False, True]) == 0
