"""Says whether what a program showed under the cures is what stock PyTorch would have shown.

The reference is stock PyTorch on the same program, bit by bit. Where a cure takes an error or a
dropped hook away there is no such reference. Then stock PyTorch runs the program once more with the
view concerned given a storage of its own when it is made (`support.unaliased`): a tensor that is no
view, has the same values, geometry, version and gradient, and shares memory with nobody. If the
base was hidden nobody can tell the two apart, so the cured run must equal that run. If the base was
visible, its other observers see a difference, and the cured run equals neither reference.

Only views named by `aliases.replaceable` may be replaced. A guarded write or call that the cured
run refused with the error that it raises in one of the other runs is left out of the reference,
since nothing happened there.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from .aliases import calls_linear, engine_made, is_curable, late, outliving, replaceable
from .compare import Difference, Leniency, differences
from .execute import execute, reaches_beyond, view_places
from .reads import sums_may_be_reordered
from .record import Entries, Failure
from .source import Place, Reference, Refused
from .statements import Block, Call, Export, Foreach, Program, Statement, Write, walk

_MAX_REFERENCES = 64


@dataclass(frozen=True)
class Verdict:
    """``kind`` is equal, unaliased, rounding, signed_zero, limit or mismatch.

    ``limit``: the runs differ, and the program calls `as_strided` for elements that are not its
    argument's, or a custom Function on a later part that a failed call has left an ordinary tensor.
    These are documented limits of the cures.

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
    leniency = Leniency(engine_made=engine_made(program), one_node_of_linear=calls_linear(program))
    found = tuple(differences(stock, cured, leniency))
    if not found:
        return Verdict("equal")
    if all(item.signed_zero for item in found):
        return Verdict("signed_zero", found)
    if all(item.rounding or item.signed_zero for item in found) and sums_may_be_reordered(program):
        return Verdict("rounding", found)
    references = _References(program, stock, cured, found, leniency)
    reasons = references.match()
    if reasons is not None:
        return Verdict("unaliased", (), reasons)
    limit = _meets_assertion(cured) or reaches_beyond(program, references.everything())
    return Verdict("limit" if limit else "mismatch", found)


def _meets_assertion(cured: Entries) -> bool:
    """PyTorch's own about `retain_grad` of a later output; the cures' writes avoid it."""
    return any(
        isinstance(entry, Failure) and entry.message.startswith("out != nullptr INTERNAL ASSERT")
        for _, entry in cured
    )


