"""Equality in every bit, and the distance where there is none."""

from __future__ import annotations

import math

import pytest
import torch

from noalias.bench import bits


def test_nan_is_the_same_as_itself() -> None:
    a = torch.tensor([1.0, math.nan])
    assert bits.same(a, a.clone())


def test_zero_and_minus_zero_differ_in_one_bit() -> None:
    assert not bits.same(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert bits.distance([torch.tensor([0.0])], [torch.tensor([-0.0])]) > 0


def test_strides_do_not_matter() -> None:
    a = torch.arange(6.0).reshape(2, 3)
    assert bits.same(a, a.t().contiguous().t())


@pytest.mark.parametrize(
    "b", [torch.zeros(3), torch.zeros(2, dtype=torch.float64)], ids=["shape", "dtype"]
)
def test_another_shape_or_dtype_is_not_the_same(b: torch.Tensor) -> None:
    assert not bits.same(torch.zeros(2), b)


def test_distance_is_relative_to_each_tensors_largest_value() -> None:
    ours, theirs = [torch.tensor([100.0, 1.0])], [torch.tensor([100.0, 2.0])]
    assert bits.distance(ours, theirs) == pytest.approx(0.01)


def test_distance_is_zero_only_where_all_are_the_same() -> None:
    a = torch.rand(3)
    assert bits.distance([a, None], [a.clone(), None]) == 0


@pytest.mark.parametrize(
    "theirs", [None, torch.zeros(3), torch.tensor([0.0, math.nan])], ids=["none", "shape", "nan"]
)
def test_what_cannot_be_subtracted_is_infinitely_far(theirs: torch.Tensor | None) -> None:
    assert bits.distance([torch.zeros(2)], [theirs]) == math.inf
