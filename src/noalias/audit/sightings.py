"""What the recorder has seen, added up by code, line, module and operator. Holds no tensor."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from noalias.audit.finding import GraphExcerpt, Origin, Verdict

LOOP = 8
"""Slice updates or reads of one tensor, by one line in one step, from which on it is a loop."""


@dataclass(frozen=True, slots=True)
class Key:
    """What makes two occurrences one finding. `place` and `module` are numbers of the core's."""

    code: str
    place: int
    module: int
    operator: str


@dataclass(slots=True)
class Sighting:
    """All occurrences of one `Key`.

    Attributes:
        count: occurrences in the whole recording.
        steps: recorded steps that it occurred in.
        largest: most occurrences on one base in one step.
        copied: base-sized copies that backward made for it, in the whole recording, slices being
            counted by their share of the base.
        peak: bytes that one of its nodes holds beyond what its operator needs.
        saved_calls, saved_bytes: ``aten::copy_`` calls that the cures would take away, and the
            bytes that these wrote, in the whole recording.
    """

    shape: tuple[int, ...]
    dtype: str
    bytes: int
    verdict: Verdict
    observers: tuple[str, ...] = ()
    made_by: Origin | None = None
    view_node: str = ""
    hook: Origin | None = None
    saved_by: Origin | None = None
    versions: tuple[int, int] | None = None
    detail: str = ""
    count: int = 0
    steps: int = 0
    largest: int = 0
    copied: float = 0.0
    peak: float = 0.0
    saved_calls: int = 0
    saved_bytes: int = 0
    graph: GraphExcerpt | None = None
    on_base: Counter[int] = field(default_factory=Counter)
    _counted: int = 0

    def occurs(self, base: int = 0) -> None:
        """One more, on the base with this address."""
        self.count += 1
        self.on_base[base] += 1

    def count_step(self, *, first: bool) -> None:
        """A step is done; where it is called the first, so is all that came before."""
        if first:
            self.steps, self._counted = 0, 0
        if self.count != self._counted:
            self.steps, self._counted = self.steps + 1, self.count

    def end_step(self) -> None:
        """Addresses are a base's name for one step at most."""
        if self.on_base:
            self.largest = max(self.largest, *self.on_base.values())
            self.on_base.clear()
