"""Merges the reports of several ranks into one: what they share is shown once."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from noalias.audit.baseline import fingerprint
from noalias.audit.result import Environment, RankSummary, Report, Steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noalias.audit.finding import Finding
    from noalias.audit.result import Rank


def merge(reports: Sequence[Report]) -> Report:
    """One report for all ranks.

    A finding that several ranks have (same code, file, source, operator, module) appears once,
    with the ranks and with the numbers of the rank that pays most for it. Price, predictions,
    memory and timeline are those of the slowest rank, since the others wait for it; every rank's
    own totals are in `Report.ranks`.

    Raises:
        ValueError: no reports, a report without a rank, the same rank twice, or ranks of
            different world sizes.
    """
    ranked = _check(reports)
    ordered = [report for _, report in ranked]
    slowest = max(ordered, key=_time)
    notes = _notes(ranked)
    return Report(
        findings=_findings(ranked),
        steps=Steps(
            max(report.steps.seen for report in ordered),
            max(report.steps.backward_calls for report in ordered),
            max(report.steps.seconds for report in ordered),
        ),
        price=slowest.price,
        predictions=slowest.predictions,
        memory=slowest.memory,
        timeline=slowest.timeline,
        opaque=tuple(dict.fromkeys(region for report in ordered for region in report.opaque)),
        environment=ordered[0].environment,
        ranks=tuple(
            RankSummary(
                rank,
                len(report.findings),
                report.steps,
                report.price.stock if report.price else None,
                report.price.cured if report.price else None,
            )
            for rank, report in ranked
        ),
        argv=ordered[0].argv,
        notes=notes,
        suppressed=max(report.suppressed for report in ordered),
    )


def _check(reports: Sequence[Report]) -> list[tuple[Rank, Report]]:
    if not reports:
        raise ValueError("no reports to merge")
    ranked: dict[int, tuple[Rank, Report]] = {}
    for report in reports:
        if report.rank is None:
            raise ValueError(
                "a report without a rank cannot be merged; it comes from a run of one process"
            )
        if report.rank.rank in ranked:
            raise ValueError(
                f"two reports come from rank {report.rank.rank}; give those of one run only"
            )
        ranked[report.rank.rank] = (report.rank, report)
    sizes = sorted({rank.world_size for rank, _ in ranked.values()})
    if len(sizes) > 1:
        raise ValueError(f"the reports come from runs of different world sizes: {sizes}")
    return [ranked[number] for number in sorted(ranked)]


def _time(report: Report) -> tuple[bool, float]:
    """Orders reports by time; a measured one comes before all that were not measured."""
    if report.price is None:
        return False, report.steps.seconds
    return True, report.price.stock.time_min


def _findings(ranked: Sequence[tuple[Rank, Report]]) -> tuple[Finding, ...]:
    """Findings in the order in which the lowest rank met them.

    A rank may have one fingerprint several times (the same text on two lines); the n-th of one
    rank goes with the n-th of another.
    """
    groups: dict[tuple[str, int], list[tuple[int, Finding]]] = defaultdict(list)
    for rank, report in ranked:
        times: dict[str, int] = defaultdict(int)
        for finding in report.findings:
            key = fingerprint(finding)
            groups[key, times[key]].append((rank.rank, finding))
            times[key] += 1
    merged = []
    for group in groups.values():
        dearest = max((finding for _, finding in group), key=lambda f: (f.bytes_moved, f.count))
        merged.append(replace(dearest, ranks=tuple(rank for rank, _ in group)))
    return tuple(merged)


def _notes(ranked: Sequence[tuple[Rank, Report]]) -> tuple[str, ...]:
    notes: list[str] = []
    size = ranked[0][0].world_size
    present = {rank.rank for rank, _ in ranked}
    missing = [str(number) for number in range(min(size, 100_000)) if number not in present]
    if missing:
        shown = ", ".join(missing[:8]) + (", …" if len(missing) > 8 else "")
        notes.append(f"{len(missing)} of {size} ranks have no report here: {shown}")
    kinds = {_versions(report.environment) for _, report in ranked}
    if len(kinds) > 1:
        notes.append("the ranks ran different versions or devices; those shown are the first's")
    by_note: dict[str, list[int]] = defaultdict(list)
    for rank, report in ranked:
        for note in report.notes:
            by_note[note].append(rank.rank)
    for note, ranks in by_note.items():
        where = "" if len(ranks) == len(ranked) else f"rank {', '.join(map(str, ranks))}: "
        notes.append(f"{where}{note}")
    return tuple(notes)


def _versions(environment: Environment) -> tuple[str, ...]:
    return environment.torch, environment.noalias, environment.python, environment.device
