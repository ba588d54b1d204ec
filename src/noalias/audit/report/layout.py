"""A layered layout for the small backward graphs of findings.

Nodes go into layers by their longest path from a root, edges that span layers are routed through
points of their own, and each layer is ordered by the mean position of its neighbours (Sugiyama's
method, with barycentres and no further refinement: excerpts have a dozen nodes).
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noalias.audit.finding import Graph

GAP_X = 18.0
BEND_WIDTH = 10.0


@dataclass(frozen=True, slots=True)
class Placed:
    """Centre of each node by id, in layers counted from the top, and the bends of each edge."""

    x: Mapping[str, float]
    layer: Mapping[str, int]
    paths: tuple[tuple[tuple[float, int], ...], ...]
    width: float
    layers: int


def place(graph: Graph, widths: Mapping[str, float]) -> Placed:
    """Lay out `graph`; `widths` holds the drawn width of each node by id."""
    layer = _layers(graph)
    rows: dict[int, list[str]] = defaultdict(list)
    for node in graph.nodes:
        rows[layer[node.id]].append(node.id)
    width = dict(widths)
    chains: list[list[str]] = []
    above: dict[str, list[str]] = defaultdict(list)
    below: dict[str, list[str]] = defaultdict(list)
    level = dict(layer)
    for index, (source, target) in enumerate(graph.edges):
        first, last = layer[source], layer[target]
        step = 1 if last >= first else -1
        chain = [source]
        for row in range(first + step, last, step):
            bend = f"\x00{index}.{row}"
            level[bend], width[bend] = row, BEND_WIDTH
            rows[row].append(bend)
            chain.append(bend)
        chain.append(target)
        for one, two in itertools.pairwise(chain):
            upper, lower = (one, two) if step > 0 else (two, one)
            below[upper].append(lower)
            above[lower].append(upper)
        chains.append(chain)
    ordered = [rows[i] for i in range(max(rows, default=-1) + 1)]
    _order(ordered, above, below)
    x = _columns(ordered, width, above, below)
    left = min((x[n] - width[n] / 2 for n in x), default=0.0)
    right = max((x[n] + width[n] / 2 for n in x), default=0.0)
    x = {name: value - left for name, value in x.items()}
    paths = tuple(tuple((x[name], level[name]) for name in chain) for chain in chains)
    return Placed(x, layer, paths, right - left, len(ordered))


def _layers(graph: Graph) -> dict[str, int]:
    """Longest path from a root. An edge that closes a cycle, which no autograd graph has but a
    file might, is left out of the count."""
    waiting: dict[str, int] = {node.id: 0 for node in graph.nodes}
    after: dict[str, list[str]] = defaultdict(list)
    for source, target in graph.edges:
        waiting[target] += 1
        after[source].append(target)
    layer = dict.fromkeys(waiting, 0)
    ready = [name for name, count in waiting.items() if count == 0]
    done: set[str] = set()
    while len(done) < len(waiting):
        if not ready:
            ready.append(next(name for name in waiting if name not in done))
        name = ready.pop()
        if name in done:
            continue
        done.add(name)
        for target in after[name]:
            if target in done:
                continue
            layer[target] = max(layer[target], layer[name] + 1)
            waiting[target] -= 1
            if waiting[target] == 0:
                ready.append(target)
    return layer


def _order(
    rows: list[list[str]], above: Mapping[str, list[str]], below: Mapping[str, list[str]]
) -> None:
    for _ in range(4):
        for sweep, neighbours in ((rows, above), (rows[::-1], below)):
            place = {name: i / max(len(row), 1) for row in rows for i, name in enumerate(row)}
            for row in sweep:
                means = {
                    name: _mean([place[n] for n in neighbours.get(name, [])], place[name])
                    for name in row
                }
                row.sort(key=means.__getitem__)
                place.update({name: i / max(len(row), 1) for i, name in enumerate(row)})


def _columns(
    rows: list[list[str]],
    width: Mapping[str, float],
    above: Mapping[str, list[str]],
    below: Mapping[str, list[str]],
) -> dict[str, float]:
    x: dict[str, float] = {}
    for row in rows:
        total = sum(width[name] for name in row) + GAP_X * (len(row) - 1)
        edge = -total / 2
        for name in row:
            x[name] = edge + width[name] / 2
            edge += width[name] + GAP_X
    for _ in range(3):
        for sweep, neighbours in ((rows, above), (rows[::-1], below)):
            for row in sweep:
                wished = {n: _mean([x[m] for m in neighbours.get(n, [])], x[n]) for n in row}
                _settle(row, wished, width, x)
    return x


def _settle(
    row: list[str], wished: Mapping[str, float], width: Mapping[str, float], x: dict[str, float]
) -> None:
    """Put a row where its nodes wish to be, as far as their order and widths allow."""
    previous: str | None = None
    for name in row:
        x[name] = wished[name]
        if previous is not None:
            nearest = x[previous] + (width[previous] + width[name]) / 2 + GAP_X
            x[name] = max(x[name], nearest)
        previous = name
    drift = _mean([x[name] - wished[name] for name in row], 0.0)
    for name in row:
        x[name] -= drift


def _mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
