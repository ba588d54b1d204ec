"""How few collectives could do, from who holds what: no rule and no plan of noalias is asked.

``linear`` is bilinear: each product ``x[a, k] w[o, k]`` is a summand of ``y[a, o]``. Without a
collective every rank computes from its own parts alone, and whatever the placement of the result
is (shards, copies, terms of a sum), its value is a sum of such local functions. The derivative of
that sum by ``x[a, k]`` and by ``w[o, k]`` is zero if no rank holds both, and that of ``y`` is not:
so each two entries that are multiplied must meet on some rank, or one collective at least is
needed. An entry that is a sum of terms must meet term by term. The same goes for the products
``g[a, o] w[o, k]`` and ``g[a, o] x[a, k]`` of the derivative. An operand that is the maximum of
terms is no sum of local functions to begin with. The bias is only added: it needs no meeting.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor
from torch.distributed.tensor import Partial, Shard

from noalias.bench.placement_cases import Case, placements

Shape = tuple[int, ...]


def bound(case: Case, output: str) -> tuple[int, int]:
    """The fewest collectives in forward, and in backward from a gradient placed like ``output``.

    As in ``noalias.bench.placements``, the gradient of an output in terms arrives replicated.
    """
    rows, features = math.prod(case.shape[:-1]), case.shape[-1]
    gradient = " ".join("R" if word.startswith("P") else word for word in output.split())
    x = _held(case.mesh, case.shape, case.input).reshape(_ranks(case), -1, rows, features)
    w = _held(case.mesh, (case.out_features, features), case.weight)
    whole = (*case.shape[:-1], case.out_features)
    g = _held(case.mesh, whole, gradient).reshape(_ranks(case), -1, rows, case.out_features)
    maximum = any("max" in text for text in (case.input, case.weight))
    forward = _meet("rtak,rsok->tsaok", x, w)
    backward = _meet("rtao,rsok->tsaok", g, w) and _meet("rtao,rsak->tsaok", g, x)
    return int(maximum or not forward), int(maximum or not backward)


def _ranks(case: Case) -> int:
    return math.prod(case.mesh)


def _meet(pairs: str, a: Tensor, b: Tensor) -> bool:
    return bool((torch.einsum(pairs, a, b) > 0).all())


def _held(mesh: Shape, shape: Shape, text: str) -> Tensor:
    """``[ranks, terms, *shape]``: 1 where the rank holds that term of that entry, else 0."""
    placed = placements(text)
    summed = [m for m, placement in enumerate(placed) if isinstance(placement, Partial)]
    coordinates = list(itertools.product(*map(range, mesh)))
    held = torch.zeros(len(coordinates), math.prod(mesh[m] for m in summed), math.prod(shape))
    for rank, coordinate in enumerate(coordinates):
        part = torch.arange(math.prod(shape)).reshape(shape)
        for m, placement in enumerate(placed):
            if isinstance(placement, Shard):
                pieces = part.chunk(mesh[m], placement.dim)
                here = coordinate[m]
                part = pieces[here] if here < len(pieces) else pieces[0].narrow(placement.dim, 0, 0)
        term = 0
        for m in summed:
            term = term * mesh[m] + coordinate[m]
        held[rank, term, part.flatten()] = 1
    return held.reshape(len(coordinates), -1, *shape)
