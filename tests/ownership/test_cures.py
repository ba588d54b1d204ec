"""Switching: by name, idempotent, from any thread, across fork, and back to stock exactly."""

from __future__ import annotations

import multiprocessing
import threading
import warnings
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import noalias
from noalias.native.core import Core
from noalias.ownership.cures import reset


@pytest.fixture(autouse=True)
def _off_afterwards() -> Iterator[None]:
    noalias.disable()
    reset()
    yield
    noalias.disable()


def write_to_hidden_base() -> Tensor:
    x = torch.randn(2, 3, requires_grad=True)
    v = (x * 2).view(-1)
    v.mul_(3)
    return v


def table(operator: str) -> str:
    """The dispatcher's own account of what it calls, without where kernels were registered."""
    return str(torch._C._dispatch_dump_table(operator))


def test_all_cures_are_on_where_none_is_named(core: Core) -> None:
    noalias.enable()

    assert set(noalias.status().active) == set(core.known_cures())


def test_enable_is_idempotent() -> None:
    noalias.enable("hidden_base")
    once = table("aten::mul_.Tensor")
    noalias.enable("hidden_base")

    assert table("aten::mul_.Tensor") == once
    noalias.disable()
    assert not noalias.status().active


@pytest.mark.parametrize("operator", ["aten::mul_.Tensor", "aten::linear", "aten::select.int"])
def test_disable_gives_the_dispatch_table_back_exactly(operator: str) -> None:
    before = table(operator)
    noalias.enable()
    noalias.disable()

    assert table(operator) == before


def test_block_leaves_what_was_on_before() -> None:
    noalias.enable("hidden_base")
    with noalias.enabled("hidden_base", "slice_update"):
        assert set(noalias.status().active) == {"hidden_base", "slice_update"}

    assert noalias.status().active == ("hidden_base",)


def test_block_switches_off_after_an_exception() -> None:
    with pytest.raises(KeyError), noalias.enabled():
        raise KeyError

    assert not noalias.status().active


def test_unknown_cure_names_the_nearest_and_switches_nothing() -> None:
    with pytest.raises(ValueError, match="no cure 'hiden_base', did you mean 'hidden_base'"):
        noalias.enable("slice_update", "hiden_base")

    assert not noalias.status().active


@pytest.mark.parametrize("name", [3, ["hidden_base"]])
def test_a_cure_that_is_no_string_says_how_to_name_several(name: object) -> None:
    with pytest.raises(
        TypeError, match=r"named by a string.*enable\(\"hidden_base\", \"linear\"\)"
    ):
        noalias.enable(name)  # type: ignore[arg-type]

    assert not noalias.status().active


def test_status_says_that_results_of_linear_are_not_counted() -> None:
    with noalias.enabled("hidden_base"):
        assert "results of linear" not in str(noalias.status())
        with noalias.enabled("linear"):
            assert "results of linear" in str(noalias.status())


def test_status_counts_and_says_why_bases_were_kept() -> None:
    with noalias.enabled("hidden_base"):
        write_to_hidden_base()
        x = torch.randn(2, 3, requires_grad=True)
        base = x * 2
        base.view(-1).mul_(3)

    status = noalias.status()
    assert (status.seen, status.cured, status.kept["python_name"]) == (2, 1, 1)
    assert "2 seen, 1 cured, kept: 1 python_name" in str(status)


def test_threads_may_switch_and_compute_at_once() -> None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(50):
                with noalias.enabled("hidden_base"):
                    x = torch.randn(8, requires_grad=True)
                    v = (x * 2).view(2, 4)
                    v.mul_(3)
                    v.sum().backward()
                    assert x.grad is not None
                    assert torch.equal(x.grad, torch.full((8,), 6.0))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not errors


def _in_child(results: multiprocessing.Queue[tuple[tuple[str, ...], bool]]) -> None:
    torch.set_num_threads(1)
    results.put((noalias.status().active, write_to_hidden_base()._is_view()))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_child_has_the_cures_of_its_parent() -> None:
    noalias.enable("hidden_base")
    context = multiprocessing.get_context("fork")
    results: multiprocessing.Queue[tuple[tuple[str, ...], bool]] = context.Queue()
    child = context.Process(target=_in_child, args=(results,))
    child.start()

    assert results.get(timeout=60) == (("hidden_base",), False)
    child.join()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_data_loader_workers_go_on_working() -> None:
    with noalias.enabled():
        loader = torch.utils.data.DataLoader(
            [torch.full((2,), float(i)) for i in range(8)],  # type: ignore[arg-type]
            batch_size=2,
            num_workers=2,
            multiprocessing_context="fork",
        )
        total = sum(float(batch.sum()) for batch in loader)

    assert total == 56.0


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


@pytest.mark.parametrize("cure", ["hidden_base", "linear"])
def test_make_fx_sees_stock_pytorch(cure: str) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    def step(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.linear(x, weight, bias).relu_()

    arguments = torch.randn(2, 3, 4), torch.randn(5, 4, requires_grad=True), torch.randn(5)
    expected = make_fx(step)(*arguments).code
    with noalias.enabled(cure):
        assert make_fx(step)(*arguments).code == expected


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


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
def test_tracing_after_compiling_with_the_cures_on_still_finds_pytorchs_kernels(mode: str) -> None:
    """PyTorch's Python operators remember kernels by key; a guard that is gone is forgotten."""
    from torch.fx.experimental.proxy_tensor import make_fx

    def activate(x: Tensor) -> Tensor:
        return F.relu(F.instance_norm(x), inplace=True)

    def step(x: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad((x * 2).view(-1).relu_().sum(), x)

    with noalias.enabled():
        compiled = torch.compile(activate, backend="aot_eager")
        compiled(torch.randn(2, 3, 4, requires_grad=True)).sum().backward()

    traced = make_fx(step, tracing_mode=mode)(torch.randn(2, 3, requires_grad=True))
    assert "threshold_backward" in traced.code
