"""What one step does, independent of how fast: copies, bytes allocated, peak bytes.

Copies come from the profiler rather than from a `TorchDispatchMode`: `aten.clone` calls `copy_`
below the level at which a mode listens. Bytes come from the profiler's allocation events on a CPU,
and from the caching allocator's own statistics on CUDA.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from noalias.bench.measure import Step, synchronise

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager

_MEMORY_EVENT = "[memory]"
_COPY = "aten::copy_"
_BEGIN = "noalias::step"


@dataclass(frozen=True)
class Counts:
    """What one step did.

    Attributes:
        copies: calls of `aten::copy_`, those inside other operators included.
        allocated_bytes: sum of all allocations, freed or not.
        peak_bytes: most bytes held at one time, less what was held when the step began.
    """

    copies: int
    allocated_bytes: int
    peak_bytes: int


def count(
    prepare: Callable[[], Step],
    *,
    device: torch.device | None = None,
    context: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Counts:
    """The counts of the step that `prepare` returns; what `prepare` itself does is not counted.

    What `prepare` allocated and the step frees lowers what is held, so the peak is that of the
    bytes added. On CUDA the sizes are those of the allocator's blocks (multiples of 512 bytes).
    """
    # The profiler's library writes its own log lines to stderr unless told not to.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    place = device or torch.device("cpu")
    with context():
        # Drops what earlier steps left (gradients): the profiler knows no size for it.
        prepare()
        return _count_cuda(prepare, place) if place.type == "cuda" else _count_cpu(prepare)


def _count_cpu(prepare: Callable[[], Step]) -> Counts:
    # Observed from `prepare` on, so that the frees of its tensors have known sizes.
    with profile(
        activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True
    ) as recorded:
        step = prepare()
        with record_function(_BEGIN):
            pass
        step()
    events = sorted(_raw_events(recorded), key=lambda event: event.start)
    begin = next(event.start for event in events if event.name == _BEGIN)
    during = [event for event in events if event.start >= begin]
    sizes = [event.bytes for event in during if event.name == _MEMORY_EVENT]
    copies = sum(event.name == _COPY for event in during)
    return Counts(copies, sum(size for size in sizes if size > 0), highest(sizes))


def highest(sizes: Iterable[int]) -> int:
    """The largest running sum of `sizes` (allocations positive, frees negative), at least 0."""
    held = peak = 0
    for size in sizes:
        held += size
        peak = max(peak, held)
    return peak


def _count_cuda(prepare: Callable[[], Step], device: torch.device) -> Counts:
    step = prepare()
    synchronise(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_stats(device)
    # The profiler allocates nothing on the device, so one run gives all three quantities.
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as recorded:
        step()
        synchronise(device)
    after = torch.cuda.memory_stats(device)
    pool = "allocated_bytes.all"
    return Counts(
        copies=sum(event.name == _COPY for event in _raw_events(recorded)),
        allocated_bytes=after[f"{pool}.allocated"] - before[f"{pool}.allocated"],
        peak_bytes=after[f"{pool}.peak"] - before[f"{pool}.current"],
    )


class _Event(NamedTuple):
    start: int  # nanoseconds
    name: str
    bytes: int  # of a memory event: allocated, or negative: freed


class _KinetoEvent(Protocol):
    """What is used of `torch._C._autograd._KinetoEvent`, whose stubs know only some of it."""

    def start_ns(self) -> int: ...

    def name(self) -> str: ...

    def nbytes(self) -> int: ...


def _raw_events(recorded: profile) -> list[_Event]:
    """Every event on every thread.

    `profile.events()` folds the allocations into the operators that made them and loses their
    order; `kineto_results` (private, the same from 2.9 to 2.15) still has it.
    """
    profiler = recorded.profiler
    assert profiler is not None
    results = profiler.kineto_results
    assert results is not None
    events = cast("Iterable[_KinetoEvent]", results.events())
    return [_Event(event.start_ns(), event.name(), event.nbytes()) for event in events]
