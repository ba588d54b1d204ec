"""Says whether what a program showed under the cures is what stock PyTorch would have shown.

The reference is stock PyTorch on the same program, bit by bit. Where a cure takes an error or a
dropped hook away there is no such reference. Then stock PyTorch runs the program once more with the
view concerned given a storage of its own when it is made (`support.unaliased`): a tensor that is no
view, has the same values, geometry, version and gradient, and shares memory with nobody. If the
base was hidden nobody can tell the two apart, so the cured run must equal that run. If the base was
visible, its other observers see a difference, and the cured run equals neither reference.

Only views named by `aliases.replaceable` may be replaced, and a guarded write that the cured run
refused as stock did is left out of the reference, since nothing happened there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from .aliases import engine_made, is_curable, replaceable
from .compare import Difference, Leniency, differences
from .execute import execute, view_sites
from .reads import sums_may_be_reordered
from .record import Entries, Failure
from .source import Reference
from .statements import Block, Foreach, Program, Write, walk

_MAX_REFERENCES = 64


@dataclass(frozen=True)
class Verdict:
    """``kind`` is equal, unaliased, rounding, signed_zero or mismatch.

    ``reasons``: for unaliased, why the replaced sites may be replaced.
    """

    kind: str
    differences: tuple[Difference, ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        return self.differences[0].what if self.differences else ""


def judge(program: Program, stock: Entries, cured: Entries) -> Verdict:
    """Compares a cured run with its references. Call it with the cures off."""
    found = tuple(differences(stock, cured, Leniency(engine_made=engine_made(program))))
    if not found:
        return Verdict("equal")
    if all(item.signed_zero for item in found):
        return Verdict("signed_zero", found)
    if all(item.rounding or item.signed_zero for item in found) and sums_may_be_reordered(program):
        return Verdict("rounding", found)
    reasons = _References(program, stock, cured).match()
    return Verdict("mismatch", found) if reasons is None else Verdict("unaliased", (), reasons)


class _References:
    """Stock runs of the program with some of its views replaced."""

    def __init__(self, program: Program, stock: Entries, cured: Entries) -> None:
        self._program = program
        self._cured = cured
        self._refused = _refused(program, stock, cured)
        self._leniency = Leniency(unaliased=True, engine_made=engine_made(program))
        self._candidates = replaceable(program, stock)
        self._seen: dict[tuple[int, ...], float] = {}

    def match(self) -> tuple[str, ...] | None:
        """Why the sites are replaceable whose replacement the cured run equals.

        None where no set of them does.
        """
        sites = tuple(self._candidates)
        if not sites:
            return None
        # Once all are replaced the program gets far, but a view of a replaced tensor may be none.
        views = view_sites(self._program, [sites])
        found = self._search(views)
        if found is None:
            more = views | view_sites(self._program, [(site,) for site in sites])
            found = self._search(more) if more != views else None
            if found is None and self._refused:
                # A write that raises may also be one of several runs of its line, in a checkpoint.
                self._refused = ()
                self._seen.clear()
                found = self._search(more)
        return found

    def _search(self, views: set[int]) -> tuple[str, ...] | None:
        sites = tuple(site for site in self._candidates if site in views)
        for chosen in itertools.islice(self._sets(sites), _MAX_REFERENCES):
            if self._agreement(chosen) == math.inf:
                return self._reasons(chosen)
        return None

    def _sets(self, sites: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Sets of sites to try: single ones, all, greedily grown ones, the rest by size."""
        yield from ((site,) for site in sites)
        if len(sites) > 2:
            yield sites
        yield from self._grown(sites)
        for size in range(2, len(sites)):
            yield from itertools.combinations(sites, size)

    def _grown(self, sites: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Adds the site whose replacement makes the records agree longest, while that helps."""
        chosen: tuple[int, ...] = ()
        best, left = -1.0, list(sites)
        while left:
            scores = {site: self._agreement((*chosen, site)) for site in left}
            site = max(scores, key=lambda item: scores[item])
            if scores[site] <= best:
                return
            chosen, best = (*chosen, site), scores[site]
            left.remove(site)
            yield chosen

    def _reasons(self, sites: tuple[int, ...]) -> tuple[str, ...]:
        return tuple(sorted({self._candidates[site] for site in sites}))

    def _agreement(self, sites: tuple[int, ...]) -> float:
        """How many entries agree from the start; infinity if all do, to the rounding of a sum."""
        sites = tuple(sorted(sites))
        if sites not in self._seen:
            reference = execute(self._program, Reference(frozenset(sites), self._refused))
            remaining = differences(reference, self._cured, self._leniency)
            if all(item.rounding or item.signed_zero for item in remaining):
                self._seen[sites] = math.inf
            else:
                self._seen[sites] = sum(1 for _ in self._common_prefix(reference))
        return self._seen[sites]

    def _common_prefix(self, reference: Entries) -> Iterator[None]:
        for one, other in zip(reference, self._cured, strict=False):
            if differences([one], [other], self._leniency):
                return
            yield


def _refused(program: Program, stock: Entries, cured: Entries) -> tuple[tuple[int, str, str], ...]:
    """Guarded writes on which the cured run raised stock's own curable error."""
    raised = {
        label: entry
        for label, entry in cured
        if isinstance(entry, Failure) and (label, entry) in stock
    }
    found = []
    for site, statement in enumerate(walk(program)):
        entry = raised.get(f"@{site}")
        if (
            entry is not None
            and isinstance(statement, Block)
            and isinstance(statement.body[0], Write | Foreach)
            and is_curable(entry.message)
        ):
            found.append((site, entry.kind, entry.message))
    return tuple(found)
