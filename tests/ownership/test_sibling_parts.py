"""In-place on one part of split, chunk and unbind: legal where siblings are all there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

import noalias
from noalias.ownership.cures import reset


@pytest.fixture(autouse=True)
def hidden_base() -> Iterator[None]:
    reset()
    with noalias.enabled("hidden_base"):
        yield


def gradient(step: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_()
    step(leaf).backward()
    assert leaf.grad is not None
    return leaf.grad


Parts = Callable[[Tensor], tuple[Tensor, ...]]
SPLITS: dict[str, Parts] = {
    "chunk": lambda y: y.chunk(2, -1),
    "split": lambda y: y.split(3, -1),
    "split_with_sizes": lambda y: y.split([2, 4], -1),
    "unbind": lambda y: y.unbind(0),
    "through a transpose": lambda y: y.t().chunk(2),
}


@pytest.mark.parametrize("parts", SPLITS)
def test_writing_to_one_part_is_like_writing_to_an_ordinary_tensor(parts: str) -> None:
    def in_place(x: Tensor) -> Tensor:
        first, second = SPLITS[parts](x * 2)
        used = (second * second).sum()
        first.relu_()
        return used + first.square().sum()

    def out_of_place(x: Tensor) -> Tensor:
        first, second = SPLITS[parts](x * 2)
        used = (second * second).sum()
        first = first.relu()
        return used + first.square().sum()

    x = torch.randn(2, 6)
    assert torch.equal(gradient(in_place, x), gradient(out_of_place, x))
    assert noalias.status().cured == 1


def test_every_part_may_be_written_to_in_turn() -> None:
    def in_place(x: Tensor) -> Tensor:
        parts = (x * 2).unbind(0)
        for i, part in enumerate(parts):
            part.mul_(i + 1)
        return torch.stack([part.square().sum() for part in parts]).sum()

    def out_of_place(x: Tensor) -> Tensor:
        parts = [part * (i + 1) for i, part in enumerate((x * 2).unbind(0))]
        return torch.stack([part.square().sum() for part in parts]).sum()

    x = torch.randn(4, 3)
    assert torch.equal(gradient(in_place, x), gradient(out_of_place, x))
    assert noalias.status().cured == 4


def test_part_saved_for_backward_before_its_own_write_still_raises() -> None:
    x = torch.randn(2, 6, requires_grad=True)
    first, second = (x * 2).chunk(2, -1)
    square = first * first
    first.relu_()

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (square + second).sum().backward()


def test_observed_base_still_raises() -> None:
    x = torch.randn(2, 6, requires_grad=True)
    base = x * 2
    first, _ = base.chunk(2, -1)

    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        first.relu_()
    assert base.shape == (2, 6)


def test_further_view_of_a_part_is_an_observer() -> None:
    x = torch.randn(2, 6, requires_grad=True)
    first, second = (x * 2).chunk(2, -1)
    row = second[0]

    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        first.relu_()
    assert row.shape == (3,)


def test_parts_that_share_memory_still_raise() -> None:
    x = torch.randn(1, 3, requires_grad=True)
    parts = (x * 2).expand(2, 3).unbind(0)

    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        parts[0].mul_(2)


def test_parts_of_two_calls_still_raise() -> None:
    x = torch.randn(2, 6, requires_grad=True)
    base = x * 2
    halves, thirds = base.chunk(2, -1), base.chunk(3, -1)
    del base

    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        halves[0].mul_(2)
    assert len(thirds) == 3


def test_result_saved_by_the_producer_still_raises() -> None:
    x = torch.rand(2, 6, requires_grad=True)
    first, _ = x.exp().chunk(2, -1)

    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        first.mul_(2)


def test_families_that_died_are_swept_and_addresses_reused() -> None:
    x = torch.randn(2, 6, requires_grad=True)
    for _ in range(500):
        first, second = (x * 2).chunk(2, -1)
        first.mul_(2)
        (first.sum() + second.sum()).backward()

    assert noalias.status().cured == 500


def test_a_sibling_whose_data_was_replaced_hides_no_observer() -> None:
    """Its memory is another: what else holds the base's memory is no sibling."""
    x, w = torch.randn(2, 6, requires_grad=True), torch.randn(2, 3, requires_grad=True)
    with noalias.enabled("hidden_base"):
        left, right = (x * 2).chunk(2, -1)
        seen = right.detach()
        product = w * seen  # which saves it
        left.data = torch.zeros(2, 3)
        with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
            right.mul_(2)
    product.sum().backward()
    assert w.grad is not None
    assert torch.equal(w.grad, seen)


@pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")  # PyTorch's own
def test_a_part_with_a_forward_mode_tangent_is_refused_as_in_stock() -> None:
    """Its tangent is a part of the base's tangent, and would be refused at the next write."""
    x = torch.randn(2, requires_grad=True)
    with noalias.enabled("hidden_base"), forward_ad.dual_level():
        part = (forward_ad.make_dual(x, torch.ones(2)) + 1).unbind()[-1]
        with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
            part.mul_(2)


@pytest.mark.parametrize("saved", [False, True])
def test_sibling_stays_readable_after_a_foreach_that_raised_half_way(saved: bool) -> None:
    x = torch.ones(2, 4, requires_grad=True)
    first, second = (x * 2).unbind(0)
    loss = second.sin().sum() if saved else None
    factor = torch.ones(4, requires_grad=True)
    with pytest.raises(RuntimeError, match="size of tensor"):
        torch._foreach_mul_([first, torch.ones(2)], [factor * 3, torch.ones(3)])
    loss = second.sin().sum() if loss is None else loss
    loss.backward()

    assert first.tolist() == [6.0] * 4
    assert x.grad is not None
    assert torch.equal(x.grad[1], torch.full((4,), 2.0).cos() * 2)
