"""Measures one step with PyTorch's profiler: copies, bytes and memory, by module.

Copies come from the profiler because ``clone`` calls ``copy_`` below the level at which a dispatch
mode listens. A backward node has the sequence number of the forward call that made it, and the
trail knows that call's module. What a copy wrote comes from the core: the profiler's own record of
shapes keeps weak references to tensors, which would make every base observable.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, cast

import torch
from torch.profiler import ProfilerActivity, profile

if TYPE_CHECKING:
    from noalias.native.core import Core

_MEMORY = "[memory]"
_COPY = "aten::copy_"
_BACKWARD = 1
"""``RecordScope::BACKWARD_FUNCTION``."""

_REWRITES = ("CopySlices", "AsStridedBackward")
_READS = ("SelectBackward", "SliceBackward", "DiagonalBackward")


class _Event(Protocol):
    """What is used of ``torch._C._autograd._KinetoEvent`` (private, the same from 2.9 to 2.15)."""

    def name(self) -> str: ...
    def start_ns(self) -> int: ...
    def duration_ns(self) -> int: ...
    def start_thread_id(self) -> int: ...
    def nbytes(self) -> int: ...
    def sequence_nr(self) -> int: ...
    def fwd_thread_id(self) -> int: ...
    def scope(self) -> int: ...


@dataclass(slots=True)
class Totals:
    """Sums for a step or for one module's part of it. Seconds and bytes."""

    seconds: float = 0.0
    copies: int = 0
    bytes_moved: int = 0
    bytes_allocated: int = 0
    peak_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Copy:
    """One ``aten::copy_``; `rewrite` is the sequence number of the rewritten history that it is
    owed to, -1 for all others."""

    start: float
    duration: float
    bytes: int
    module: int
    rewrite: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """A call of an in-place operator, or calls of one module without a break."""

    name: str
    start: float
    duration: float
    module: int
    place: int = 0
    number: int = -1


@dataclass(slots=True)
class StepProfile:
    """What one step did. Times are seconds from its start.

    `backward` is the (start, end) of backward's nodes, None where there were none. `alias_nodes`
    are those that exist for aliases, each until its gradient has been handed on.
    """

    whole: Totals = field(default_factory=Totals)
    modules: dict[int, Totals] = field(default_factory=dict)
    memory: list[tuple[float, int]] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    in_place: list[Stretch] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)
    alias_nodes: list[Stretch] = field(default_factory=list)
    backward: tuple[float, float] | None = None


