"""The cures on a device that is not the CPU: stock's bits there, whatever streams the graph is on.

Every program runs in one process that has the device (``tests.pretend_device``): stock and cured
there, and stock on the CPU. All gradients must be the same in every bit, and the cures may bring no
race that stock does not have; each test then says what the cures had to do with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.ownership.like_stock import grads
from tests.pretend_device import on_stream
from tests.pretend_device.outcomes import Case, Counted, Look, Program, look_at
from tests.pretend_device.programs import block, leaf, recomputed

STEPS = 6
WIDTH = 4
LOOPS = 20

Hook = Callable[[Tensor], Tensor | None]

CASES: dict[str, Counted] = {}


def cured_by(*cures: str) -> Callable[[Program], Program]:
    def add(program: Program) -> Program:
        CASES[program.__name__] = Case(program, cures).counts
        return program

    return add


@pytest.fixture(scope="module")
def counts() -> Look:
    return look_at(__name__)


def _operands(device: str) -> list[Tensor]:
    return [leaf(device, 2, 3, WIDTH), leaf(device, 5, WIDTH), leaf(device, 5)]


def _written_to(y: Tensor, shift: Tensor) -> Tensor:
    y += shift
    return F.relu_(y)


@cured_by("hidden_base")
def linear_written_to(device: str) -> Sequence[Tensor | None]:
    operands, shift = _operands(device), leaf(device, 5)
    # Flat, because what linear itself returns is a view in some versions and not in others.
    y = _written_to(F.linear(*operands).flatten(0, 1), shift)
    y.square().sum().backward()
    return [y.detach(), *grads(*operands, shift)]


@cured_by("linear", "hidden_base")
def linear_as_one_operator(device: str) -> Sequence[Tensor | None]:
    operands, shift = _operands(device), leaf(device, 5)
    y = _written_to(F.linear(*operands), shift)
    y.square().sum().backward()
    return [y.detach(), *grads(*operands, shift)]


def test_a_linear_that_is_written_to_loses_its_hidden_base(counts: Look) -> None:
    assert counts(linear_written_to)["cured"] == 1


def test_a_linear_that_is_one_operator_has_no_base_to_lose(counts: Look) -> None:
    assert counts(linear_as_one_operator)["seen"] == 0


def _filled(start: Tensor, stream: Callable[[int], int] = lambda t: 0) -> Tensor:
    state, out = start, start.new_zeros(STEPS, WIDTH)
    for t in range(STEPS):
        with on_stream(stream(t)):
            state = state * 0.5
            out[t] = state
    return out


@cured_by("slice_update")
def fill(device: str) -> Sequence[Tensor | None]:
    start = leaf(device, WIDTH)
    _filled(start).sum().backward()
    return grads(start)


@cured_by("slice_update")
def fill_of_which_each_value_counts(device: str) -> Sequence[Tensor | None]:
    start = leaf(device, WIDTH)
    _filled(start).square().sum().backward()
    return grads(start)


@cured_by("slice_update")
def fill_with_arithmetic(device: str) -> Sequence[Tensor | None]:
    x, out = leaf(device, WIDTH), leaf(device, STEPS, WIDTH)
    written = out * 1
    for t in range(STEPS):
        written[t].mul_(x).add_(x)
    written.square().sum().backward()
    return grads(x, out)


@cured_by("slice_update")
def fill_from_the_cpu(device: str) -> Sequence[Tensor | None]:
    state = start = torch.randn(WIDTH, requires_grad=True)
    out = torch.zeros(STEPS, WIDTH, device=device)
    for t in range(STEPS):
        state = state * 0.5
        out[t] = state
    out.square().sum().backward()
    return grads(start)


@cured_by("slice_update")
def fill_on_two_streams(device: str) -> Sequence[Tensor | None]:
    start = leaf(device, WIDTH)
    _filled(start, stream=lambda t: t % 2).square().sum().backward()
    return grads(start)


@cured_by("slice_update")
def many_fills_at_once(device: str) -> Sequence[Tensor | None]:
    start = leaf(device, WIDTH)
    outs = [start.new_zeros(STEPS, WIDTH) for _ in range(LOOPS)]
    for t in range(STEPS):
        for out in outs:
            out[t] = start
    torch.stack([out.square().sum() for out in outs]).sum().backward()
    return grads(start)


@cured_by("slice_update")
def fill_while_a_hook_watches(device: str) -> Sequence[Tensor | None]:
    start = leaf(device, WIDTH)
    state, out = start, start.new_zeros(STEPS, WIDTH)
    for t in range(STEPS):
        state = state * 0.5
        out[t] = state
        out.register_hook(lambda gradient: None)
    out.sum().backward()
    return grads(start)


def test_the_first_update_copies_and_all_others_are_in_place(counts: Look) -> None:
    assert counts(fill)["slices_updated"] == STEPS - 1


def test_every_update_on_one_stream_is_in_place(counts: Look) -> None:
    assert counts(fill_of_which_each_value_counts)["slices_updated"] == STEPS


def test_two_writes_of_one_slice_are_two_updates(counts: Look) -> None:
    assert counts(fill_with_arithmetic)["slices_updated"] == 2 * STEPS


def test_a_source_on_the_cpu_gets_its_gradient_there(counts: Look) -> None:
    assert counts(fill_from_the_cpu)["slices_updated"] == STEPS


def test_many_loops_in_lockstep_are_in_place(counts: Look) -> None:
    assert counts(many_fills_at_once)["slices_updated"] == LOOPS * STEPS


def test_on_two_streams_the_first_update_copies_what_another_may_read(counts: Look) -> None:
    # Then only memory that came from an update is written by the next one.
    moves = counts(fill_on_two_streams)
    assert moves["slices_updated"] == STEPS - 1
    assert moves["waits"] > 0


def test_no_update_is_in_place_where_hooks_may_have_queued_a_reader(counts: Look) -> None:
    assert counts(fill_while_a_hook_watches)["slices_updated"] == 0


def _read(device: str, stream: Callable[[int], int]) -> Sequence[Tensor | None]:
    x = leaf(device, STEPS, WIDTH)
    base = x * 1
    total = torch.zeros(WIDTH, device=device)
    for t in range(STEPS):
        with on_stream(stream(t)):
            total = total + base[t].sin()
    total.sum().backward()
    return grads(x)


@cured_by("sibling_views")
def read(device: str) -> Sequence[Tensor | None]:
    return _read(device, stream=lambda t: 0)


@cured_by("sibling_views")
def read_on_another_stream_than_the_default(device: str) -> Sequence[Tensor | None]:
    with on_stream(1):
        return _read(device, stream=lambda t: 1)


@cured_by("sibling_views")
def read_on_another_stream_than_the_bases(device: str) -> Sequence[Tensor | None]:
    return _read(device, stream=lambda t: 1)


@cured_by("sibling_views")
def read_on_two_streams(device: str) -> Sequence[Tensor | None]:
    return _read(device, stream=lambda t: t % 2)


@cured_by("sibling_views")
def read_of_which_one_is_elsewhere(device: str) -> Sequence[Tensor | None]:
    return _read(device, stream=lambda t: int(t == 2))


def test_every_part_but_the_first_is_added_to_the_sum(counts: Look) -> None:
    moves = counts(read)
    assert moves["parts_added"] == STEPS - 1
    assert moves["waits"] == 0


def test_any_stream_will_do_if_it_is_the_only_one(counts: Look) -> None:
    moves = counts(read_on_another_stream_than_the_default)
    assert moves["parts_added"] == STEPS - 1
    assert moves["waits"] == 0


def test_no_part_is_added_across_streams(counts: Look) -> None:
    moves = counts(read_on_another_stream_than_the_bases)
    assert moves["parts_added"] == 0
    assert moves["waits"] > 0


def test_of_parts_on_two_streams_those_are_added_that_find_their_sum_on_theirs(
    counts: Look,
) -> None:
    # Backward begins with the last one, on the other stream. The engine adds it and the next one,
    # on the base's stream, where the second and third of that stream then find the sum.
    moves = counts(read_on_two_streams)
    assert moves["parts_added"] == STEPS // 2 - 1
    assert moves["waits"] > 0


def test_a_part_from_elsewhere_is_left_to_the_engine_alone(counts: Look) -> None:
    moves = counts(read_of_which_one_is_elsewhere)
    assert moves["parts_added"] == STEPS - 2
    assert moves["waits"] > 0


def _elementwise(
    device: str, forward: int, backward: int, hook: Hook | None = None
) -> Sequence[Tensor | None]:
    """Five products, quotients and negations, each of a gradient that nobody else holds."""
    with on_stream(forward):
        x, scale = leaf(device, WIDTH), torch.randn(WIDTH).to(device)
        y = -(((x * scale) / 3) * 0.7)
        if hook is not None:
            y.register_hook(hook)
        loss = (y * scale).square().sum()
    with on_stream(backward):
        loss.backward()
    return grads(x)


@cured_by("owned_gradient")
def elementwise(device: str) -> Sequence[Tensor | None]:
    return _elementwise(device, 0, 0)


@cured_by("owned_gradient")
def elementwise_on_a_side_stream(device: str) -> Sequence[Tensor | None]:
    return _elementwise(device, 1, 1)


@cured_by("owned_gradient")
def elementwise_called_from_another_stream(device: str) -> Sequence[Tensor | None]:
    return _elementwise(device, 1, 0)


@cured_by("owned_gradient")
def elementwise_on_two_streams(device: str) -> Sequence[Tensor | None]:
    x, scale = leaf(device, WIDTH), torch.randn(WIDTH).to(device)
    y = x * scale / 3
    with on_stream(1):
        z = y * scale
    (-z * 0.7).square().sum().backward()
    return grads(x)


@cured_by("owned_gradient")
def elementwise_watched_by_a_hook(device: str) -> Sequence[Tensor | None]:
    seen: list[Tensor] = []
    return [*_elementwise(device, 0, 0, seen.append), *seen]


@cured_by("owned_gradient")
def a_backward_within_a_backward(device: str) -> Sequence[Tensor | None]:
    x = leaf(device, WIDTH)
    y = recomputed(block(recomputed(block(x))))
    block(y).square().sum().backward()
    return grads(x)


@cured_by("owned_gradient")
def backward_operators(device: str) -> Sequence[Tensor | None]:
    x = leaf(device, WIDTH)
    x.tanh().sigmoid().relu().square().sum().backward()
    return grads(x)


@cured_by()  # all of them
def all_at_once(device: str) -> Sequence[Tensor | None]:
    operands = _operands(device)
    rows = (F.relu_(F.linear(*operands)) * 2).view(-1, 5)
    rows.mul_(3)
    out = rows.new_zeros(rows.shape)
    for t in range(len(rows)):
        with on_stream(t // 3):
            out[t] = rows[t].tanh() if t == 0 else rows[t].tanh() + out[t - 1]
    (out[:3].sum() + out[3:].square().sum()).backward()
    return grads(*operands)


@pytest.mark.parametrize("program", [elementwise, elementwise_on_a_side_stream])
def test_gradients_are_reused_on_one_stream(counts: Look, program: Program) -> None:
    moves = counts(program)
    assert moves["gradients_reused"] == 5
    assert moves["gradient_bytes_reused"] == 5 * WIDTH * 4
    assert moves["waits"] == 0


def test_no_gradient_is_reused_where_there_are_two_streams(counts: Look) -> None:
    moves = counts(elementwise_on_two_streams)
    assert moves["gradients_reused"] == 0
    assert moves["waits"] > 0


def test_no_gradient_is_reused_where_the_caller_is_on_another_stream(counts: Look) -> None:
    assert counts(elementwise_called_from_another_stream)["gradients_reused"] == 0


def test_a_gradient_that_a_hook_keeps_is_left_alone(counts: Look) -> None:
    assert counts(elementwise_watched_by_a_hook)["gradients_reused"] == 4


def test_a_backward_within_a_backward_is_proved_by_itself(counts: Look) -> None:
    # Three in the last block, and two in each other: their first gradient is one that Python has
    # seen, or that the inner backward's caller holds.
    assert counts(a_backward_within_a_backward)["gradients_reused"] == 3 + 4 * 2


def test_backward_operators_of_an_unknown_backend_are_left_alone(counts: Look) -> None:
    # Nobody has said that its kernels may write what they read.
    assert counts(backward_operators)["gradients_reused"] == 0


def test_all_cures_at_once_keep_every_bit(counts: Look) -> None:
    moves = counts(all_at_once)
    assert moves["slices_updated"] > 0
    assert moves["parts_added"] > 0
    assert moves["waits"] > 0
