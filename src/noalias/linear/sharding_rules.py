"""How ``linear`` and its derivative distribute over one dimension of a device mesh.

Sizes and communication play no part here: a rule says which placements of the operands give which
placements of the results, with every local product the operator itself on local shards. A mesh of
several dimensions takes one rule for each (:mod:`noalias.linear.sharding_plan`).

Write ``y[*, o] = sum_k x[*, k] w[o, k] + b[o]``. Then every index of ``y`` may be split (batch,
column), the summed index may be split and gives terms of a sum (row), and the expression is linear
in ``x``, in ``w`` and, with them, in ``b`` (partial).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement

# An operand or a result that is not there: no bias, a gradient nobody asked for.
Placements = tuple["Placement | None", ...]

_LINEAR_REDUCTIONS = ("sum", "avg")


@dataclass(frozen=True)
class Rule:
    """Placements on one mesh dimension: of the operands and, if they are so, of the results.

    ``bias_once``: the results are terms of a sum, and a replicated bias belongs to one of them. A
    bias that is itself ``Partial`` in the same way is already in terms.
    """

    name: str
    operands: Placements
    results: Placements
    bias_once: bool = False


def is_shard(placement: Placement | None) -> bool:
    """``Shard`` or one of its kinds (``_StridedShard``), which have a ``dim``."""
    return isinstance(getattr(placement, "dim", None), int)


def shard_dim(placement: Placement | None) -> int:
    """The tensor dimension that ``placement`` shards, -1 if it shards none."""
    dim = getattr(placement, "dim", None)
    return dim if isinstance(dim, int) else -1


def is_linear_partial(placement: Placement | None) -> bool:
    """A ``Partial`` that linear maps pass through: a sum or a mean, and no masked kind of it."""
    return type(placement) is Partial and placement.reduce_op in _LINEAR_REDUCTIONS


def moved_to(placement: Placement, dim: int) -> Placement:
    """A shard of the same kind on another tensor dimension."""
    factor = getattr(placement, "split_factor", None)
    if factor is None:
        return Shard(dim)
    strided = cast("Callable[..., Placement]", type(placement))
    return strided(dim, split_factor=factor)


def _kinds(dim: int, *placements: Placement | None) -> list[Placement]:
    """The kinds of shard that operands bring for ``dim``, or the plain one."""
    brought = [p for p in placements if p is not None and shard_dim(p) == dim]
    return list(dict.fromkeys(brought)) or [Shard(dim)]


def linear_rules(ndim: int, operands: Placements) -> Iterator[Rule]:
    """Rules for ``(input, weight, bias) -> (output,)``; at the same cost the first is taken.

    Args:
        ndim: dimensions of the input, at least 1.
        operands: what the operands have now: which kinds of shard and of ``Partial`` are about.
    """
    x, w, b = operands
    replicate, last = Replicate(), ndim - 1
    yield Rule("replicate", (replicate, replicate, replicate), (replicate,))
    for dim in range(last):
        for shard in _kinds(dim, x):
            yield Rule("batch", (shard, replicate, replicate), (shard,))
    for shard in _kinds(0, w, b):
        yield Rule("column", (replicate, shard, shard), (moved_to(shard, last),))
    contracted = dict.fromkeys(moved_to(shard, 1) for shard in [*_kinds(last, x), *_kinds(1, w)])
    for shard in contracted:
        terms = b if is_linear_partial(b) and b == Partial() else replicate
        yield Rule("row", (moved_to(shard, last), shard, terms), (Partial(),), bias_once=True)
    for name, partial, place in (("partial input", x, 0), ("partial weight", w, 1)):
        if is_linear_partial(partial):
            both: list[Placement | None] = [replicate, replicate, replicate]
            both[place] = partial
            if b == partial:
                both[2] = partial
            # The mean of a bias that everybody adds is the bias.
            once = partial == Partial()
            yield Rule(name, tuple(both), (partial,), bias_once=once)


def linear_backward_rules(ndim: int, operands: Placements) -> Iterator[Rule]:
    """Rules for ``(input, grad_output, weight) -> (grad_input, grad_weight, grad_bias)``.

    ``grad_input = grad_output @ w``, ``grad_weight = sum over rows of grad_output x``,
    ``grad_bias = sum over rows of grad_output``.

    Args:
        ndim: dimensions of the input, at least 1.
        operands: as for :func:`linear_rules`.
    """
    x, g, w = operands
    replicate, last, terms = Replicate(), ndim - 1, Partial()
    yield Rule("replicate", (replicate,) * 3, (replicate,) * 3)
    for dim in range(last):
        for shard in _kinds(dim, g, x):
            yield Rule("batch", (shard, shard, replicate), (shard, terms, terms))
    columns = dict.fromkeys(moved_to(shard, 0) for shard in [*_kinds(last, g), *_kinds(0, w)])
    for shard in columns:
        yield Rule("column", (replicate, moved_to(shard, last), shard), (terms, shard, shard))
    contracted = dict.fromkeys(moved_to(shard, 1) for shard in [*_kinds(last, x), *_kinds(1, w)])
    for shard in contracted:
        outer = moved_to(shard, last)
        yield Rule("row", (outer, replicate, shard), (outer, shard, replicate))
    if is_linear_partial(g):
        yield Rule("partial gradient", (replicate, g, replicate), (g, g, g))
    if is_linear_partial(x):
        yield Rule("partial input", (x, replicate, replicate), (replicate, x, replicate))
    if is_linear_partial(w):
        yield Rule("partial weight", (replicate, replicate, w), (w, replicate, replicate))


def present(placements: Sequence[Placement | None], there: Sequence[bool]) -> Placements:
    """``placements`` with None for what is not there."""
    return tuple(p if is_there else None for p, is_there in zip(placements, there, strict=True))
