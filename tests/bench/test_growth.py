"""Loops over time: the fit, the prediction that leaves stock out, the shape of a result."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch

from noalias.bench import growth, loops
from noalias.bench.growth import Growth, exponent


@pytest.mark.parametrize("p", [0.9, 1.0, 2.0])
def test_the_exponent_of_a_power_law_is_found(p: float) -> None:
    steps = (256, 512, 1024, 4096)
    assert exponent(steps, [3e-6 * n**p for n in steps]) == pytest.approx(p)


def test_the_exponent_is_that_of_the_line_nearest_in_the_logarithms() -> None:
    # Symmetric errors at the two ends of the middle cancel.
    assert exponent((1, 10, 100), (1.0, 20.0, 100.0)) == pytest.approx(1.0)


def test_one_number_of_steps_has_no_slope() -> None:
    with pytest.raises(ValueError, match="at least two different numbers"):
        exponent((64, 64), (1.0, 1.1))


@cache
def _result() -> Growth:
    return growth.run(steps=(256, 257), rounds=1, stock_limit=0.0, program_steps=4)


def test_stock_is_left_out_where_it_is_predicted_to_take_too_long() -> None:
    for name, *_ in loops.LOOPS:
        first, second = (point for point in _result().points if point.loop == name)
        assert first.stock is not None
        assert second.stock is None
        assert second.stock_peak_bytes is None
        assert second.stock_over_cured is None


def test_variants_measured_twice_have_a_fit_that_names_its_range() -> None:
    fits = {(fit.loop, fit.variant): (fit.first, fit.last) for fit in _result().fits}
    for name, *_ in loops.LOOPS:
        assert fits[name, "cured"] == fits[name, "by hand"] == (256, 257)
        assert (name, "stock") not in fits


def test_cured_gradients_are_those_of_stock_in_every_bit() -> None:
    assert all(point.gradients_equal for point in _result().points)
    assert {program.gradients for program in _result().programs} == {"identical"}


def test_filling_holds_no_more_than_twice_what_stack_does_plus_one_buffer() -> None:
    buffer = loops.BATCH * loops.WIDTH * 4
    for point in _result().points:
        if point.loop == "read":
            assert point.cured_peak_bytes <= 1.2 * point.by_hand_peak_bytes + buffer


@pytest.mark.parametrize(("name", "loop", "by_hand"), [row[:3] for row in loops.LOOPS])
def test_the_forms_by_hand_compute_the_same(
    name: str, loop: loops.Loop, by_hand: loops.Loop
) -> None:
    source, state = loops.inputs(name, 5, torch.device("cpu"))
    torch.testing.assert_close(loop(source, state), by_hand(source, state))


def test_the_table_says_that_caches_were_cold() -> None:
    assert "cold caches" not in str(growth.table(_result()).title)
    assert "cold caches" in str(growth.table(replace(_result(), cold_caches=True)).title)


def test_the_table_says_where_stock_was_left_out() -> None:
    table = growth.table(_result())
    assert table.row_count == len(_result().points)
    assert "over the limit" in str(table.caption)
