"""Writes behind a view that as_strided cannot say, of a base that begins inside its memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import noalias

Step = Callable[[Tensor], Tensor]

SLICES: dict[str, Step] = {
    "rows": lambda y: y[2:],
    "columns": lambda y: y[:, 1:],
    "transposed rows": lambda y: y[2:5].transpose(0, 1),
    "steps": lambda y: y[1::2, 2:],
}
WRITES: dict[str, Callable[[Tensor], object]] = {
    "slice": lambda z: z[1:].mul_(3 + 1j),
    "copy into a column": lambda z: z[:, 1].copy_(torch.ones_like(z[:, 1])),
    "slice of the conjugate": lambda z: z.conj()[1:].mul_(2j),
    "slice of the imaginary part": lambda z: z.imag[:, 1:].mul_(3.0),
    "imaginary part of the conjugate": lambda z: z.conj().imag[1:].sin_(),
    "real part of a select": lambda z: z.conj()[..., 0].real.exp_(),
    "foreach": lambda z: torch._foreach_mul_([z[1:], z.new_ones(2)], 2j),
}
slices = pytest.mark.parametrize("part", SLICES.values(), ids=SLICES)
writes = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)


def write_behind_complex_view(part: Step, write: Callable[[Tensor], object]) -> Step:
    def step(x: Tensor) -> Tensor:
        y = part(x * 1.5)
        y.mul_(2.0)
        z = torch.view_as_complex(y)
        write(z)
        return torch.view_as_real(z).pow(2).sum() + y.sin().sum()

    return step


def first_and_second_order(step: Step, x: Tensor) -> tuple[Tensor, Tensor]:
    leaf = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(step(leaf), leaf, create_graph=True)
    (second,) = torch.autograd.grad(first.pow(2).sum(), leaf)
    return first.detach(), second


@slices
@writes
def test_gradients_are_stocks(part: Step, write: Callable[[Tensor], object]) -> None:
    step = write_behind_complex_view(part, write)
    x = torch.randn(6, 4, 2, dtype=torch.float64)
    expected = first_and_second_order(step, x)

    with noalias.enabled():
        found = first_and_second_order(step, x)
        assert noalias.status().cured > 0

    for ours, stocks in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, stocks, rtol=1e-12, atol=1e-12)


@slices
@pytest.mark.parametrize("name", [name for name in WRITES if name != "foreach"])
def test_gradients_are_stocks_under_func_grad(part: Step, name: str) -> None:
    """Without foreach: stock itself loses its write to a complex view under transforms."""
    step = write_behind_complex_view(part, WRITES[name])
    x = torch.randn(6, 4, 2, dtype=torch.float64)
    expected = torch.func.grad(step)(x)

    with noalias.enabled():
        found = torch.func.grad(step)(x)

    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_foreach_over_two_views_of_one_base_finds_both_slices() -> None:
    """Compared with two calls: stock forgets the first of two views that one call writes to."""

    def step(x: Tensor, foreach: bool) -> Tensor:
        y = (x * 1.5)[2:]
        y.mul_(2.0)
        z = torch.view_as_complex(y)
        if foreach:
            torch._foreach_mul_([z[:1].real, z[1:]], 2.0)
        else:
            z[:1].real.mul_(2.0)
            z[1:].mul_(2.0)
        return torch.view_as_real(z).pow(2).sum()

    x = torch.randn(6, 2, dtype=torch.float64)
    expected = first_and_second_order(lambda x: step(x, foreach=False), x)
    with noalias.enabled():
        found = first_and_second_order(lambda x: step(x, foreach=True), x)

    for ours, stocks in zip(found, expected, strict=True):
        assert torch.equal(ours, stocks)
