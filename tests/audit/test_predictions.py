"""What the cures should save, beside what they did: loops, single writes, and where the peak is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import noalias
from noalias.audit.predictions import peak_without
from noalias.audit.result import Prediction
from noalias.audit.sightings import Key, Sighting
from noalias.audit.step_profile import StepProfile, Stretch, Totals

# PyTorch's profiler writes to stderr by itself.
pytestmark = pytest.mark.usefixtures("core", "capfd")

T, WIDE = 32, 40_000
"""Slices of ``WIDE`` elements are too large for the core to copy by itself."""


def block(x: Tensor) -> Tensor:
    return F.leaky_relu(F.instance_norm(x), inplace=True).square()


def filled(x: Tensor) -> Tensor:
    out = torch.zeros(x.shape)
    for t, row in enumerate(x.unbind()):
        out[t] = row.neg()  # no number, which the cures convert with a copy less
    return out * weight(x)


def filled_with_a_number(x: Tensor) -> Tensor:
    out = x * 2
    for t in range(T):
        out[t] = 0.5
    return out * weight(x)


def written_to_in_turn(x: Tensor) -> Tensor:
    out = x * 2
    for t in range(T):
        out[t].mul_(3)
    return out * weight(x)


def read_in_turn(x: Tensor) -> Tensor:
    return torch.stack([x[t].square().sum() for t in range(T)])


def written_to_once(x: Tensor) -> Tensor:
    base = x.neg()
    base.view(-1).neg_()
    return base + x  # both get one gradient, which nobody may update


def predicted(shape: tuple[int, ...], forward: Callable[[Tensor], Tensor]) -> dict[str, Prediction]:
    """What is predicted of a training step of ``forward``, by quantity, beside what it did."""

    def step() -> None:
        x.grad = None
        forward(x).sum().backward()

    x = torch.randn(shape, requires_grad=True)
    with noalias.audit(step=step, rounds=1) as report:
        step()

    return {prediction.quantity: prediction for prediction in report.predictions}


def weight(x: Tensor) -> Tensor:
    return torch.linspace(0, 1, x.numel()).view(x.shape)


@pytest.mark.parametrize(
    ("shape", "forward"),
    [
        ((2, 3, 16, 16), block),
        ((T, 64), filled),
        ((T, WIDE), filled),
        ((T, 64), filled_with_a_number),
        ((T, 64), written_to_in_turn),
        ((T, 64), read_in_turn),
        ((T, 64), written_to_once),
    ],
    ids=str,
)
def test_predicted_copies_and_bytes_are_those_that_the_cures_take_away(
    shape: tuple[int, ...], forward: Callable[[Tensor], Tensor]
) -> None:
    found = predicted(shape, forward)
    assert found["copies"].borne_out, found
    assert found["bytes_moved"].borne_out, found


@pytest.mark.parametrize(
    ("shape", "forward"),
    [((2, 3, 32, 32), block), ((T, 512), filled), ((T, WIDE), filled), ((T, 512), read_in_turn)],
    ids=str,
)
def test_predicted_fall_of_the_peak_is_measured(
    shape: tuple[int, ...], forward: Callable[[Tensor], Tensor]
) -> None:
    peak = predicted(shape, forward)["peak_bytes"]
    assert peak.borne_out, peak


def sighting(held: float) -> Sighting:
    return Sighting((), "", 0, "hidden", peak=held, saved_calls=1)


def test_peak_is_lowered_where_an_alias_node_runs_and_nowhere_else() -> None:
    step = StepProfile(
        Totals(peak_bytes=10),
        memory=[(1.0, 4), (2.1, 7), (2.2, 10), (2.9, 4), (4.0, 6)],
        alias_nodes=[Stretch("CopySlices", 2.0, 1.0, module=3, place=5)],
    )

    assert peak_without({}, step) == 10
    assert peak_without({Key("NA101", 5, 3, "aten::add_"): sighting(5.0)}, step) == 6
    assert peak_without({Key("NA101", 5, 4, "aten::add_"): sighting(5.0)}, step) == 10


def test_what_was_alive_when_the_node_started_stays() -> None:
    step = StepProfile(
        Totals(peak_bytes=10),
        memory=[(1.0, 8), (2.1, 10), (2.9, 2)],
        alias_nodes=[Stretch("CopySlices", 2.0, 1.0, module=3, place=5)],
    )

    assert peak_without({Key("NA101", 5, 3, "aten::add_"): sighting(9.0)}, step) == 8
