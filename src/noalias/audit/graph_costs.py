"""What a graph pays for aliases when backward runs, put down to the lines that made its nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from noalias.audit import surroundings
from noalias.audit.finding import Origin
from noalias.audit.result import OpaqueRegion
from noalias.audit.sightings import LOOP, Key, Sighting

if TYPE_CHECKING:
    from torch import Tensor

    from noalias.native.core import CompiledCalls, Core, RewrittenHistories, SliceReads

_PARTS = ("SelectBackward0", "SliceBackward0", "DiagonalBackward0")
"""Nodes whose backward fills a zero gradient of the base with that of the view, by a copy."""


class GraphCosts:
    """Counts the nodes that exist for aliases, each time backward is called.

    Args:
        seen: the recorder's sightings, which are added to.
        path: a module's path by its number.
        origin: an operator and a line by its number.
    """

    def __init__(
        self,
        core: Core,
        seen: dict[Key, Sighting],
        path: Callable[[int], str],
        origin: Callable[[str, int], Origin],
    ) -> None:
        self.opaque: dict[tuple[int, int], OpaqueRegion] = {}
        self._core = core
        self._seen = seen
        self._path = path
        self._origin = origin

    def count(self, roots: Sequence[Tensor], active: frozenset[str]) -> None:
        """Add what backward on ``roots`` will pay, with the ``active`` cures on. Keeps no root."""
        census = self._core.take_census(list(roots))
        for group in census.histories:
            key = self._behind(group, active)
            if key is not None:
                self._count_rewrites(key, group, roots)
        for reads in census.reads:
            if reads.count >= LOOP and "sibling_views" not in active:
                self._count_reads(reads)
        for region in census.compiled:
            self._count_compiled(region)

    def _count_reads(self, reads: SliceReads) -> None:
        key = Key("NA202", reads.call.place, reads.call.module, reads.call.op)
        sighting = self._seen.get(key)
        if sighting is None:
            sighting = self._seen[key] = Sighting(
                tuple(reads.slice_shape),
                reads.dtype,
                reads.base_bytes,
                "observable",
                ("the program reads it slice by slice",),
                graph=surroundings.around_reads(reads.read_from, reads.node, reads.count),
            )
        sighting.count += reads.count
        sighting.copied += reads.count
        sighting.peak = max(sighting.peak, reads.base_bytes)
        sighting.bytes = max(sighting.bytes, reads.base_bytes)
        # The first starts the sum; each further one adds its slice there.
        sighting.saved_calls += reads.count - 1
        sighting.saved_bytes += (reads.count - 1) * _slice_bytes(reads)

    def _count_compiled(self, region: CompiledCalls) -> None:
        where = (region.call.place, region.call.module)
        before = self.opaque.get(where)
        calls = region.count + (before.calls if before is not None else 0)
        origin = self._origin("", region.call.place)
        self.opaque[where] = OpaqueRegion(
            "torch.compile region",
            origin.file,
            origin.line,
            self._path(region.call.module),
            calls,
        )

    def _count_rewrites(self, key: Key, group: RewrittenHistories, roots: Sequence[Tensor]) -> None:
        sighting = self._seen[key]
        base = max(group.base_bytes, 1)
        # One node: the gradient of the base is copied whole, the slice twice, and once more where
        # the view's own history goes through the base (AsStrided).
        copied = group.count + (2 * group.view_bytes + group.restored_bytes) / base
        sighting.copied += copied
        if sighting.verdict == "hidden":
            sighting.saved_calls += 3 * group.count + group.restored
            sighting.saved_bytes += round(copied * base)
            if sighting.view_node in _PARTS:
                # The view's own node, back again, copies its gradient into one of the base's size.
                sighting.saved_calls -= group.count
                sighting.saved_bytes -= group.view_bytes
        elif sighting.verdict == "observable":
            # In a loop somebody else may hold the first gradient; of a single write most often.
            updated = group.count if key.code == "NA201" else group.chained
            calls, moved = _saved_by_updates(key.operator, group)
            sighting.saved_calls += round(calls * updated / group.count)
            sighting.saved_bytes += round(moved * updated / group.count)
        share = group.view_bytes / group.count / base
        sighting.peak = max(sighting.peak, base * (1 + share))
        if sighting.graph is None:
            sighting.graph = surroundings.around_rewrite(
                roots,
                group.sequence_number,
                group.wrapped,
                sighting.view_node,
                cured=sighting.verdict == "hidden",
            )

    def _behind(self, group: RewrittenHistories, active: frozenset[str]) -> Key | None:
        """The finding that a rewritten history belongs to; a new one where no write was told, and
        None where that is because a cure updates it in place."""
        call = group.call
        here = [
            key
            for key in self._seen
            if (key.place, key.module) == (call.place, call.module)
            and key.code in ("NA101", "NA102", "NA201", "NA301")
        ]
        same = [key for key in here if key.operator == call.op]
        if same or here:
            return (same or here)[0]
        if "slice_update" in active:
            return None
        # A tensor subclass or a transform: the core passes by, and the graph still has the node.
        key = Key("NA102", call.place, call.module, call.op)
        self._seen[key] = Sighting(
            (), "", group.base_bytes, "unknown", ("a subclass or a transform hides it",)
        )
        self._seen[key].count = group.count
        return key


def _saved_by_updates(operator: str, group: RewrittenHistories) -> tuple[int, int]:
    """Copies, and their bytes, that stock makes and an update of the gradient in place does not."""
    view = group.view_bytes / group.count
    # The base's; that of the slice, which the core makes without ATen where it is small.
    calls, moved = group.count + group.small, group.count * group.base_bytes + group.small * view
    if operator == "aten::copy_":
        # Nothing of the slice's old value is needed: zeros, which stock copies into place.
        zeroed = group.count - group.first_writes
        calls, moved = calls + zeroed, moved + zeroed * view
    return calls, round(moved)


def _slice_bytes(reads: SliceReads) -> int:
    whole = math.prod(reads.base_shape)
    return reads.base_bytes * math.prod(reads.slice_shape) // whole if whole else 0
