"""Which rule to take on each mesh dimension: one that does not communicate, if there is one."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from torch.distributed.tensor import Replicate
from torch.distributed.tensor.placement_types import Placement

from noalias.linear.sharding_rules import (
    Placements,
    Rule,
    is_shard,
    linear_backward_rules,
    linear_rules,
    present,
    shard_dim,
)

Shape = tuple[int, ...]

RULES: dict[str, Callable[[int, Placements], Iterator[Rule]]] = {
    "linear": linear_rules,
    "linear_backward": linear_backward_rules,
}


class Operand(NamedTuple):
    """A tensor to be distributed: global shape, a placement for each mesh dimension, bytes each.

    ``in_order``: where several mesh dimensions shard one tensor dimension, they do so from the
    first to the last, as everywhere unless somebody asked for another order.
    """

    shape: Shape
    placements: tuple[Placement, ...]
    itemsize: int
    in_order: bool = True


@dataclass(frozen=True)
class Plan:
    """Placements of operands and results, one for each mesh dimension; None for what is not there.

    ``bias_once``: the mesh dimensions along which only the first coordinate adds the bias.
    ``bytes``: an estimate of what a device receives to bring the operands there.
    """

    rules: tuple[str, ...]
    operands: tuple[tuple[Placement, ...] | None, ...]
    results: tuple[tuple[Placement, ...], ...]
    bias_once: tuple[int, ...]
    bytes: float


class _Cost(NamedTuple):
    """Compared in this order."""

    collectives: int
    bytes: float
    changes: int

    def plus(self, other: _Cost) -> _Cost:
        return _Cost(
            self.collectives + other.collectives,
            self.bytes + other.bytes,
            self.changes + other.changes,
        )


_IMPOSSIBLE = _Cost(1 << 30, math.inf, 1)


@functools.lru_cache(maxsize=4096)
def plan(
    operator: str,
    ndim: int,
    mesh: Shape,
    operands: tuple[Operand | None, ...],
    results: tuple[Shape | None, ...],
) -> Plan:
    """The cheapest way to distribute ``operator``.

    Args:
        operator: ``linear`` or ``linear_backward``.
        ndim: dimensions of the input.
        mesh: devices along each mesh dimension.
        operands: ``(input, weight, bias)`` or ``(input, grad_output, weight)``; None where absent.
        results: global shapes; None for a gradient that nobody asked for.

    Returns:
        A plan without communication where one exists. Otherwise one with the fewest collectives,
        and among those the one that moves the fewest bytes: operands to where the rule wants them,
        and ``Partial`` results to their sum, which somebody has to pay for later. The choice
        depends on global shapes and placements alone, so that every rank makes the same.
    """
    now = [
        tuple(None if operand is None else operand.placements[m] for operand in operands)
        for m in range(len(mesh))
    ]
    choices = [_distinct(operator, ndim, now[m], results) for m in range(len(mesh))]
    settled = [next((r for r in c if _fits(r, now[m])), None) for m, c in enumerate(choices)]
    if all(rule is not None for rule in settled) and all(o is None or o.in_order for o in operands):
        return _assemble([r for r in settled if r is not None], operands, 0.0)

    @functools.cache
    def moved(index: int, target: tuple[Placement, ...]) -> _Cost:
        operand = operands[index]
        return _Cost(0, 0, 0) if operand is None else redistribution(operand, target, mesh)

    def cost(rules: tuple[Rule, ...]) -> _Cost:
        total = _Cost(0, 0, 0)
        for index, operand in enumerate(operands):
            if operand is not None:
                target = tuple(_target(rule.operands[index]) for rule in rules)
                total = total.plus(moved(index, target))
        if total.collectives == 0:
            return total
        return total.plus(_Cost(0, _pending(rules, mesh, operands, results), 0))

    best = min(itertools.product(*choices), key=cost)
    return _assemble(list(best), operands, cost(best).bytes)


def redistribution(operand: Operand, target: tuple[Placement, ...], mesh: Shape) -> _Cost:
    """Bring ``operand`` to ``target``: collectives, bytes received by a device, changes.

    Replicated to sharded is free: every device keeps its part. It stays free under further shards
    of the same tensor dimension only if it comes after them in mesh order, since what is split
    again is the part that the mesh dimensions before it have left. Rings are assumed: an
    all-gather or a reduce-scatter over ``n`` devices moves ``(n - 1) / n`` of its larger side, an
    all-reduce twice that.
    """
    wide = [m for m, size in enumerate(mesh) if size > 1]
    changed = [m for m in wide if operand.placements[m] != target[m]]
    if not changed and operand.in_order:
        return _Cost(0, 0, 0)
    local = float(operand.itemsize * math.prod(operand.shape))
    for m in wide:
        if is_shard(operand.placements[m]):
            local /= mesh[m]
    moved, collectives = 0.0, 0
    for m in changed:
        if is_shard(operand.placements[m]) or operand.placements[m] == Replicate():
            if not (is_shard(target[m]) or target[m] == Replicate()):
                return _IMPOSSIBLE  # no rule asks for it
            continue
        share = local * (mesh[m] - 1) / mesh[m]
        collectives += 1
        if is_shard(target[m]):
            moved, local = moved + share, local / mesh[m]
        elif target[m] == Replicate():
            moved += 2 * share
        else:
            return _IMPOSSIBLE  # terms of another kind of sum
    for m in _undone(operand, target, wide):
        collectives += 1
        if is_shard(target[m]) and shard_dim(target[m]) != shard_dim(operand.placements[m]):
            moved += local * (mesh[m] - 1) / mesh[m]
        else:
            moved, local = moved + local * (mesh[m] - 1), local * mesh[m]
    return _Cost(collectives, moved, max(len(changed), 1))


def _undone(operand: Operand, target: tuple[Placement, ...], wide: list[int]) -> list[int]:
    """The mesh dimensions whose shards cannot stay, the last applied first."""
    undone: list[int] = []
    for dim in range(len(operand.shape)):
        before = [
            (m, operand.placements[m]) for m in wide if shard_dim(operand.placements[m]) == dim
        ]
        after = [(m, target[m]) for m in wide if shard_dim(target[m]) == dim]
        same = 0
        while same < min(len(before), len(after)) and before[same] == after[same]:
            same += 1
        if not operand.in_order and len(before) > 1:
            same = 0
        undone += [m for m, _ in before[same:]]
    return sorted(undone, reverse=True)


def _distinct(
    operator: str, ndim: int, now: Placements, results: tuple[Shape | None, ...]
) -> list[Rule]:
    """The rules for operands placed ``now``, without those that differ in nothing that is there."""
    rules: dict[tuple[Placements, Placements], Rule] = {}
    for rule in RULES[operator](ndim, now):
        wanted = present(rule.operands, [placement is not None for placement in now])
        given = present(rule.results, [shape is not None for shape in results])
        rules.setdefault((wanted, given), rule)
    return list(rules.values())


def _fits(rule: Rule, now: Placements) -> bool:
    pairs = zip(rule.operands, now, strict=True)
    return all(placement is None or wanted == placement for wanted, placement in pairs)


def _target(placement: Placement | None) -> Placement:
    return Replicate() if placement is None else placement


def _pending(
    rules: tuple[Rule, ...],
    mesh: Shape,
    operands: tuple[Operand | None, ...],
    results: tuple[Shape | None, ...],
) -> float:
    """Bytes that summing the ``Partial`` results will move, whoever asks for their sum."""
    itemsize = max(operand.itemsize for operand in operands if operand is not None)
    total = 0.0
    for index, shape in enumerate(results):
        if shape is None:
            continue
        local = float(itemsize * math.prod(shape))
        for m, rule in enumerate(rules):
            if is_shard(rule.results[index]):
                local /= mesh[m]
        for m, rule in enumerate(rules):
            if not is_shard(rule.results[index]) and rule.results[index] != Replicate():
                total += 2 * local * (mesh[m] - 1) / mesh[m]
    return total


def _assemble(rules: list[Rule], operands: tuple[Operand | None, ...], moved: float) -> Plan:
    return Plan(
        rules=tuple(rule.name for rule in rules),
        operands=tuple(
            None if operand is None else tuple(_target(rule.operands[i]) for rule in rules)
            for i, operand in enumerate(operands)
        ),
        results=tuple(
            tuple(_target(rule.results[i]) for rule in rules) for i in range(len(rules[0].results))
        ),
        bias_once=tuple(
            m for m, r in enumerate(rules) if r.bias_once and r.operands[2] == Replicate()
        ),
        bytes=moved,
    )