class _References:
    """Stock runs of the program with some of its views replaced."""

    def __init__(
        self,
        program: Program,
        stock: Entries,
        cured: Entries,
        found: Sequence[Difference],
        leniency: Leniency,
    ) -> None:
        self._program = program
        self._stock = stock
        self._cured = cured
        self._raised = _failures(stock)
        self._leniency = replace(leniency, unaliased=True, outliving=outliving(program))
        self._candidates = replaceable(program, stock, found)
        self._exact = bool(found) and found[0].rounding
        self._seen: dict[Reference, float] = {}
        self._remaining: tuple[float, Sequence[Difference]] = (-1.0, ())

    def match(self) -> tuple[str, ...] | None:
        """Why the places are replaceable whose replacement the cured run equals.

        None where no set of them does.
        """
        reasons = self._match()
        if reasons is None:
            # What remains of the best one may have a reason of its own.
            _, remaining = self._remaining
            more = replaceable(self._program, self._stock, remaining)
            if more.keys() - self._candidates.keys():
                self._candidates = dict(sorted((more | self._candidates).items(), reverse=True))
                reasons = self._match()
        return reasons

    def _match(self) -> tuple[str, ...] | None:
        exact = Reference(exact_tangents=True)
        if _takes_tangents(self._program) and self._agreement((), exact) == math.inf:
            return ("tangent",)
        places = tuple(self._candidates)
        made = tuple(place for place in places if place[0] not in late(self._program))
        # Once all are replaced the program gets far, but a view of a replaced tensor may be none.
        views = view_places(self._program, [made])
        more = views | view_places(self._program, [(place,) for place in made])
        most = more | view_places(self._program, [(place,) for place in places])
        for found in dict.fromkeys(map(frozenset, (views, more, most))):
            reasons = self._search(tuple(place for place in places if place in found))
            if reasons is not None:
                return reasons
        return None

    def everything(self) -> Reference:
        """The reference that replaces whatever may be."""
        return Reference(frozenset(self._candidates), self._refused())

    def _search(self, places: tuple[Place, ...]) -> tuple[str, ...] | None:
        for bare in self._variants():
            for chosen in itertools.islice(self._sets(places, bare), _MAX_REFERENCES):
                if self._agreement(chosen, bare) == math.inf:
                    return tuple(sorted({self._candidates[place] for place in chosen}))
        return None

    def _variants(self) -> Iterator[Reference]:
        """References that replace nothing yet: which guarded writes they leave out, and how."""
        bare = Reference(refused=self._refused())
        yield bare
        # What further references have raised may add to them.
        while (refused := self._refused()) != bare.refused:
            bare = Reference(refused=refused)
            yield bare
        if len(bare.refused) > 1:
            # What is refused in the reference as well does more there than to raise: it may draw
            # random numbers.
            yield from (Reference(refused=(one,)) for one in bare.refused)
        if bare.refused:
            yield replace(bare, halfway=True)
            # A write that raises may also be one of several runs of its line, in a checkpoint.
            yield Reference()
        if any(
            isinstance(statement, Call) and statement.transform == "checkpoint_reentrant"
            for statement in walk(self._program)
        ):
            yield replace(bare, recorded=True)
        if _takes_tangents(self._program):
            yield replace(bare, exact_tangents=True)
        if any(isinstance(statement, Export) for statement in walk(self._program)):
            yield replace(bare, same_memory=True)
        if any(_is_guarded_write(statement) for statement in walk(self._program)):
            # The tensor itself, which is no view any more, is still what others were made from.
            yield replace(bare, put_back=True)

    def _refused(self) -> Refused:
        """Where the cured run raised, and was guarded, a curable error that another run raised."""
        raised = _failures(self._cured)
        found = []
        for site, statement in enumerate(walk(self._program)):
            entry = next(iter(raised.get(f"@{site}", ())), None)
            if (
                entry is not None
                and entry in self._raised.get(f"@{site}", ())
                and isinstance(statement, Block)
                and isinstance(statement.body[0], Write | Foreach | Call)
                and is_curable(entry.message)
            ):
                found.append((site, entry.kind, entry.message, len(raised[f"@{site}"])))
        return tuple(found)

    def _sets(self, places: tuple[Place, ...], bare: Reference) -> Iterator[tuple[Place, ...]]:
        """Sets of places to try: single ones, all, greedily grown ones, the rest by size."""
        yield from ((place,) for place in places)
        if len(places) > 2:
            yield places
        yield from self._grown(places, bare)
        yield from self._reduced(places, bare)
        for size in range(2, len(places)):
            yield from itertools.combinations(places, size)

    def _grown(self, places: tuple[Place, ...], bare: Reference) -> Iterator[tuple[Place, ...]]:
        """Adds the place whose replacement makes the records agree longest, while that helps."""
        chosen: tuple[Place, ...] = ()
        best, left = -1.0, list(places)
        while left:
            scores = {place: self._agreement((*chosen, place), bare) for place in left}
            place = max(scores, key=lambda item: scores[item])
            if scores[place] <= best:
                return
            chosen, best = (*chosen, place), scores[place]
            left.remove(place)
            yield chosen

    def _reduced(self, places: tuple[Place, ...], bare: Reference) -> Iterator[tuple[Place, ...]]:
        """Takes out the place without which the records agree longest, while that does no harm.

        Several errors that end the program show no progress until the last of them is gone.
        """
        best = self._agreement(places, bare)
        while len(places) > 2:
            fewer = [places[:i] + places[i + 1 :] for i in range(len(places))]
            places = max(fewer, key=lambda chosen: self._agreement(chosen, bare))
            if self._agreement(places, bare) < best:
                return
            best = self._agreement(places, bare)
            yield places

    def _agreement(self, places: tuple[Place, ...], bare: Reference) -> float:
        """How many entries agree from the start; infinity if all do, to the rounding of a sum.

        Less than one more for those that agree further on, so that of several errors the loss of
        one shows, whatever comes before. Where rounding is what the runs differ in first, they must
        agree without.
        """
        reference = replace(bare, unaliased=frozenset(places))
        if reference not in self._seen:
            expected = execute(self._program, reference)
            remaining = differences(expected, self._cured, self._leniency)
            if all((item.rounding and not self._exact) or item.signed_zero for item in remaining):
                self._seen[reference] = math.inf
            else:
                agreement = sum(1 for _ in self._common_prefix(expected)) + self._share(expected)
                self._seen[reference] = agreement
                self._remaining = max(
                    self._remaining, (agreement, remaining), key=lambda item: item[0]
                )
            for label, entries in _failures(expected).items():
                self._raised.setdefault(label, []).extend(entries)
        return self._seen[reference]

    def _share(self, reference: Entries) -> float:
        """Of the entries of both runs, the share that has an equal one of its label."""
        numbered = [_numbered(entries) for entries in (reference, self._cured)]
        equal = sum(
            not differences(
                [(key[0], numbered[0][key])], [(key[0], numbered[1][key])], self._leniency
            )
            for key in numbered[0].keys() & numbered[1].keys()
        )
        return 2 * equal / (len(reference) + len(self._cured) + 1)

    def _common_prefix(self, reference: Entries) -> Iterator[None]:
        for one, other in zip(reference, self._cured, strict=False):
            if differences([one], [other], self._leniency):
                return
            yield


def _numbered(entries: Entries) -> dict[tuple[str, int], object]:
    """By label and how many came before under it."""
    seen = Counter[str]()
    found: dict[tuple[str, int], object] = {}
    for label, entry in entries:
        found[label, seen[label]] = entry
        seen[label] += 1
    return found


def _is_guarded_write(statement: Statement) -> bool:
    return (
        isinstance(statement, Block)
        and statement.context == "guard"
        and isinstance(statement.body[0], Write | Foreach)
    )


def _takes_tangents(program: Program) -> bool:
    return any(
        (isinstance(statement, Block) and statement.context == "dual")
        or (isinstance(statement, Call) and statement.transform in ("jvp", "jacfwd"))
        for statement in walk(program)
    )


def _failures(entries: Entries) -> dict[str, list[Failure]]:
    found: dict[str, list[Failure]] = {}
    for label, entry in entries:
        if isinstance(entry, Failure):
            found.setdefault(label, []).append(entry)
    return found
