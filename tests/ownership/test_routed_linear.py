"""`F.linear` under the cure `linear`: one operator, with stock's bits, errors and observers."""

from __future__ import annotations

import warnings
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import noalias
from tests.ownership.like_stock import moved


def test_f_linear_is_the_whole_operator_and_no_view() -> None:
    x = torch.randn(2, 3, 4, requires_grad=True)
    weight, bias = torch.randn(5, 4, requires_grad=True), torch.randn(5)
    with noalias.enabled("linear"):
        y = F.linear(x, weight, bias)

    assert not y._is_view()
    assert noalias.graph.names(y)["LinearBackward0"] == 1
    assert torch.equal(y, F.linear(x, weight, bias))


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (2, 0, 4)])
@pytest.mark.parametrize("with_bias", [True, False])
def test_routed_linear_has_stocks_values_gradients_and_strides_in_every_bit(
    shape: tuple[int, ...], with_bias: bool
) -> None:
    def step() -> list[Tensor]:
        torch.manual_seed(1)
        leaves = [torch.randn(shape), torch.randn(5, 4), torch.randn(5)][: 3 if with_bias else 2]
        for leaf in leaves:
            leaf.requires_grad_()
        y = F.linear(*leaves)
        y.square().sum().backward()
        return [y.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]

    expected = step()
    with noalias.enabled("linear"):
        got = step()

    assert all(map(torch.equal, got, expected))
    assert [g.stride() for g in got] == [e.stride() for e in expected]


@pytest.mark.parametrize("operand", ["input", "weight"])
def test_view_of_a_leaf_made_without_grad_mode_is_left_to_stock(operand: str) -> None:
    """Stock's own views of it raise in backward once the leaf is modified."""

    def step() -> None:
        leaf = torch.randn(2, 5, 4, requires_grad=True)
        with torch.no_grad():
            view = leaf[0]
        other = torch.randn(3, 4, requires_grad=True)
        y = F.linear(view, other) if operand == "input" else F.linear(other, view)
        leaf.detach().mul_(2)
        y.sum().backward()

    with pytest.raises(RuntimeError, match="was created in no_grad mode and its base"):
        step()
    with (
        noalias.enabled("linear"),
        pytest.raises(RuntimeError, match="was created in no_grad mode and its base"),
    ):
        step()


@pytest.mark.parametrize("operand", ["weight", "input"])
def test_linear_gives_an_inference_tensor_the_gradient_it_asks_for(operand: str) -> None:
    with torch.inference_mode():
        made = {"input": torch.ones(2, 3, 4), "weight": torch.ones(5, 4)}
        made[operand].requires_grad_()
    operands = {"input": torch.ones(2, 3, 4), "weight": torch.ones(5, 4)} | {operand: made[operand]}

    assert not F.linear(operands["input"], operands["weight"]).requires_grad
    noalias.linear(operands["input"], operands["weight"]).sum().backward()
    assert made[operand].grad is not None


def test_bias_that_is_not_contiguous_is_left_to_stock() -> None:
    x, weight, bias = torch.randn(4, 4, 2), torch.randn(2, 2), torch.randn(4, 2)[::2, 0]
    weight.requires_grad_()
    expected = F.linear(x, weight, bias)
    with noalias.enabled("linear"):
        got = F.linear(x, weight, bias)

    assert torch.equal(got, expected)
    assert got._version == expected._version  # stock adds such a bias in place
    assert noalias.graph.names(got) == noalias.graph.names(expected)


def test_routed_linear_under_torch_func_is_no_view_of_the_level() -> None:
    views: list[bool] = []

    def loss(weight: Tensor, bias: Tensor, x: Tensor) -> Tensor:
        y = F.linear(x, weight, bias)
        views.append(y._is_view())
        y.relu_()
        return y.square().sum()

    arguments = torch.randn(5, 4), torch.randn(5), torch.randn(2, 3, 4)
    expected = torch.func.grad(loss, argnums=(0, 1))(*arguments)
    with noalias.enabled("linear"):
        got = torch.func.grad(loss, argnums=(0, 1))(*arguments)

    assert views[1] is False
    assert all(map(torch.equal, got, expected))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(6, 7), (5, 6, 7)])
