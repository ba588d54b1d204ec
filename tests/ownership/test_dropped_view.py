"""A call that raises leaves a view: the way back from Note [Dropping the view relationship]."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

import noalias
from tests.programs.support import DoublesInPlace


@pytest.fixture(autouse=True)
def hidden_base() -> Iterator[None]:
    with noalias.enabled("hidden_base"):
        yield


def leaf() -> Tensor:
    return torch.arange(1.0, 9).view(2, 4).requires_grad_()


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "whole": lambda x: (x * 2).view(-1),
    "slice": lambda x: (x * 2)[:, 1:],
    "transpose": lambda x: (x * 2).t(),
    "part": lambda x: (x * 2).unbind(0)[1],
    "without grad mode": lambda x: torch.no_grad()(lambda: torch.ones(4).view(2, 2))(),
}


def fail(view: Tensor) -> None:
    """Drops the base, then raises for the operand's shape."""
    before = noalias.status().cured
    with pytest.raises(RuntimeError, match="must match the size"):
        view.mul_(torch.ones(3, 5, 7, 9, requires_grad=True))
    assert noalias.status().cured == before + 1


@pytest.mark.parametrize("name", VIEWS)
def test_view_is_one_again_and_the_next_write_is_cured(name: str) -> None:
    x = leaf()
    view = VIEWS[name](x)
    version, node = view._version, view.grad_fn
    fail(view)
    assert view._is_view()
    assert view.grad_fn is node
    assert view._version == version
    weight = torch.tensor(3.0, requires_grad=True)
    view.mul_(weight)
    assert not view._is_view()
    with noalias.enabled():
        view.square().sum().backward()
    expected = VIEWS[name](x.detach().requires_grad_()).detach().square().sum() * 2 * 3
    assert torch.equal(weight.grad, expected)


def test_what_stock_refuses_is_refused_after_the_failed_call_as_well() -> None:
    part = (leaf() * 2).unbind(0)[1]
    part.retain_grad()
    fail(part)
    with pytest.raises(RuntimeError, match="Output 1 of Unbind"):
        DoublesInPlace.apply(part)


def test_hooks_name_tangent_and_retained_gradient_come_back() -> None:
    x = leaf()
    part = (x * 2).unbind(0)[1]
    part.retain_grad()
    seen: list[Tensor] = []
    part.register_hook(seen.append)
    fail(part)
    (part * 5).sum().backward()
    assert [grad.tolist() for grad in seen] == [[5.0] * 4]
    assert part.grad is not None
    assert part.grad.tolist() == [5.0] * 4
    assert x.grad is not None
    assert x.grad.tolist() == [[0.0] * 4, [10.0] * 4]


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_tangent_comes_back() -> None:
    with forward_ad.dual_level():
        x = forward_ad.make_dual(leaf(), torch.ones(2, 4))
        view = (x * 2).view(-1)
        fail(view)
        tangent = forward_ad.unpack_dual(view).tangent
        assert tangent is not None
        assert tangent.tolist() == [2.0] * 8


def test_part_counts_versions_with_its_siblings_again() -> None:
    first, second = (leaf() * 2).unbind(0)
    fail(second)
    second.detach().add_(1)
    assert (first._version, second._version) == (1, 1)


def test_siblings_may_be_written_to_after_the_failed_call() -> None:
    first, second = (leaf() * 2).unbind(0)
    fail(second)
    first.mul_(torch.tensor(3.0, requires_grad=True))
    assert (first._is_view(), second._is_view()) == (False, True)
    second.mul_(torch.tensor(3.0, requires_grad=True))
    assert not second._is_view()


def test_foreach_that_raises_gives_back_all_that_it_dropped() -> None:
    first, second = (leaf() * 2).unbind(0)
    other = torch.ones(4, requires_grad=True)
    before = noalias.status().cured
    with pytest.raises(RuntimeError, match="must match the size"):
        torch._foreach_mul_([first, second], [other, torch.ones(3)])
    assert noalias.status().cured == before + 2
    assert (first._is_view(), second._is_view()) == (True, True)
    # The first one was written to, as in stock, and its memory has one counter again.
    assert first.tolist() == [2.0, 4.0, 6.0, 8.0]
    assert (first._version, second._version) == (1, 1)
    # So their history is out of date, and they are refused as in stock.
    for part in (first, second):
        with pytest.raises(RuntimeError, match="of Unbind"):
            part.mul_(other)


def test_base_is_kept_alive_no_longer_than_by_stock() -> None:

    class Mark:
        """What the node of the base holds."""

    base = leaf() * 2
    assert base.grad_fn is not None
    mark = Mark()
    base.grad_fn.metadata["mark"] = mark
    gone = weakref.ref(mark)
    view = base.view(-1)
    del base, mark
    fail(view)
    del view
    gc.collect()
    assert gone() is None


def test_disable_after_the_failed_call_is_stock() -> None:
    x = leaf()
    base = x * 2
    view = base.view(-1)
    del base
    fail(view)
    noalias.disable("hidden_base")
    view.mul_(torch.tensor(3.0, requires_grad=True))
    assert type(view._base.grad_fn).__name__ == "CopySlices"
    view.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[6.0] * 4] * 2
