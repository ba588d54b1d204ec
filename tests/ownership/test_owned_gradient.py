"""The cure ``owned_gradient``: which results take their gradient's memory; no one can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import noalias
from noalias import native
from noalias.ownership.cures import reset
from tests.ownership.owned import (
    ARITHMETIC,
    BACKWARD_OPERATORS,
    OPERATORS,
    ROW_OPERATORS,
    allocated,
    leaf,
    reused,
    same_as_stock,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHAPE = (4, 3, 5, 6)
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "channels_last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "permuted": lambda x: x.permute(2, 0, 3, 1).contiguous().permute(1, 3, 0, 2),
    "strided": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "expanded": lambda x: x[:1].expand(SHAPE),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", OPERATORS)
def test_gradients_have_the_bits_and_strides_of_stock_in_every_layout(
    name: str, dtype: torch.dtype
) -> None:
    operator = OPERATORS[name]

    def program() -> Iterator[Tensor | None]:
        for of_input in LAYOUTS.values():
            for of_gradient in LAYOUTS.values():
                x = of_input(torch.randn(SHAPE).to(dtype)).detach().requires_grad_()
                gradient = of_gradient(torch.randn(SHAPE).to(dtype))
                # The backward of cos hands on a gradient of its own.
                operator(x).cos().backward(gradient)
                yield x.grad
                yield gradient

    assert same_as_stock(program) > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    "number", [0.1, 1 / 3, -7, 2**60 + 1, 1e300, 1e-300, 3e-39, float("nan"), -float("inf"), True]
)
def test_products_and_quotients_by_any_number_have_the_bits_of_stock(
    number: float, dtype: torch.dtype
) -> None:
    def program() -> Iterator[Tensor | None]:
        for operator in (lambda x: x * number, lambda x: x / number):
            x = leaf(6, 7, dtype=dtype)
            operator(x).cos().backward(torch.randn(6, 7, dtype=dtype))
            yield x.grad

    assert same_as_stock(program) > 0


@pytest.mark.parametrize(
    "name", ["tanh", "sigmoid", "times_number", "over_number", "minus", "exp", "sin", "square"]
)
def test_complex_gradients_are_those_of_stock(name: str) -> None:
    def program() -> Iterator[Tensor | None]:
        x = leaf(6, 7, dtype=torch.complex64)
        OPERATORS[name](x).cos().backward(torch.randn(6, 7, dtype=torch.complex64))
        yield x.grad

    same_as_stock(program)


@pytest.mark.parametrize(
    "divide",
    [
        lambda x: x.sqrt(),
        lambda x: x.log(),
        lambda x: x / torch.ones_like(x).mul(2 - 3j),
        lambda x: x / (2 - 3j),
    ],
    ids=["sqrt", "log", "over_constant", "over_number"],
)
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_division_has_the_bits_of_stock_at_every_length(
    dtype: torch.dtype, divide: Callable[[Tensor], Tensor]
) -> None:
    def program() -> Iterator[Tensor | None]:
        for rows in range(1, 20):
            x = leaf(rows, 3, dtype=dtype)
            # The gradient that arrives at the division is a product that nobody holds.
            (divide(x) * torch.randn(rows, 3, dtype=dtype)).backward(torch.ones_like(x))
            yield x.grad

    same_as_stock(program)


def step_bytes(operator: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> tuple[int, int]:
    """Bytes allocated in backward of linear, ``operator``, linear: stock's and the cure's."""
    first, second = nn.Linear(shape[-1], shape[-1]), nn.Linear(shape[-1], shape[-1])

    def run() -> int:
        torch.manual_seed(1)
        loss = second(operator(first(torch.randn(shape)))).sum()
        return allocated(loss.backward)

    stock = run()
    with noalias.enabled("owned_gradient"):
        return stock, run()


@pytest.mark.parametrize(
    "shape", [(32, 16), (4, 8, 16)], ids=["2-D", "3-D, a view of the gradient"]
)
@pytest.mark.parametrize("name", OPERATORS)
def test_backward_allocates_one_buffer_less(name: str, shape: tuple[int, ...]) -> None:
    stock, cured = step_bytes(OPERATORS[name], shape)
    buffer = 32 * 16 * 4
    # A chain of two formulas saves two.
    chains = {"sqrt": 2, "log": 2, "swiglu": 2, "relu_": 2, "threshold_": 2, "leaky_relu_": 2}
    assert stock - cured == chains.get(name, 2 if name == "elu_" else 1) * buffer


def test_three_of_four_relus_of_a_mlp_allocate_nothing() -> None:
    layers = [layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.ReLU())]
    model, rows = nn.Sequential(*layers), torch.randn(4096, 64)

    def run() -> int:
        return allocated(model(rows).sum().backward)

    stock = run()
    with noalias.enabled("owned_gradient"):
        cured = run()
    # Three of four: the gradient of a sum is one number, expanded.
    assert stock - cured == 3 * rows.nbytes
    assert cured < 0.81 * stock


def test_the_loss_of_a_classifier_needs_one_table_of_logits_less() -> None:
    target = torch.randint(100, (64,))

    def program() -> Iterator[Tensor | None]:
        x, w = leaf(64, 8), leaf(100, 8)
        F.cross_entropy(x @ w.t(), target).backward()
        yield from (x.grad, w.grad)

    assert same_as_stock(program) == 1


@pytest.mark.parametrize("name", [*BACKWARD_OPERATORS, *ARITHMETIC, *ROW_OPERATORS])
def test_a_leaf_takes_the_buffer_and_adds_to_it_later(name: str) -> None:
    def program() -> Iterator[Tensor | None]:
        x = leaf(5, 4)
        for _ in range(3):
            OPERATORS[name](x).cos().backward(torch.ones(5, 4))
        yield x.grad

    assert same_as_stock(program) >= 3


def test_a_product_of_two_factors_writes_the_second_of_its_gradients() -> None:
    def program() -> Iterator[Tensor | None]:
        a, b = leaf(5, 4), leaf(5, 4)
        (a * b).cos().sum().backward()
        yield from (a.grad, b.grad)

    assert same_as_stock(program) == 1


@pytest.mark.parametrize("wanted", [(0,), (1,), (0, 1)])
def test_a_product_whose_factors_are_asked_for_apart(wanted: tuple[int, ...]) -> None:
    def program() -> Iterator[Tensor | None]:
        factors = leaf(5, 4), leaf(5, 4)
        product = (factors[0] * factors[1]).cos().sum()
        for _ in range(2):
            inputs = [factors[index] for index in wanted]
            yield from torch.autograd.grad(product, inputs, retain_graph=True)

    assert same_as_stock(program) == 2


def test_a_product_that_is_broadcast_is_summed_from_the_right_values() -> None:
    def program() -> Iterator[Tensor | None]:
        a, row, column = leaf(5, 4), leaf(4), leaf(5, 1)
        (a * row * column).cos().sum().backward()
        yield from (a.grad, row.grad, column.grad)

    same_as_stock(program)


@pytest.mark.parametrize("operator", [torch.sub, torch.add, torch.div, torch.mul, torch.pow])
def test_operators_that_pass_their_gradient_on_to_two(
    operator: Callable[[Tensor, Tensor], Tensor],
) -> None:
    def program() -> Iterator[Tensor | None]:
        a, b = leaf(5, 4), torch.rand(5, 4).add_(1).requires_grad_()
        h = operator(a.abs() + 1, b)
        (F.relu(h) + h.sigmoid() * h).cos().sum().backward()
        yield from (a.grad, b.grad)

    same_as_stock(program)


def test_gradients_of_size_zero_and_of_one_number_stay_stocks() -> None:
    def program() -> Iterator[Tensor | None]:
        for shape in ((0, 4), ()):
            x = torch.randn(shape, requires_grad=True)
            F.relu(x * 2).cos().sum().backward()
            yield x.grad

    assert same_as_stock(program) == 0


def test_a_part_of_a_larger_gradient_does_not_keep_all_of_it() -> None:
    def program() -> Iterator[Tensor | None]:
        a, b = leaf(5, 4), leaf(5, 4)
        torch.cat([F.relu(a), F.gelu(b)]).cos().sum().backward()
        # The memory behind a leaf's gradient is among the facts compared.
        yield from (a.grad, b.grad)

    same_as_stock(program)


def test_a_mixed_precision_product_keeps_its_dtypes() -> None:
    def program() -> Iterator[Tensor | None]:
        x = leaf(5, 4)
        y = x.bfloat16() * torch.randn(5, 4, dtype=torch.float64)
        z = (x.bfloat16() * torch.tensor(2.0, dtype=torch.float64)).cos()
        (y.cos().sum() + z.sum()).backward()
        yield x.grad

    same_as_stock(program)


def test_unusual_strides_of_size_one_dimensions_do_not_survive() -> None:
    def program() -> Iterator[Tensor | None]:
        x = leaf(1, 5, 1)
        odd = torch.randn(5).as_strided((1, 5, 1), (77, 1, 13))
        torch.sin(F.relu(x) * torch.randn(5, 1)).backward(odd)
        yield x.grad

    same_as_stock(program)


def test_a_network_with_everything_at_once_twice_over_one_graph() -> None:
    def program() -> Iterator[Tensor | None]:
        net = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.2), nn.Conv2d(4, 4, 3)
        )
        x = leaf(2, 3, 9, 9)
        y = (F.gelu(net(x)) * 0.5).softmax(1).square().sum()
        y.backward(retain_graph=True)
        y.backward()
        yield from (x.grad, *(parameter.grad for parameter in net.parameters()))

    assert same_as_stock(program) > 4


def test_disable_gives_every_kernel_back() -> None:
    def ours() -> bool:
        return torch._C._dispatch_has_kernel_for_dispatch_key("aten::mul.Tensor", "AutogradCPU")

    assert "owned_gradient" not in native.load().active_cures()
    assert not ours()
    with noalias.enabled("owned_gradient"):
        assert ours()
        x = leaf(5, 4)
        y = F.relu(x * 2).cos()
    assert not ours()
    before = reused()
    y.sum().backward()
    assert reused() == before


def test_bytes_are_counted_for_status() -> None:
    reset()
    with noalias.enabled("owned_gradient"):
        F.relu(leaf(5, 4)).cos().sum().backward()
        counts = noalias.status().counts
    assert counts["gradients_reused"] == 1
    assert counts["gradient_bytes_reused"] == 5 * 4 * 4
