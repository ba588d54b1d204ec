"""Inputs whose leading dimensions are permuted or cut."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile

import noalias
from noalias import graph
from tests.linear.support import assert_close, leaves, values_and_gradients

pytestmark = pytest.mark.usefixtures("core")

# name -> an input [*, 64] of matrices with 128 rows or more: read as it lies for 128 features.
INPUTS = {
    "transposed": lambda: torch.randn(8, 256, 64).transpose(0, 1),
    "transposed the other way": lambda: torch.randn(256, 8, 64).transpose(0, 1),
    "cut": lambda: torch.randn(8, 257, 64)[:, :-1],
    "features cut": lambda: torch.randn(8, 256, 80)[..., :64].transpose(0, 1),
    "4-D, swapped halves": lambda: torch.randn(8, 4, 64, 64).permute(1, 2, 0, 3),
    "with dimensions of size 1": lambda: torch.randn(8, 1, 256, 64).permute(2, 1, 0, 3),
}


def copies(run) -> int:
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as recorded:
        run()
    return sum(event.count for event in recorded.key_averages() if event.key == "aten::copy_")


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_values_and_gradients_are_close_to_those_of_stock(name, with_bias, dtype) -> None:
    x = INPUTS[name]().to(torch.float64)
    w, b = torch.randn(128, 64), torch.randn(128) if with_bias else None
    if dtype is not torch.float32:
        w, b = w.to(dtype), None if b is None else b.to(dtype)
    x = x.to(dtype)
    actual = values_and_gradients(noalias.linear, x, w, b)
    expected = values_and_gradients(F.linear, x, w, b)
    for left, right in zip(actual, expected, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", INPUTS)
def test_the_input_is_not_copied_and_the_output_is_contiguous(name) -> None:
    x, w = leaves(INPUTS[name](), torch.randn(128, 64))
    with torch.no_grad():
        assert copies(lambda: noalias.linear(x, w)) == 0
        assert copies(lambda: noalias.linear(x.contiguous(), w)) == copies(x.contiguous)
    y = noalias.linear(x, w)
    assert y.is_contiguous()
    assert graph.names(y) == {"LinearBackward0": 1, "AccumulateGrad": 2}
    grad = torch.randn_like(y)
    assert copies(lambda: torch.autograd.grad(y, [w], grad)) == 0


def test_small_matrices_are_flattened() -> None:
    x, w = torch.randn(8, 16, 64).transpose(0, 1), torch.randn(128, 64)
    assert copies(lambda: noalias.linear(x, w)) == 1


def test_weight_gradient_copies_the_smaller_side() -> None:
    x, w = leaves(torch.randn(8, 16, 64).transpose(0, 1), torch.randn(4, 64))
    y = noalias.linear(x, w)
    grad = torch.randn_like(y)
    with profile(
        activities=[ProfilerActivity.CPU], record_shapes=True, acc_events=True
    ) as recorded:
        (found,) = torch.autograd.grad(y, [w], grad)
    shapes = [e.input_shapes[0] for e in recorded.events() if e.name == "aten::copy_"]
    assert [torch.Size(shape).numel() for shape in shapes] == [16 * 8 * 4]
    (expected,) = torch.autograd.grad(F.linear(x, w), [w], grad)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    "input",
    [
        torch.randn(8, 1, 64).expand(8, 256, 64).transpose(0, 1),
        torch.randn(64, 256, 8).permute(2, 1, 0),
        torch.randn(4, 8, 256, 64).permute(2, 1, 0, 3),
        torch.randn(0, 256, 64).transpose(0, 1),
        torch.randn(8, 256, 64).transpose(0, 1).bfloat16(),
    ],
    ids=["expanded", "features apart", "three dimensions", "empty", "reduced precision"],
)
def test_what_no_product_can_read_is_flattened(input) -> None:
    w = torch.randn(128, 64, dtype=input.dtype)
    x = input.detach()
    actual = values_and_gradients(noalias.linear, x, w)
    expected = values_and_gradients(F.linear, x, w)
    for left, right in zip(actual, expected, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-2, atol=1e-1)


def test_double_backward_and_forward_mode_of_a_permuted_input() -> None:
    x, w = torch.randn(2, 256, 64).transpose(0, 1), torch.randn(128, 64)

    def second(linear):
        a, b = leaves(x, w)
        grads = torch.autograd.grad(linear(a, b).sin().sum(), [a, b], create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in grads), [a, b])

    for left, right in zip(second(noalias.linear), second(F.linear), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-3, atol=1e-2)
    tangents = x.cos(), w.cos()
    assert_close(
        torch.func.jvp(
            noalias.linear, (x.double(), w.double()), tuple(t.double() for t in tangents)
        ),
        torch.func.jvp(F.linear, (x.double(), w.double()), tuple(t.double() for t in tangents)),
    )