class StepProfiler:
    """Profiles what runs between `start` and `stop`. The core's trail must be on meanwhile."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._profile: profile | None = None

    @staticmethod
    def possible() -> bool:
        """Whether nobody is profiling already; a process has one profiler."""
        return not torch.autograd._profiler_enabled()

    def start(self) -> None:
        activities = [ProfilerActivity.CPU]
        # Without acc_events PyTorch 2.11 warns, into the program's own output.
        self._profile = profile(activities=activities, profile_memory=True, acc_events=True)
        self._profile.__enter__()
        self._core.start_copy_log()

    def abandon(self) -> None:
        """Stop, and keep nothing."""
        if self._profile is not None:
            self._core.stop_copy_log()
            self._profile.__exit__(None, None, None)
            self._profile = None

    def stop(self) -> StepProfile:
        """End the profile and add it up."""
        recorded, self._profile = self._profile, None
        assert recorded is not None, "stop() before start()"
        written = self._core.stop_copy_log()
        recorded.__exit__(None, None, None)
        assert recorded.profiler is not None
        results = recorded.profiler.kineto_results
        assert results is not None
        return add_up(self._core, cast("Iterable[_Event]", results.events()), written)


@dataclass(slots=True)
class _Open:
    end: int
    module: int | None = None
    place: int = 0
    rewrite: int = -1
    backward: bool = False
    alias: bool = False


def add_up(core: Core, events: Iterable[_Event], written: Iterable[tuple[int, int]]) -> StepProfile:
    """Sum the profiler's events; ``written`` has the thread and the bytes of each copy.

    Each thread's events are walked in order, with the open ones on a stack, so that what happens
    inside a call or a node is put down to its module.
    """
    ordered = sorted(events, key=lambda event: (event.start_ns(), -event.duration_ns()))
    found = StepProfile()
    modules: defaultdict[int, Totals] = defaultdict(Totals)
    stacks: defaultdict[int, list[_Open]] = defaultdict(list)
    first = ordered[0].start_ns() if ordered else 0
    live = 0
    sizes: defaultdict[int, deque[int]] = defaultdict(deque)
    for thread, size in written:
        sizes[thread].append(size)
    for event in ordered:
        start = (event.start_ns() - first) * 1e-9
        stack = stacks[event.start_thread_id()]
        while stack and stack[-1].end <= event.start_ns():
            stack.pop()
        name = event.name()
        if name == _MEMORY:
            live += event.nbytes()
            found.memory.append((start, live))
            of_module = modules[(stack[-1].module or 0) if stack else 0]
            for totals in (found.whole, of_module):
                totals.bytes_allocated += max(event.nbytes(), 0)
                totals.peak_bytes = max(totals.peak_bytes, live)
            continue
        opened = _open(core, event, name, stack[-1] if stack else None)
        module = opened.module or 0
        duration = event.duration_ns() * 1e-9
        if not stack:
            modules[module].seconds += duration
            _extend(found, start, duration, opened)
        if opened.alias and not (stack and stack[-1].alias):
            found.alias_nodes.append(Stretch(name, start, duration, module, opened.place))
        if name == _COPY:
            on_thread = sizes[event.start_thread_id()]
            moved = on_thread.popleft() if on_thread else 0
            for totals in (found.whole, modules[module]):
                totals.copies += 1
                totals.bytes_moved += moved
            found.copies.append(Copy(start, duration, moved, module, opened.rewrite))
        elif name.endswith("_") and not opened.backward and event.sequence_nr() >= 0:
            found.in_place.append(
                Stretch(name, start, duration, module, opened.place, event.sequence_nr())
            )
        stack.append(opened)
    if ordered:
        last = max(event.start_ns() + event.duration_ns() for event in ordered)
        found.whole.seconds = (last - first) * 1e-9
    _from_lowest(found, modules.values())
    found.modules = dict(modules)
    return found


def _from_lowest(found: StepProfile, modules: Iterable[Totals]) -> None:
    """Count memory from the step's lowest point. The profiler starts at zero, and a step that first
    frees what the last one left (gradients) goes below."""
    lowest = min((size for _, size in found.memory), default=0)
    if lowest < 0:
        found.memory = [(at, size - lowest) for at, size in found.memory]
        for totals in (found.whole, *modules):
            totals.peak_bytes -= lowest if totals.bytes_allocated else 0


def _extend(found: StepProfile, start: float, duration: float, opened: _Open) -> None:
    """Note an outermost call: in backward, or as part of its module's stretch."""
    end = start + duration
    if opened.backward:
        began = found.backward[0] if found.backward is not None else start
        found.backward = (began, end)
        return
    last = found.stretches[-1] if found.stretches else None
    if last is not None and last.module == opened.module:
        found.stretches[-1] = Stretch("", last.start, end - last.start, last.module)
    elif opened.module:
        found.stretches.append(Stretch("", start, duration, opened.module))


def _open(core: Core, event: _Event, name: str, outer: _Open | None) -> _Open:
    """The event as an entry of the stack, with the module and line that it belongs to."""
    end = event.start_ns() + event.duration_ns()
    number = event.sequence_nr()
    # Nodes know the thread that made them; calls in forward do not.
    is_node = event.fwd_thread_id() > 0 or event.scope() == _BACKWARD
    inside_call = outer is not None and outer.module is not None and not is_node
    if number >= 0 and not inside_call:
        thread = event.fwd_thread_id() if is_node else core.current_thread()
        call = core.call_behind(number, thread)
        if call is not None:
            rewrites = is_node and any(part in name for part in _REWRITES)
            alias = rewrites or (is_node and any(part in name for part in _READS))
            return _Open(end, call.module, call.place, number if rewrites else -1, is_node, alias)
    if outer is not None:
        return _Open(end, outer.module, outer.place, outer.rewrite, outer.backward, outer.alias)
    return _Open(end, backward=is_node)
