"""Copies, bytes allocated and peak bytes of one step."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from noalias.bench.counts import Counts, count, highest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noalias.bench.measure import Step

KIB = 1024
QUARTER = 256  # float32 elements in a KiB


def _counts(step: Step) -> Counts:
    return count(lambda: step)


def test_the_copy_inside_clone_is_seen() -> None:
    x = torch.zeros(QUARTER)
    assert _counts(lambda: x.clone()).copies == 1


def test_a_step_that_does_nothing_counts_nothing() -> None:
    assert _counts(lambda: None) == Counts(0, 0, 0)


def test_allocated_is_the_sum_and_peak_the_most_at_one_time() -> None:
    def step() -> None:
        for _ in range(3):
            torch.zeros(QUARTER)
        torch.zeros(2 * QUARTER)

    assert _counts(step) == Counts(0, 5 * KIB, 2 * KIB)


def test_what_preparation_does_is_not_counted() -> None:
    def prepare() -> Step:
        x = torch.zeros(8 * QUARTER).clone()
        return lambda: x.neg()

    counted = count(prepare)
    assert counted == Counts(0, 8 * KIB, 8 * KIB)


def test_what_the_step_frees_of_the_preparation_lowers_the_peak() -> None:
    def prepare() -> Step:
        kept = [torch.zeros(4 * QUARTER)]

        def step() -> None:
            kept.clear()
            torch.zeros(3 * QUARTER)

        return step

    counted = count(prepare)
    assert counted == Counts(0, 3 * KIB, 0)


def test_backward_on_the_engine_is_counted_too() -> None:
    x = torch.zeros(4, QUARTER, requires_grad=True)

    def prepare() -> Step:
        x.grad = None
        loss = x.view(-1).neg().view(4, -1)[0].sum()
        return loss.backward

    counted = count(prepare)
    # The selection makes a zero-filled gradient of the whole and copies the part in; the negation
    # makes a second one of that size, which the leaf keeps.
    assert counted.copies == 1
    assert counted.allocated_bytes >= 8 * KIB


def test_preparation_and_step_run_in_the_context() -> None:
    inside: list[bool] = []
    state = {"on": False}

    @contextmanager
    def on() -> Iterator[None]:
        state["on"] = True
        yield
        state["on"] = False

    def prepare() -> Step:
        inside.append(state["on"])
        return lambda: inside.append(state["on"])

    count(prepare, context=on)
    assert inside == [True, True, True]


def test_highest_running_sum() -> None:
    assert highest([3, -3, 2, 4, -6]) == 6
    assert highest([-5, 3]) == 0
    assert highest([]) == 0
