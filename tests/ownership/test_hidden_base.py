"""The cure "hidden base": what is dropped, what is kept and why; gradients stay stock's."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import noalias
from noalias.ownership.cures import reset
from tests.ownership.training import live

Step = Callable[[Tensor], Tensor]


@pytest.fixture(autouse=True)
def hidden_base() -> Iterator[None]:
    reset()
    with noalias.enabled("hidden_base"):
        yield


def stock(step: Step, x: Tensor) -> tuple[Tensor, Tensor]:
    noalias.disable("hidden_base")
    try:
        return gradient(step, x)
    finally:
        noalias.enable("hidden_base")


def gradient(step: Step, x: Tensor) -> tuple[Tensor, Tensor]:
    """Output and gradient of x, for fresh leaves over the values of x."""
    leaf = x.clone().requires_grad_()
    output = step(leaf)
    output.square().sum().backward()
    assert leaf.grad is not None
    return output, leaf.grad


def kept() -> set[str]:
    return {reason for reason, count in noalias.status().kept.items() if count}


VIEWS: dict[str, Step] = {
    "whole": lambda y: y.view(-1),
    "slice": lambda y: y[:, :-1],
    "step": lambda y: y[::2],
    "select": lambda y: y[1],
    "transpose": lambda y: y.transpose(0, 1),
    "diagonal": lambda y: y.diagonal(),
    "chain": lambda y: y.view(-1)[2:].view(2, -1).t(),
    "squeeze": lambda y: y.unsqueeze(0).squeeze(0),
    "unbind with the others dropped": lambda y: y.unbind(0)[1],
}
WRITES: dict[str, Callable[[Tensor], object]] = {
    "mul_": lambda v: v.mul_(3),
    "relu_": lambda v: v.relu_(),
    "F.relu": lambda v: F.relu(v, inplace=True),
    "+=": lambda v: v.__iadd__(1.5),
    "mask": lambda v: v.__setitem__(v > 0, 2.0),
    "copy_": lambda v: v.copy_(v.detach().flip(0)),
    "fill_": lambda v: v.fill_(1.0),
    "foreach": lambda v: torch._foreach_mul_([v], 2.0),
    "clamp_": lambda v: v.clamp_(-0.5, 0.5),
    "sigmoid_": lambda v: v.sigmoid_(),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("write", WRITES)
def test_hidden_base_is_dropped_and_gradients_stay_bit_identical(view: str, write: str) -> None:
    def step(x: Tensor) -> Tensor:
        v = VIEWS[view](x * 2)
        WRITES[write](v)
        return v

    x = torch.randn(4, 4)
    output, grad = gradient(step, x)

    assert noalias.status().cured == 1
    assert not output._is_view()
    assert not noalias.graph.has_copy_slices(output)
    if view != "unbind with the others dropped":  # stock refuses those
        expected, expected_grad = stock(step, x)
        assert torch.equal(output, expected)
        assert torch.equal(grad, expected_grad)


@pytest.mark.parametrize(
    "view", [lambda y: y.unfold(1, 2, 1), lambda y: y.as_strided((2, 2, 2), (3, 1, 1))]
)
def test_view_that_overlaps_itself_keeps_its_base(view: Step) -> None:
    x, part = torch.randn(2, 3), torch.randn(1)

    def step(x: Tensor) -> Tensor:
        v = view(x * 1)
        v.mul_(2)
        v[..., -1, None] = part * x.sum()
        return v

    result, expected = gradient(step, x), stock(step, x)
    assert "overlap" in kept()
    assert not noalias.status().cured
    torch.testing.assert_close(result, expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    "view", [lambda y: y.unfold(1, 2, 2), lambda y: y.t()[1:], lambda y: y[:, None, ::2]]
)
def test_view_with_gaps_does_not_overlap_itself(view: Step) -> None:
    x = torch.randn(2, 4)
    result = gradient(lambda x: view(x * 1).mul_(2), x)
    assert noalias.status().cured == 1
    torch.testing.assert_close(result, stock(lambda x: view(x * 1).mul_(2), x), rtol=0, atol=0)


def test_python_object_of_a_base_that_nobody_holds_any_more_is_no_observer() -> None:
    def step(x: Tensor) -> Tensor:
        base = x * 2
        base.untyped_storage()
        v = base.view(-1)
        del base
        return v.mul_(3)

    gradient(step, torch.randn(3))

    assert noalias.status().cured == 1


def observed_by_name(x: Tensor, observers: list[object]) -> Tensor:
    observers.append(x * 2)
    return observers[0].view(-1)  # type: ignore[attr-defined, no-any-return]


def observed_by_another_view(x: Tensor, observers: list[object]) -> Tensor:
    base = x * 2
    observers.append(base[0])
    return base.view(-1)


def observed_by_detached_alias(x: Tensor, observers: list[object]) -> Tensor:
    base = x * 2
    observers.append(base.detach())
    return base.view(-1)


def observed_by_numpy(x: Tensor, observers: list[object]) -> Tensor:
    base = x * 2
    observers.append(base.detach().numpy())
    return base.view(-1)


def observed_by_storage(x: Tensor, observers: list[object]) -> Tensor:
    base = x * 2
    observers.append(base.untyped_storage())
    return base.view(-1)


def observed_by_weak_reference(x: Tensor, observers: list[object]) -> Tensor:
    base = x * 2
    observers.append(weakref.ref(base))
    return base.view(-1)


def observed_by_hook(x: Tensor, observers: list[object]) -> Tensor:
    base = x * 2
    base.register_hook(observers.append)
    return base.view(-1)


def observed_by_retained_gradient(x: Tensor, observers: list[object]) -> Tensor:
    base = x * 2
    base.retain_grad()
    return base.view(-1)


def observed_by_dlpack(x: Tensor, observers: list[object]) -> Tensor:
    base = x * 2
    observers.append(base.detach().__dlpack__())
    return base.view(-1)


@pytest.mark.parametrize(
    ("observed", "reason"),
    [
        (observed_by_name, "python_name"),
        (observed_by_another_view, "other_owner"),
        (observed_by_detached_alias, "shared_storage"),
        (observed_by_numpy, "shared_storage"),
        (observed_by_dlpack, "shared_storage"),
        (observed_by_storage, "python_storage"),
        (observed_by_weak_reference, "weak_reference"),
        (observed_by_hook, "hook"),
        (observed_by_retained_gradient, "hook"),
    ],
)
def test_observed_base_keeps_its_history(
    observed: Callable[[Tensor, list[object]], Tensor], reason: str
) -> None:
    def step(x: Tensor) -> Tensor:
        observers: list[object] = []
        v = observed(x, observers)
        v.mul_(3)
        assert v._is_view()
        return v

    x = torch.randn(3, 2)
    _, grad = gradient(step, x)

    assert noalias.status().cured == 0
    assert kept() == {reason}
    assert torch.equal(grad, stock(step, x)[1])


@pytest.mark.parametrize("producer", [torch.exp, torch.sigmoid, torch.tanh, torch.sqrt])
def test_base_that_its_producer_saved_still_raises(producer: Step) -> None:
    x = torch.rand(4, requires_grad=True)
    v = producer(x).view(2, 2)
    v.mul_(10)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        v.sum().backward()


def test_saved_view_still_notices_the_write() -> None:
    x = torch.rand(4, requires_grad=True)
    v = (x * 2).view(2, 2)
    product = v * v
    v.mul_(10)
    assert noalias.status().cured == 1

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_version_counter_goes_on_counting() -> None:
    x = torch.rand(4, requires_grad=True)
    v = (x * 2).view(2, 2)
    before = v._version
    v.mul_(10)

    assert v._version == before + 1


def test_hook_set_before_the_write_fires_with_an_ordinary_tensors_gradient() -> None:
    x = torch.randn(2, 3, requires_grad=True)
    seen: list[Tensor] = []
    v = (x * 2).view(-1)
    v.register_hook(lambda grad: seen.append(grad.clone()))
    v.mul_(5)
    v.sum().backward()

    assert len(seen) == 1
    assert torch.equal(seen[0], torch.full((6,), 5.0))


def test_retained_gradient_is_that_of_the_written_tensor_as_for_an_ordinary_one() -> None:
    x = torch.randn(2, 3, requires_grad=True)
    v = (x * 2).view(-1)
    v.retain_grad()
    v.mul_(5)
    (v * 7).sum().backward()

    ordinary = x.detach().clone().requires_grad_() * 2
    ordinary.retain_grad()
    ordinary.mul_(5)
    (ordinary * 7).sum().backward()
    assert v.grad is not None
    assert ordinary.grad is not None
    assert torch.equal(v.grad, ordinary.grad.view(-1))


def _part_of_split(x: Tensor) -> Tensor:
    return (x * 2).split(1, 0)[1]


def _mean(x: Tensor) -> Tensor:
    return torch.var_mean(x.exp(), dim=0)[1]


def _gradient_of_weight(x: Tensor) -> Tensor:
    loss = F.linear(torch.ones(4, 3), x).cos().sum()
    return torch.autograd.grad(loss, x, create_graph=True)[0]


@pytest.mark.parametrize("later", [_part_of_split, _mean, _gradient_of_weight])
@pytest.mark.parametrize("foreach", [False, True])
def test_retained_gradient_of_a_later_output_is_that_of_the_written_tensor(
    later: Callable[[Tensor], Tensor], foreach: bool
) -> None:
    """Stock fails with an internal assertion: it looks for the hook under the new number."""
    x = torch.randn(2, 3, requires_grad=True)
    output = later(x)
    output.retain_grad()
    if foreach:
        torch._foreach_mul_([output], 3.0)
    else:
        output.mul_(3)
    output.square().sum().backward()

    assert output.grad is not None
    assert torch.equal(output.grad, output.detach() * 2)
    assert output.output_nr == 0
    assert output.retains_grad


def test_retained_gradient_of_a_later_output_survives_a_write_that_raises() -> None:
    x = torch.randn(2, 3, requires_grad=True)
    mean = _mean(x)
    mean.retain_grad()
    with pytest.raises(RuntimeError, match="size of tensor"):
        mean.add_(torch.ones(2))
    mean.sum().backward()

    assert mean.grad is not None
    assert torch.equal(mean.grad, torch.ones(3))


def test_call_that_raises_leaves_an_ordinary_tensor_with_all_that_it_had() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    part = (x * 2).unbind(0)[1]
    seen: list[Tensor] = []
    part.register_hook(seen.append)
    part.retain_grad()
    with pytest.raises(RuntimeError, match="size of tensor"):
        part.mul_(torch.ones(5, 7, requires_grad=True))
    (part * 5).sum().backward()

    assert not part._is_view()
    assert part.grad is not None
    assert x.grad is not None
    assert [grad.tolist() for grad in seen] == [[5.0] * 3]
    assert part.grad.tolist() == [5.0] * 3
    assert x.grad.tolist() == [[0.0] * 3, [10.0] * 3]


def test_accumulator_of_a_leaf_and_hooks_behind_it_move_along() -> None:
    view = torch.ones(4).view(2, 2).requires_grad_()
    calls: list[str] = []
    accumulator = view.expand_as(view).grad_fn.next_functions[0][0]
    accumulator.register_hook(lambda *_: calls.append("accumulator"))
    view.register_post_accumulate_grad_hook(lambda _: calls.append("accumulated"))
    view.requires_grad_(False)
    with pytest.raises(RuntimeError, match="size of tensor"):
        view.mul_(torch.ones(5, 7, requires_grad=True))
    view.requires_grad_()
    (view * 3).sum().backward()

    assert not view._is_view()
    assert sorted(calls) == ["accumulated", "accumulator"]


@pytest.mark.parametrize("foreach", [False, True])
def test_base_is_dropped_at_every_level_of_nested_grad(foreach: bool) -> None:
    """Stock gives a wrong second derivative where a foreach operator writes to a view."""

    def loss(x: Tensor) -> Tensor:
        view = (x * 2).view(-1)
        if foreach:
            torch._foreach_mul_([view], [x.sum()])
        else:
            view.mul_(x.sum())
        return view.square().sum()

    def out_of_place(x: Tensor) -> Tensor:
        return (x * 2 * x.sum()).square().sum()

    def second(step: Step) -> Tensor:
        return torch.func.grad(lambda x: torch.func.grad(step)(x).sum())(torch.arange(1.0, 3))

    assert torch.equal(second(loss), second(out_of_place))
    assert noalias.status().cured == 2


def test_full_backward_hook_followed_by_an_in_place_activation_just_works() -> None:
    layer, seen = nn.Linear(8, 4), []
    layer.register_full_backward_hook(lambda module, gi, go: seen.append(go[0].clone()))
    x = torch.randn(3, 8, requires_grad=True)
    F.relu(layer(x), inplace=True).sum().backward()

    expected = (layer(x).detach() > 0).float()
    assert len(seen) == 1
    assert torch.equal(seen[0], expected)


class ReturnsAView(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor) -> Tensor:
        return (x * 2).view(-1)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> Tensor:  # type: ignore[override]
        return (grad * 2).view(2, 3)


def test_result_of_a_custom_function_may_be_written_to() -> None:
    x = torch.randn(2, 3, requires_grad=True)
    y = ReturnsAView.apply(x)
    y.mul_(3)
    y.sum().backward()

    assert x.grad is not None
    assert torch.equal(x.grad, torch.full((2, 3), 6.0))


def test_result_of_reentrant_checkpointing_may_be_written_to() -> None:
    x = torch.randn(2, 3, requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(lambda t: (t * 2).view(-1), x, use_reentrant=True)
    y.mul_(3)
    y.sum().backward()

    assert x.grad is not None
    assert torch.equal(x.grad, torch.full((2, 3), 6.0))


def test_view_refused_by_stock_is_refused_while_saved_tensors_have_hooks() -> None:
    """A checkpoint holds saved tensors when it recomputes: a proof may differ from forward's."""
    x = torch.randn(2, 3, requires_grad=True)

    def step(t: Tensor) -> Tensor:
        return ReturnsAView.apply(t).mul_(3)

    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        torch.utils.checkpoint.checkpoint(step, x, use_reentrant=False)
    assert kept() == {"stale"}


