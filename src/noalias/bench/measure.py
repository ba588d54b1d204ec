"""Time variants of one piece of work against each other in one process.

Note [Interleaving]
On a shared machine the median of one variant, measured by itself, swings by a factor of five. So
every round runs each variant once, the order rotates from round to round, and what is compared is
the minimum, or the median over rounds of the ratio within a round. Both cancel what the machine did
meanwhile.

Note [Settling]
Switching the cures on or off replaces kernels in the dispatcher, and the first calls afterwards are
slow, in either direction: 0.3 ms the very first where a warm one takes microseconds, and the next
hundreds a tenth longer, until the caches hold the new kernels. Nobody switches in between in a
training loop. Where variants differ in their context, each short step is therefore repeated,
untimed, for 5 ms before it is timed. For long steps the effect is far below the noise, and running
them twice would only cost time.

Note [Cold caches]
What is measured again and again finds its data in the caches if it is small, and does not if it is
large, so that a curve over sizes bends where the caches end. In a training step something else has
run in between. With `cold_caches` something else does: a pass over more memory than the caches
hold, after the step has been prepared and before it is timed.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from noalias.bench.progress import Progress, Silent

if TYPE_CHECKING:
    from collections.abc import Iterator

Step = Callable[[], object]

# Seconds. See Note [Settling].
_LONG_STEP = 0.05
_SETTLING = 0.005
# Bytes; several times the largest caches of today's machines. See Note [Cold caches].
_MORE_THAN_CACHES = 1 << 28


@dataclass(frozen=True)
class Variant:
    """One way to do the work.

    Args:
        name: how the tables call it.
        prepare: does what must not be timed (clearing gradients, a forward pass) and returns the
            step that is timed.
        context: entered around `prepare` and the step, outside the timed part.
    """

    name: str
    prepare: Callable[[], Step]
    context: Callable[[], AbstractContextManager[object]] = nullcontext


@dataclass(frozen=True)
class Timing:
    """Seconds of each round, in the order measured."""

    seconds: tuple[float, ...]

    @property
    def minimum(self) -> float:
        return min(self.seconds)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def per_call(self, calls: int) -> Timing:
        """For steps that repeat one call `calls` times."""
        return Timing(tuple(value / calls for value in self.seconds))

    def to_json(self) -> dict[str, float | int]:
        return {"min_s": self.minimum, "median_s": self.median, "rounds": len(self.seconds)}


@dataclass(frozen=True)
class Ratio:
    """One variant's time over another's: of the minima, and the median within a round."""

    of_minima: float
    median: float


def ratio(numerator: Timing, denominator: Timing) -> Ratio:
    """`numerator` over `denominator`; both must come from one call of `interleave`."""
    pairs = zip(numerator.seconds, denominator.seconds, strict=True)
    return Ratio(
        numerator.minimum / denominator.minimum, statistics.median(a / b for a, b in pairs)
    )


def synchronise(device: torch.device) -> None:
    """Wait for all work given to `device`; nothing to do for a CPU."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def interleave(
    variants: Sequence[Variant],
    *,
    rounds: int,
    warmup: int = 2,
    device: torch.device | None = None,
    budget: float | None = None,
    cold_caches: bool = False,
    label: str = "timing",
    progress: Progress | None = None,
) -> dict[str, Timing]:
    """Time the variants, interleaved, with the garbage collector off.

    See Note [Interleaving] and Note [Settling].

    Args:
        variants: with distinct names.
        rounds: how often each is timed, at least 1.
        warmup: rounds run before, and not counted.
        device: synchronised before and after each timed step. Default: CPU.
        budget: seconds after which no further round starts, once three are done.
        cold_caches: see Note [Cold caches].
        label: shown with the progress.

    Returns:
        A `Timing` for each name; all have the same number of rounds.
    """
    if rounds < 1:
        raise ValueError(f"rounds is {rounds}; at least 1 is needed to measure anything")
    names = [variant.name for variant in variants]
    if len(set(names)) != len(names):
        raise ValueError(f"the names {names} are not distinct; each names one result")
    place = device or torch.device("cpu")
    before = _caches_filler(place) if cold_caches else _nothing
    watcher = progress or Silent()
    watcher.begin(label, warmup + rounds)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    settle = {variant.name for variant in variants if len({v.context for v in variants}) > 1}
    with _collector_off():
        for _ in range(warmup):
            for variant in variants:
                if _time_once(variant, place, before) > _LONG_STEP:
                    settle.discard(variant.name)
            watcher.advance()
        started = time.perf_counter()
        for done in range(rounds):
            if budget is not None and done >= 3 and time.perf_counter() - started > budget:
                break
            first = done % len(variants)
            for variant in (*variants[first:], *variants[:first]):
                spent = _time_once(variant, place, before, settle=variant.name in settle)
                seconds[variant.name].append(spent)
            watcher.advance()
    return {name: Timing(tuple(values)) for name, values in seconds.items()}


def _nothing() -> None:
    pass


def _caches_filler(device: torch.device) -> Step:
    other = torch.zeros(_MORE_THAN_CACHES // 4, device=device)
    return lambda: other.add_(1)


def _time_once(
    variant: Variant, device: torch.device, before: Step, *, settle: bool = False
) -> float:
    with variant.context():
        settled = time.perf_counter() + _SETTLING
        while settle:
            variant.prepare()()
            settle = time.perf_counter() < settled
        step = variant.prepare()
        before()
        synchronise(device)
        start = time.perf_counter()
        step()
        synchronise(device)
        return time.perf_counter() - start


@contextmanager
def _collector_off() -> Iterator[None]:
    # A collection in mid-step would be charged to whichever variant happened to run.
    gc.collect()
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
