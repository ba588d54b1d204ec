"""On a device, the cures bring no race that stock PyTorch does not have.

A race is two accesses of one byte, at least one of them a write, that no wait orders. The pretend
device finds them (``tests/pretend_device/races.h``); that it does is tested here, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import pytest
import torch
from torch import Tensor

from tests import pretend_device
from tests.ownership.like_stock import grads
from tests.pretend_device import on_stream
from tests.pretend_device.outcomes import Case, Counted, Counts, Look, look_at
from tests.pretend_device.programs import WATCHES, RandomProgram, fork, leaf

STEPS = 6
WIDTH = 4
RANDOM_PROGRAMS = 300

Watch = Callable[[Tensor], Tensor]

CASES: dict[str, Counted] = {}


@pytest.fixture(scope="module")
def counts() -> Look:
    return look_at(__name__)


def _fill_and_watch(device: str, watch: Watch) -> Sequence[Tensor | None]:
    state = start = leaf(device, WIDTH)
    out = start.new_zeros(STEPS, WIDTH)
    for t in range(STEPS):
        state = state * 0.5
        out[t] = state
    watch(out * 2).square().sum().backward()
    return grads(start)


def _watch_and_fill(device: str, watch: Watch) -> Sequence[Tensor | None]:
    start = leaf(device, STEPS, WIDTH)
    out = watch(start * 2) * 3
    for t in range(STEPS):
        out[t] = start[t] * 0.5
    watch(out).square().sum().backward()
    return grads(start)


def _elementwise_and_watch(device: str, watch: Watch) -> Sequence[Tensor | None]:
    x = leaf(device, STEPS, WIDTH)
    (watch(-(x * 0.5)) / 3).square().sum().backward()
    return grads(x)


WATCHED = (_fill_and_watch, _watch_and_fill, _elementwise_and_watch)


def _watched(program: Callable[[str, Watch], Sequence[Tensor | None]], watch: Watch) -> str:
    """The name of a case."""
    return f"{program.__name__} {watch.__name__}"


CASES.update(
    (
        _watched(program, watch),
        Case(partial(program, watch=watch), ("slice_update", "owned_gradient")).counts,
    )
    for program in WATCHED
    for watch in WATCHES
)


@pytest.mark.parametrize("watch", WATCHES)
@pytest.mark.parametrize("program", WATCHED)
def test_what_a_hook_has_left_a_side_stream_to_read_is_never_written(
    counts: Look, program: Callable[[str, Watch], Sequence[Tensor | None]], watch: Watch
) -> None:
    # A race that stock does not have would have been raised.
    assert counts(_watched(program, watch))["stock_races"] == 0


def _random_programs() -> Counts:
    total: Counter[str] = Counter()
    for seed in range(RANDOM_PROGRAMS):
        try:
            total.update(Case(RandomProgram(seed), ()).counts_there())
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
    return dict(total)


CASES["random programs"] = _random_programs


def test_random_programs_keep_every_bit_and_every_order(counts: Look) -> None:
    moves = counts("random programs")
    for counter in ("slices_updated", "parts_added", "gradients_reused", "waits"):
        assert moves[counter] > 0, counter


def _gradient_that_forward_made(device: str) -> Sequence[Tensor | None]:
    """A Function in C++ returns its result as a gradient, while a side stream reads that."""
    x = leaf(device, WIDTH)
    result, total = torch.ops.pretend.exp_and_sum(x * 0.5)
    if device != "cpu":
        fork(result.detach())
    del result
    total.backward()
    return grads(x)


CASES["a gradient that forward made"] = Case(
    _gradient_that_forward_made, ("owned_gradient",)
).counts


def test_what_a_function_in_cpp_gives_as_a_gradient_is_never_written(counts: Look) -> None:
    moves = counts("a gradient that forward made")
    assert moves["gradients_reused"] == 0
    assert moves["stock_races"] == 0


@contextmanager
def _without_a_wait(stream: int) -> Iterator[None]:
    device = pretend_device.load()
    before = device.current_stream()
    device.set_stream(stream)
    yield
    device.set_stream(before)


Switch = Callable[[int], AbstractContextManager[None]]


def _read_after_a_write(switch: Switch) -> None:
    with switch(1):
        y = torch.ones(WIDTH, device=pretend_device.NAME)
    y.sum()


def _write_after_a_read(switch: Switch) -> None:
    x = torch.ones(WIDTH).to(pretend_device.NAME)
    with switch(1):
        x.sum()
    x.zero_()


def _write_after_a_write(switch: Switch) -> None:
    x = torch.ones(WIDTH).to(pretend_device.NAME)
    with switch(1):
        x.zero_()
    x.zero_()


def _write_of_a_list_after_a_read(switch: Switch) -> None:
    x = torch.ones(WIDTH).to(pretend_device.NAME)
    with switch(1):
        x.sum()
    torch._foreach_zero_([x])


def _write_of_a_part_after_a_read(switch: Switch) -> None:
    x = torch.ones(WIDTH, dtype=torch.complex64).to(pretend_device.NAME)
    with switch(1):
        (x * 2).sum()
    torch.view_as_real(x)[1, 1].zero_()


def _write_in_a_hook_after_a_read(switch: Switch) -> None:
    def read_and_write(gradient: Tensor) -> None:
        with switch(1):
            gradient.sum()
        gradient.zero_()

    y = leaf(pretend_device.NAME, WIDTH) * 2
    y.register_hook(read_and_write)
    y.square().sum().backward()


def _write_beside_a_read(switch: Switch) -> None:
    x = torch.ones(WIDTH, 2).to(pretend_device.NAME)
    with switch(1):
        x[:, 1].sum()
    x[:, 0].zero_()


def _two_reads(switch: Switch) -> None:
    x = torch.ones(WIDTH).to(pretend_device.NAME)
    with switch(1):
        x.sum()
    x.sum()


OVERLAPPING = (
    _read_after_a_write,
    _write_after_a_read,
    _write_after_a_write,
    _write_of_a_list_after_a_read,
    _write_of_a_part_after_a_read,
    _write_in_a_hook_after_a_read,
)
APART = (_write_beside_a_read, _two_reads)


def _counts_of_races(switch: Switch) -> Counts:
    device = pretend_device.load()
    races = {}
    for program in (*OVERLAPPING, *APART):
        device.forget_races()
        program(switch)
        races[program.__name__] = len(device.races())
    return races


CASES["with waits"] = partial(_counts_of_races, on_stream)
CASES["without waits"] = partial(_counts_of_races, _without_a_wait)


@pytest.mark.parametrize("program", OVERLAPPING)
def test_accesses_without_a_wait_between_them_are_a_race(
    counts: Look, program: Callable[[Switch], None]
) -> None:
    assert counts("without waits")[program.__name__] > 0


@pytest.mark.parametrize("program", APART)
def test_two_reads_or_two_places_need_no_wait(
    counts: Look, program: Callable[[Switch], None]
) -> None:
    assert counts("without waits")[program.__name__] == 0


def test_accesses_with_a_wait_between_them_are_no_race(counts: Look) -> None:
    assert set(counts("with waits").values()) == {0}
