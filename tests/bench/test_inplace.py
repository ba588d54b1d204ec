"""The in-place tables: what is compared."""

from __future__ import annotations

from functools import cache

from noalias.bench import hidden, inplace
from noalias.bench.inplace import InPlace


@cache
def _result() -> InPlace:
    return inplace.run(rounds=1, calls=5, program_rounds=1)


def test_every_call_and_every_program_is_measured() -> None:
    assert [row.call for row in _result().added] == list(inplace.CALLS)
    assert [row.program for row in _result().cured] == [p.name for p in hidden.PROGRAMS]


def test_what_is_added_is_a_difference_of_one_call() -> None:
    for row in _result().added:
        assert row.added == row.enabled.minimum - row.stock.minimum


def test_no_cured_program_has_other_gradients() -> None:
    assert {row.gradients for row in _result().cured} == {"identical"}


def test_no_cured_program_allocates_or_copies_more() -> None:
    for row in _result().cured:
        assert row.enabled.counts.copies <= row.stock.counts.copies
        assert row.enabled.counts.allocated_bytes <= row.stock.counts.allocated_bytes
