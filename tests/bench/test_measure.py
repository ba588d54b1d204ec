"""Interleaving: who runs when, in which context, and what is kept. No test looks at a duration."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch

from noalias.bench import measure
from noalias.bench.measure import Ratio, Step, Timing, Variant, interleave, ratio


class _Log:
    def __init__(self) -> None:
        self.entries: list[str] = []

    def variant(self, name: str) -> Variant:
        def prepare() -> Step:
            self.entries.append(f"prepare {name}")
            return lambda: self.entries.append(name)

        return Variant(name, prepare)

    @property
    def steps(self) -> str:
        return "".join(entry for entry in self.entries if not entry.startswith("prepare"))


def test_order_rotates_so_that_nobody_is_always_first() -> None:
    log = _Log()
    interleave([log.variant(name) for name in "abc"], rounds=3, warmup=0)
    assert log.steps == "abcbcacab"


def test_warm_up_rounds_run_and_are_not_counted() -> None:
    log = _Log()
    timings = interleave([log.variant("a")], rounds=2, warmup=3)
    assert log.steps == "aaaaa"
    assert len(timings["a"].seconds) == 2


def test_each_step_is_prepared_afresh() -> None:
    log = _Log()
    interleave([log.variant("a")], rounds=2, warmup=0)
    assert log.entries == ["prepare a", "a", "prepare a", "a"]


def test_cold_caches_are_filled_after_the_step_is_prepared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = _Log()
    monkeypatch.setattr(
        measure, "_caches_filler", lambda device: lambda: log.entries.append(f"fill {device}")
    )
    interleave([log.variant("a")], rounds=2, warmup=0, cold_caches=True)
    assert log.entries == ["prepare a", "fill cpu", "a"] * 2


def test_a_pass_over_the_filler_moves_more_than_the_caches_hold() -> None:
    first, second = (measure._caches_filler(torch.device("cpu"))() for _ in range(2))
    assert isinstance(first, torch.Tensor)
    assert isinstance(second, torch.Tensor)
    assert first.nbytes == second.nbytes == 256 * 2**20
    assert first.data_ptr() != second.data_ptr()


@contextmanager
def _noted(entries: list[str]) -> Iterator[None]:
    entries.append("enter")
    yield
    entries.append("leave")


def _in_context(log: _Log) -> Callable[[], Variant]:
    plain = log.variant("a")
    return lambda: Variant("a", plain.prepare, lambda: _noted(log.entries))


def test_context_is_around_preparation_and_step() -> None:
    log = _Log()
    interleave([_in_context(log)()], rounds=1, warmup=0)
    assert log.entries == ["enter", "prepare a", "a", "leave"]


@pytest.mark.parametrize("seconds", [0.0, 0.005])
def test_a_short_step_settles_after_a_change_of_context(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "_SETTLING", seconds)
    log = _Log()
    interleave([_in_context(log)(), log.variant("b")], rounds=1, warmup=0)
    steps = log.steps.replace("enter", "").replace("leave", "")
    if seconds:
        assert min(steps.count("a"), steps.count("b")) > 2
    else:
        assert steps == "aabb"


def test_a_long_step_does_not_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_LONG_STEP", -1.0)
    log = _Log()
    interleave([_in_context(log)(), log.variant("b")], rounds=1, warmup=1)
    assert log.steps.replace("enter", "").replace("leave", "") == "abab"


def test_the_collector_is_off_during_rounds_and_as_before_afterwards() -> None:
    states: list[bool] = []
    interleave([Variant("a", lambda: lambda: states.append(gc.isenabled()))], rounds=1)
    assert states == [False] * 3
    assert gc.isenabled()


def test_the_budget_ends_the_rounds_once_three_are_done() -> None:
    timings = interleave([_Log().variant("a")], rounds=50, budget=0.0)
    assert len(timings["a"].seconds) == 3


def test_no_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="rounds is 0; at least 1"):
        interleave([_Log().variant("a")], rounds=0)


def test_two_variants_of_one_name_are_refused() -> None:
    log = _Log()
    with pytest.raises(ValueError, match=r"\['a', 'a'\] are not distinct"):
        interleave([log.variant("a"), log.variant("a")], rounds=1)


def test_an_error_in_a_step_leaves_the_collector_on() -> None:
    def fail() -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        interleave([Variant("a", lambda: fail)], rounds=1)
    assert gc.isenabled()


def test_ratios_are_of_minima_and_the_median_within_rounds() -> None:
    ours, theirs = Timing((2.0, 9.0, 4.0)), Timing((1.0, 3.0, 4.0))
    assert ratio(ours, theirs) == Ratio(of_minima=2.0, median=2.0)


def test_timing_reports_minimum_median_and_rounds() -> None:
    timing = Timing((0.4, 0.2, 0.9))
    assert timing.to_json() == {"min_s": 0.2, "median_s": 0.4, "rounds": 3}
    assert timing.per_call(2).minimum == 0.1