@pytest.mark.parametrize("dims", [(0, None, None), (None, 0, 0), (0, 0, 0), (None, None, 0)])
def test_routed_linear_under_vmap_has_stocks_bits(
    dtype: torch.dtype, shape: tuple[int, ...], dims: tuple[int | None, ...]
) -> None:
    def loss(*operands: Tensor) -> Tensor:
        return F.linear(*operands).sin().sum()

    shapes = shape, (8, 7), (8,)
    operands = [
        torch.randn(size if dim is None else (3, *size), dtype=dtype)
        for size, dim in zip(shapes, dims, strict=True)
    ]

    def step() -> list[Tensor]:
        values = torch.func.vmap(F.linear, dims)(*operands)
        per_sample = torch.func.vmap(torch.func.grad(loss, (0, 1, 2)), dims)(*operands)
        return [values, *per_sample]

    expected = step()
    with noalias.enabled("linear"):
        got = step()
    assert all(map(torch.equal, got, expected))


@pytest.mark.parametrize("shape", [(6, 7), (5, 6, 7)])
def test_batched_gradients_of_routed_linear_have_stocks_bits(shape: tuple[int, ...]) -> None:
    operands = [torch.randn(size, requires_grad=True) for size in (shape, (8, 7), (8,))]
    gradients = torch.randn(3, *shape[:-1], 8)

    def step() -> tuple[Tensor, ...]:
        y = F.linear(*operands)
        return torch.autograd.grad(y, operands, gradients, is_grads_batched=True)

    expected = step()
    with noalias.enabled("linear"):
        got = step()
    assert all(map(torch.equal, got, expected))


def test_batched_gradients_of_linear_are_not_computed_one_by_one() -> None:
    operands = [torch.randn(size, requires_grad=True) for size in ((5, 6, 7), (8, 7), (8,))]
    y = noalias.linear(*operands)
    show = torch._C._debug_only_display_vmap_fallback_warnings
    show(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # that an operator falls back to a loop over samples
            torch.autograd.grad(y, operands, torch.randn(3, 5, 6, 8), is_grads_batched=True)
    finally:
        show(False)


@pytest.mark.parametrize(
    "arguments",
    [
        (torch.randn(2, 3, 4), torch.randn(5, 3), None),
        (torch.randn(2, 3, 4), torch.randn(5, 4), torch.randn(4)),
        (torch.randn(2, 3, 4), torch.randn(5, 4, dtype=torch.float64), None),
    ],
)
def test_routed_linear_raises_stocks_own_errors(
    arguments: tuple[Tensor, Tensor, Tensor | None],
) -> None:
    with pytest.raises(RuntimeError) as expected:
        F.linear(*arguments)
    with noalias.enabled("linear"), pytest.raises(RuntimeError) as got:
        F.linear(*arguments)

    assert str(got.value) == str(expected.value)


@pytest.mark.parametrize("change", ["replaced", "converted"])
@pytest.mark.parametrize(
    ("operand", "shape"), [("weight", (3, 4)), ("weight", (2, 3, 4)), ("input", (2, 3, 4))]
)
def test_backward_reads_the_data_of_forward(
    change: str, operand: str, shape: tuple[int, ...]
) -> None:
    """Stock saves views of the weight and the folded input, which keep their memory."""

    def step() -> list[Tensor]:
        x, weight = torch.randn(shape, requires_grad=True), torch.randn(5, 4, requires_grad=True)
        middle = x * 1 if operand == "weight" else x
        y = F.linear(middle, weight)
        changed = weight if operand == "weight" else x
        changed.data = changed.data.double() if change == "converted" else changed.data + 1
        wanted = [x] if operand == "weight" else [weight]
        return list(torch.autograd.grad(y.square().sum(), wanted))

    moved(step, "linear")


def test_second_derivatives_go_through_the_data_of_forward() -> None:
    def step() -> list[Tensor]:
        x, weight = torch.randn(3, 4, requires_grad=True), torch.randn(5, 4, requires_grad=True)
        y = F.linear(x, weight).sin()
        weight.data = weight.data + 1
        (first,) = torch.autograd.grad(y.sum(), [x], create_graph=True)
        return list(torch.autograd.grad(first.square().sum(), [x, weight]))

    moved(step, "linear")


def test_released_history_lets_the_data_of_forward_go() -> None:
    def owners(tensor: Tensor) -> int:
        return torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)

    weight = torch.randn(5, 4, requires_grad=True)
    with noalias.enabled("linear"):
        y = F.linear(torch.randn(3, 4, requires_grad=True), weight)
    before = weight.data
    weight.data = torch.zeros(5, 4)
    held = owners(before)
    y.sum().backward()
    assert owners(before) == held - 1


