"""Listens while a step runs, and adds up what it hears. Holds no tensor."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterable, Sequence

from torch import Tensor

from noalias.audit import excerpt, hearing, overwritten
from noalias.audit.finding import Origin
from noalias.audit.graph_costs import GraphCosts
from noalias.audit.result import OpaqueRegion
from noalias.audit.sightings import LOOP, Key, Sighting
from noalias.audit.steps import StepCounter
from noalias.audit.writes import Writes


class Recorder:
    """The audit's ear: in-place calls, backward calls, steps.

    Args:
        done: called after each step, with how many there have been.
        most_steps: end the program after so many.
        also_users: files to count as the user's though they are noalias' own.
        views: whether to look at what modules return (NA401).
    """

    def __init__(
        self,
        *,
        done: Callable[[int], None] | None = None,
        most_steps: int | None = None,
        also_users: tuple[str, ...] = (),
        views: bool = False,
    ) -> None:
        self._hearing = hearing.acquire(also_users)
        self.core = self._hearing.core
        self.modules = self._hearing.modules
        self.views = views
        self.when_joined: Callable[[], None] | None = None
        self.seen: dict[Key, Sighting] = {}
        self.forks = 0
        self.seconds = 0.0
        self.faults: dict[str, None] = {}
        self.recorded_steps = 0
        self._done = done
        acted_on = done is not None or most_steps is not None
        self.steps = StepCounter(self._step_done, most_steps, foresee=acted_on)
        self._writes = Writes(self.core, self.seen, self._hearing.hooks, self.origin)
        self._costs = GraphCosts(self.core, self.seen, self.modules.path, self.origin)
        self._started: float | None = None
        self._counting = True
        self._process = os.getpid()

    # Beginning and end.

    def start(self) -> None:
        """Begin to record."""
        self._hearing.join(self)
        self._started = time.perf_counter()
        self.steps.start()

    def stop(self) -> None:
        """End the recording and leave PyTorch as it was. What was seen stays."""
        if not self._hearing.leave(self):
            return
        self.steps.stop()
        self._end_step()
        if self._started is not None:
            self.seconds += time.perf_counter() - self._started

    def close(self) -> None:
        """The report is made: numbers of lines are not needed any more."""
        hearing.give_back()

    def only_errors(self) -> None:
        """Count no costs from here on; errors are told as before."""
        self._counting = False

    def count_again(self) -> None:
        """Count costs, too."""
        self._counting = True

    def hold_trail(self) -> None:
        """Keep the trail of lines and modules though nothing is recorded."""
        self._hearing.hold()

    def release_trail(self) -> None:
        self._hearing.release()

    def joined(self) -> None:
        """Another audit begins."""
        if self.when_joined is not None:
            self.when_joined()

    @property
    def opaque(self) -> tuple[OpaqueRegion, ...]:
        """Compiled code that took part in backward."""
        return tuple(self._costs.opaque.values())

    def told(self) -> dict[Key, Sighting]:
        """What is worth telling: slices that are filled here and there, in no loop, are not."""
        return {
            key: sighting
            for key, sighting in self.seen.items()
            if key.code != "NA201" or sighting.largest >= LOOP
        }

    # Where things are.

    def origin(self, operator: str, place: int) -> Origin:
        """An operator and the line with this number, with its source."""
        file, line = self.core.file_and_line(place)
        return Origin(operator, file, line, excerpt.source_line(file, line) if line else "")

    # In-place calls (the core's listener).

    def in_place(self, kind: str, operator: str, tensor: Tensor, detail: str) -> None:
        """An in-place call, as the core tells of it."""
        try:
            if kind == "failed":
                self._writes.refused(operator.partition(".")[0], tensor, detail)
            elif kind == "write" and self._counting:
                self._writes.told(operator.partition(".")[0], tensor, detail)
        except Exception:
            self._fault()

    # Modules' outputs (NA401).

    def returned(self, output: object, module: int) -> None:
        """Look at what a module returns."""
        if not self._counting:
            return
        try:
            for tensor in _tensors(output):
                facts = self.core.facts_about(tensor)
                if not facts.is_view or facts.verdict != "hidden":
                    continue
                view = self.core.view_history(tensor)
                maker = self._writes.maker(view)
                if maker is None:
                    continue
                key = Key("NA401", maker.place, module, maker.op)
                if key not in self.seen:
                    self.seen[key] = Sighting(
                        tuple(tensor.shape), str(tensor.dtype), view.base_bytes, "hidden"
                    )
                self.seen[key].occurs()
        except Exception:
            self._fault()

    # Backward calls.

    def backward_begins(self, roots: Sequence[Tensor]) -> None:
        """Read what the graph is about to pay."""
        self.steps.backward_begins()
        if not self._counting:
            return
        try:
            self._costs.count(roots, frozenset(self.core.active_cures()))
        except Exception:
            self._fault()

    def backward_ends(self) -> None:
        self.steps.backward_done()

    def backward_failed(self, roots: Sequence[Tensor], error: BaseException) -> None:
        """Tell NA303 from the graph that is still there."""
        try:
            found = overwritten.find(self.core, roots, error)
            if found is not None:
                key = Key("NA303", found.write.place, found.write.module, found.write.op)
                if key not in self.seen:
                    saved = found.saved
                    node = found.node.rpartition("::")[2]
                    origin = self.origin(node, saved.place) if saved is not None else Origin(node)
                    self.seen[key] = Sighting(
                        found.shape,
                        found.dtype,
                        found.bytes,
                        "observable",
                        (f"{node}, which saved it for backward",),
                        saved_by=origin,
                        versions=found.versions,
                    )
                self.seen[key].occurs()
        except Exception:
            self._fault()

    # Steps.

    def _step_done(self, steps: int) -> None:
        self._end_step()
        if steps == 1:
            self.recorded_steps = 0  # backward calls until an optimizer stepped, if any
        if self._counting:
            self.recorded_steps += 1
            for sighting in self.seen.values():
                sighting.count_step(first=self.recorded_steps == 1)
        if self._done is not None and os.getpid() == self._process:
            self._done(steps)

    def _end_step(self) -> None:
        self._writes.end_step()
        for sighting in self.seen.values():
            sighting.end_step()

    def _fault(self) -> None:
        """A mistake of the audit's own must not end the program; the report tells of it."""
        last = traceback.format_exc().strip().splitlines()
        where = next((line.strip() for line in reversed(last[:-1]) if "File" in line), "")
        self.faults[f"this is a bug in noalias, please report it: {last[-1]} ({where})"] = None


def _tensors(value: object) -> Iterable[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