def test_view_made_under_no_grad_may_be_written_to() -> None:
    weight = torch.randn(6, requires_grad=True)
    with torch.no_grad():
        v = (torch.ones(2, 3) * 2).view(-1)
    v.mul_(weight)
    v.sum().backward()

    assert weight.grad is not None
    assert torch.equal(weight.grad, torch.full((6,), 2.0))


def test_view_under_no_grad_of_something_with_history_still_raises() -> None:
    x = torch.randn(2, 3, requires_grad=True)
    y = x * 2
    with torch.no_grad():
        v = y.view(-1)
    del y

    with pytest.raises(RuntimeError, match="no_grad"):
        v.mul_(2)


def test_view_of_a_leaf_still_raises() -> None:
    x = torch.randn(2, 3, requires_grad=True)

    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        x.view(-1).mul_(2)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_forward_tangent_moves_along() -> None:
    with torch.autograd.forward_ad.dual_level():
        primal, tangent = torch.randn(2, 3, requires_grad=True), torch.randn(2, 3)
        dual = torch.autograd.forward_ad.make_dual(primal, tangent)
        v = (dual * 2).view(-1)
        v.mul_(3)
        got = torch.autograd.forward_ad.unpack_dual(v).tangent

        assert not v._is_view()
        assert got is not None
        assert torch.equal(got, (tangent * 6).view(-1))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_tangent_that_another_view_has_given_to_the_base_moves_along() -> None:
    with torch.autograd.forward_ad.dual_level():
        x, tangent = torch.randn(2, 2, requires_grad=True), torch.randn(1)
        row = (x * 2)[0]
        row[1:] = torch.autograd.forward_ad.make_dual(torch.ones(1), tangent)
        row.mul_(3)
        got = torch.autograd.forward_ad.unpack_dual(row).tangent

        assert not row._is_view()
        assert got is not None
        assert torch.equal(got, torch.cat([torch.zeros(1), tangent * 3]))