@pytest.mark.parametrize("shape", [(1, 1), (1, 1, 1), (3, 1), (1, 4)])
@pytest.mark.parametrize("outputs", [1, 17, 64])
@pytest.mark.parametrize("trained", [True, False])
def test_operands_of_one_row_or_one_feature_have_stocks_bits(
    shape: tuple[int, ...], outputs: int, trained: bool
) -> None:
    """Their strides say nothing, but stock chooses the form of a product by them."""

    def step() -> list[Tensor]:
        found = []
        for _ in range(10):
            x = torch.randn(shape, requires_grad=True)
            weight = torch.randn(outputs, 2 * shape[-1])[:, ::2].requires_grad_(trained)
            y = F.linear(x, weight)
            wanted = [x, weight] if trained else [x]
            found += torch.autograd.grad(y, wanted, torch.randn_like(y))
        return found

    moved(step, "linear")


@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_strides_of_dimensions_of_one_element_have_stocks_bits(bias: bool, trained: bool) -> None:
    """matmul asks for them before it folds a contiguous input, and multiplies in batches else."""

    def step() -> list[Tensor]:
        found = []
        for _ in range(10):
            x = torch.randn(1, 7, dtype=torch.complex64, requires_grad=True)
            weight = torch.randn(1, 7, dtype=torch.complex64, requires_grad=trained)
            b = torch.randn(1, dtype=torch.complex64) if bias else None
            found.append(F.linear(x.expand(2, 1, 7)[:1], weight, b))
        return found

    moved(step, "linear")


@pytest.mark.parametrize("bias", [True, False])
def test_one_tensor_as_input_and_weight_has_stocks_bits(bias: bool) -> None:
    def step() -> list[Tensor]:
        found = []
        for _ in range(10):
            x = torch.randn(4, 4, requires_grad=True)
            h = x.sin()
            y = F.linear(h, h, torch.randn(4) if bias else None)
            (y.sin().sum() + (h * torch.randn(4, 4)).sum()).backward()
            assert x.grad is not None
            found.append(x.grad)
        return found

    moved(step, "linear")


def test_second_derivatives_of_layers_have_stocks_bits() -> None:
    """Each gradient of linear passes on what it gets as soon as it has it, as stock's do."""

    def step() -> list[Tensor]:
        found = []
        for _ in range(10):
            x = torch.randn(6, 4, requires_grad=True)
            leaves = [torch.randn(4, 4, requires_grad=True) for _ in range(2)]
            biases = [torch.randn(4, requires_grad=True) for _ in range(2)]
            y = x
            for weight, bias in zip(leaves, biases, strict=True):
                y = F.linear(y, weight, bias).tanh()
            wanted = [x, *leaves, *biases]
            first = torch.autograd.grad(y.sum(), wanted, create_graph=True)
            penalty = y.square().sum() + sum(g.square().sum() for g in first)
            found += torch.autograd.grad(penalty, wanted)
        return found

    moved(step, "linear")


@pytest.mark.parametrize("cured_forward", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4)])
def test_a_checkpoint_recomputes_linear_after_the_cure_was_switched(
    shape: tuple[int, ...], bias: bool, cured_forward: bool
) -> None:
    """What forward has saved is told from what is recomputed by its number alone."""

    def step(*, forward: bool, backward: bool) -> list[Tensor]:
        torch.manual_seed(0)
        x, weight = torch.randn(shape, requires_grad=True), torch.randn(4, 4, requires_grad=True)
        offset = torch.randn(4) if bias else None
        with noalias.enabled("linear") if forward else nullcontext():
            y = checkpoint(lambda: F.linear(x, weight, offset).sin(), use_reentrant=False)
        assert isinstance(y, Tensor)
        with noalias.enabled("linear") if backward else nullcontext():
            return list(torch.autograd.grad(y.sum(), [x, weight]))

    expected = step(forward=False, backward=False)
    assert all(map(torch.equal, step(forward=True, backward=True), expected))
    switched = step(forward=cured_forward, backward=not cured_forward)
    assert all(map(torch.equal, switched, expected))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4)])
def test_hooks_on_saved_tensors_are_given_what_stock_gives_them(
    shape: tuple[int, ...], bias: bool
) -> None:
    def step() -> list[Tensor]:
        seen: list[Tensor] = []

        def pack(saved: Tensor) -> Tensor:
            seen.append(saved.detach())
            return saved

        x, weight = torch.randn(shape, requires_grad=True), torch.randn(5, 4, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
            y = F.linear(x, weight, torch.randn(5) if bias else None)
        return [*seen, *torch.autograd.grad(y, [x, weight], torch.randn_like(y))]

    moved(step, "linear")
    assert len(step()) == 4
