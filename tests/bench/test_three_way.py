"""The three-way table: what must hold of copies, bytes and graphs. Time is reported, not tested."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from noalias import graph
from noalias.bench import three_way
from noalias.bench.three_way import ThreeWay, Workload


@cache
def _result(layers: int = 1, shape: tuple[int, ...] = (4, 32, 16)) -> ThreeWay:
    return three_way.run(Workload(shape=shape, features=32, layers=layers), rounds=1)


def test_every_row_is_measured_once() -> None:
    names = [row.name for row in _result().rows]
    assert names == ["before", "stock", "workaround", "after", "after + enable()"]


def test_after_copies_no_more_than_the_workaround_and_before_three_times_more() -> None:
    before, workaround, after = map(_result().row, ("before", "workaround", "after"))
    assert after.counts.copies <= workaround.counts.copies
    assert before.counts.copies >= after.counts.copies + 3


def test_before_allocates_at_least_1_6_times_as_much_as_after() -> None:
    wide = _result(shape=(64, 32, 32))
    before, after = wide.row("before").counts, wide.row("after").counts
    assert before.allocated_bytes >= 1.6 * after.allocated_bytes
    assert before.peak_bytes > after.peak_bytes


def test_only_the_view_of_the_product_is_rebased() -> None:
    result = _result()
    assert result.row("before").copy_slices == 1
    for name in ("workaround", "after", "after + enable()"):
        assert result.row(name).copy_slices == 0


def test_one_node_for_linear() -> None:
    # The node of linear, of relu_, and an accumulator for each of three leaves.
    assert _result().row("after").nodes == 5


@pytest.mark.parametrize("layers", [1, 2])
def test_gradients_of_every_row_are_the_same_in_every_bit(layers: int) -> None:
    assert all(row.gradients_equal for row in _result(layers).rows)


def test_owned_gradients_allocate_less_than_the_workaround_in_two_layers() -> None:
    two = _result(2, (64, 32, 32))
    cured, workaround = two.row("after + enable()").counts, two.row("workaround").counts
    assert cured.allocated_bytes < workaround.allocated_bytes


def test_a_vector_is_an_input_too() -> None:
    assert all(row.gradients_equal for row in _result(shape=(16,)).rows)


@pytest.mark.parametrize("activation", sorted(three_way.ACTIVATIONS))
def test_every_activation_runs_in_place(activation: str) -> None:
    y = torch.rand(3) * 1.0
    assert three_way.ACTIVATIONS[activation](y) is y


def test_the_seed_preset_allocates_1000_mebibytes_for_one_activation() -> None:
    shape, features = three_way.PRESETS["seed"]
    assert Workload(shape=shape, features=features).activation_bytes == 1000 * 2**20


def test_the_cures_are_off_again_afterwards() -> None:
    _result()
    x = torch.ones(2, 3, requires_grad=True)
    assert graph.COPY_SLICES in graph.names(x.mul(2.0).view(6).add_(1))


def test_before_is_what_linear_did() -> None:
    x, weight, bias = torch.rand(2, 3, 4), torch.rand(5, 4), torch.rand(5)
    weight.requires_grad_()
    y = three_way.before(x, weight, bias)
    assert y._is_view()
    torch.testing.assert_close(y, torch.nn.functional.linear(x, weight, bias))
