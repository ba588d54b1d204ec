"""What counts as a step."""

from __future__ import annotations

import pytest
import torch

from noalias.audit.steps import EnoughSteps, StepCounter


def optimizer() -> torch.optim.Optimizer:
    parameter = torch.nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    return torch.optim.SGD([parameter], lr=0.1)


@pytest.fixture
def counted() -> list[int]:
    return []


@pytest.fixture
def counter(counted: list[int]) -> StepCounter:
    return StepCounter(counted.append)


def test_a_step_is_one_of_the_optimizer_that_stepped_first(
    counter: StepCounter, counted: list[int]
) -> None:
    first, second = optimizer(), optimizer()
    counter.start()
    for _ in range(3):
        first.step()
        second.step()
    counter.stop()
    first.step()

    assert (counter.steps, counted) == (3, [1, 2, 3])


def test_backward_before_the_first_optimizer_step_is_part_of_that_step(
    counter: StepCounter, counted: list[int]
) -> None:
    one = optimizer()
    counter.start()
    counter.backward_begins()
    counter.backward_done()
    one.step()
    counter.stop()

    assert (counter.steps, counter.backward_calls, counted) == (1, 1, [1])


def test_failed_backward_is_a_call_and_no_step(counter: StepCounter) -> None:
    counter.backward_begins()

    assert (counter.steps, counter.backward_calls) == (0, 1)


def test_program_ends_after_the_steps_asked_for() -> None:
    counter = StepCounter(lambda done: None, most=2)
    one = optimizer()
    counter.start()
    one.step()
    with pytest.raises(EnoughSteps) as ended:
        one.step()
    counter.stop()

    assert (ended.value.code, ended.value.steps) == (0, 2)
