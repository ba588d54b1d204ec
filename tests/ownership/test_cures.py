"""Switching: by name, idempotent, from any thread, across fork, and back to stock exactly."""

from __future__ import annotations

import multiprocessing
import threading
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


@pytest.mark.parametrize("cure", ["hidden_base", "linear"])
def test_make_fx_sees_stock_pytorch(cure: str) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    def step(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.linear(x, weight, bias).relu_()

    arguments = torch.randn(2, 3, 4), torch.randn(5, 4, requires_grad=True), torch.randn(5)
    expected = make_fx(step)(*arguments).code
    with noalias.enabled(cure):
        assert make_fx(step)(*arguments).code == expected


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