def test_disable_in_mid_graph_leaves_a_valid_graph() -> None:
    x = torch.randn(2, 3, requires_grad=True)
    v = (x * 2).view(-1)
    v.mul_(3)
    noalias.disable("hidden_base")
    w = v.view(2, 3)
    w.mul_(5)
    w.sum().backward()

    assert x.grad is not None
    assert torch.equal(x.grad, torch.full((2, 3), 30.0))


@pytest.mark.parametrize("other", [torch.conj, torch.real, torch.imag])
def test_complex_view_that_begins_inside_its_base_keeps_it(other: Step) -> None:
    """PyTorch would put the gradient of the last write at another place."""
    part = torch.randn(1)

    def step(x: Tensor) -> Tensor:
        v = (x * 2)[2:]
        v.mul_(3)
        other(v)[0:1] = part * x.abs().sum()
        return torch.view_as_real(v).square()

    x = torch.randn(6, dtype=torch.complex64)
    output, grad = gradient(step, x)

    assert "offset" in kept()
    expected, expected_grad = stock(step, x)
    assert torch.equal(output, expected)
    assert torch.equal(grad, expected_grad)


def test_nothing_is_kept_alive() -> None:
    x = torch.randn(2, 3, requires_grad=True)
    before = live()
    for _ in range(20):
        (x * 2).view(-1).mul_(3).sum().backward()
    x.grad = None

    assert live() == before


def test_view_whose_own_metadata_holds_what_it_was_made_from_keeps_its_base() -> None:
    """Between real and complex PyTorch keeps how to undo the view, and with it the input."""

    def step(x: Tensor) -> Tensor:
        v = torch.view_as_complex((x * 2).view(-1, 2)).real
        return v.mul_(3)

    x = torch.randn(4, 4)
    output, grad = gradient(step, x)

    assert kept() == {"other_owner"}
    expected, expected_grad = stock(step, x)
    assert torch.equal(output, expected)
    assert torch.equal(grad, expected_grad)


def test_metadata_operators_are_left_alone() -> None:
    x = torch.randn(2, 3, requires_grad=True)
    v = (x * 2).view(3, 2)
    v.t_()

    assert noalias.status().seen == 0
    assert v.shape == (2, 3)


def test_compiled_code_sees_stock_pytorch() -> None:
    def step(x: Tensor) -> Tensor:
        y = (x * 2).view(-1)
        y.mul_(3)
        return y.relu_()

    x = torch.randn(2, 3)
    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    output, grad = gradient(compiled, x)

    assert noalias.status().seen == 0
    expected, expected_grad = stock(step, x)
    assert torch.equal(output, expected)
    assert torch.equal(grad, expected_grad)
