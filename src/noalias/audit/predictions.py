"""What the cures should save in one step, beside what they did.

Note [The peak without what the cures take away]
How much a step's peak falls is not what one node holds: without it, the peak lies elsewhere. So
the stock step's memory curve is taken, with what each node of a finding holds beyond its
operator's need taken off while that node runs, and the highest point of what is left is where the
peak should be. A node's curve is not lowered below where it began: what was alive then stays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from noalias.audit.result import Prediction

if TYPE_CHECKING:
    from noalias.audit.sightings import Key, Sighting
    from noalias.audit.step_profile import StepProfile


def predictions(
    seen: Mapping[Key, Sighting], steps: int, stock: StepProfile, cured: StepProfile
) -> Iterator[Prediction]:
    """Savings of one step, predicted from what was ``seen`` in so many ``steps``, and measured."""
    copies = sum(sighting.saved_calls for sighting in seen.values()) / steps
    moved = sum(sighting.saved_bytes for sighting in seen.values()) / steps
    before, after = stock.whole, cured.whole
    yield Prediction("copies", round(copies), before.copies - after.copies)
    yield Prediction("bytes_moved", round(moved), before.bytes_moved - after.bytes_moved, "bytes")
    yield Prediction(
        "peak_bytes",
        before.peak_bytes - peak_without(seen, stock),
        before.peak_bytes - after.peak_bytes,
        "bytes",
    )


def peak_without(seen: Mapping[Key, Sighting], stock: StepProfile) -> int:
    """The stock step's peak, less what the findings' nodes hold that the cures take away."""
    held: defaultdict[tuple[int, int], float] = defaultdict(float)
    for key, sighting in seen.items():
        if sighting.saved_calls:
            where = (key.place, key.module)
            held[where] = max(held[where], sighting.peak)
    nodes = iter([node for node in stock.alias_nodes if (node.place, node.module) in held])
    node = next(nodes, None)
    peak = live = 0
    began: int | None = None  # bytes that were alive when the node started
    for at, size in stock.memory:
        while node is not None and at > node.start + node.duration:
            node, began = next(nodes, None), None
        if node is None or at < node.start:
            peak = max(peak, size)
        else:
            began = live if began is None else began
            lowered = size - round(held[node.place, node.module])
            peak = max(peak, min(size, max(lowered, began)))
        live = size
    return peak
