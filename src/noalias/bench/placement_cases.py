"""The placements that are compared: stock ``F.linear`` on DTensors against ``noalias.linear``."""

from __future__ import annotations

from dataclasses import dataclass

from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement


@dataclass(frozen=True)
class Case:
    """One way to place the operands of ``linear`` on a mesh.

    ``input``, ``weight``, ``bias``: a placement for each mesh dimension, as ``S0``, ``R``, ``P``
    (a sum) or ``Pavg``, ``Pmax``; no bias at all for ``None``. ``collectives``: the fewest with
    which the values can be right, in forward and in backward. ``report``: a public report of what
    stock PyTorch does here.
    """

    name: str
    mesh: tuple[int, ...]
    shape: tuple[int, ...]
    out_features: int
    input: str
    weight: str
    bias: str | None
    collectives: tuple[int, int] = (0, 0)
    report: str = ""

    @property
    def operands(self) -> str:
        """The placements on one line."""
        bias = "no bias" if self.bias is None else self.bias
        return f"{self.input} × {self.weight} + {bias}"


def placements(text: str) -> tuple[Placement, ...]:
    """``"S0 R P"`` to ``(Shard(0), Replicate(), Partial())``.

    Raises:
        ValueError: an unknown abbreviation, named.
    """
    return tuple(_placement(word) for word in text.split())


def _placement(word: str) -> Placement:
    if word == "R":
        return Replicate()
    if word.startswith("S") and word[1:].isdigit():
        return Shard(int(word[1:]))
    if word.startswith("P"):
        return Partial(word[1:] or "sum")
    raise ValueError(f"{word!r} is no placement: S<dim>, R, P, Pavg or Pmax")


def short(placed: tuple[Placement, ...]) -> str:
    """The way back of :func:`placements`."""
    words = []
    for placement in placed:
        if isinstance(placement, Shard):
            words.append(f"S{placement.dim}")
        elif isinstance(placement, Partial):
            words.append("P" if placement.reduce_op == "sum" else f"P{placement.reduce_op}")
        else:
            words.append("R")
    return " ".join(words)


_TWO_AXES = "https://github.com/pytorch/pytorch/pull/186282"
_VIEW_FAILS = "https://github.com/pytorch/pytorch/issues/172102"
_REPLICATE_FAILS = "https://github.com/pytorch/pytorch/issues/143748"

CASES: tuple[Case, ...] = (
    # One mesh dimension: batch and sequence.
    Case("batch, even", (4,), (8, 6, 12), 16, "S0", "R", "R"),
    Case("batch, uneven", (4,), (5, 6, 12), 16, "S0", "R", "R"),
    Case("batch smaller than the mesh", (4,), (2, 6, 12), 16, "S0", "R", "R"),
    Case("batch of one", (4,), (1, 6, 12), 16, "S0", "R", "R"),
    Case("batch of one, no bias", (4,), (1, 6, 12), 16, "S0", "R", None),
    Case("sequence, even", (4,), (2, 8, 12), 16, "S1", "R", "R", report=_VIEW_FAILS),
    Case("sequence, uneven", (4,), (2, 7, 12), 16, "S1", "R", "R"),
    Case("sequence smaller than the mesh", (4,), (3, 2, 12), 16, "S1", "R", "R"),
    Case("sequence of one", (4,), (3, 1, 12), 16, "S1", "R", "R"),
    Case("sequence, no bias", (4,), (2, 7, 12), 16, "S1", "R", None),
    Case("4-D, third dimension, uneven", (4,), (2, 3, 5, 12), 16, "S2", "R", "R"),
    Case("vector", (4,), (12,), 16, "R", "S0", "S0"),
    Case("matrix, uneven rows", (4,), (7, 12), 16, "S0", "R", "R"),
    # One mesh dimension: tensor parallel.
    Case("column", (4,), (2, 6, 12), 16, "R", "S0", "S0"),
    Case("column, uneven", (4,), (2, 6, 12), 10, "R", "S0", "S0", report=_REPLICATE_FAILS),
    Case("column, fewer features than devices", (4,), (2, 6, 12), 3, "R", "S0", "S0"),
    Case("column, no bias", (4,), (2, 6, 12), 16, "R", "S0", None),
    Case("column, by the bias", (4,), (2, 6, 12), 16, "R", "R", "S0"),
    Case("row", (4,), (2, 6, 12), 16, "S2", "S1", "R"),
    Case("row, uneven", (4,), (2, 6, 10), 16, "S2", "S1", "R"),
    Case("row, fewer features than devices", (4,), (2, 6, 3), 16, "S2", "S1", "R"),
    Case("row, no bias", (4,), (2, 6, 12), 16, "S2", "S1", None),
    Case("row, replicated input", (4,), (2, 6, 12), 16, "R", "S1", "R"),
    Case("row, replicated weight", (4,), (2, 6, 12), 16, "S2", "R", "R"),
    Case("row, bias in terms", (4,), (2, 6, 12), 16, "S2", "S1", "P"),
    # One mesh dimension: sums.
    Case("input in terms", (4,), (5, 6, 12), 16, "P", "R", "R"),
    Case("input and bias in terms", (4,), (5, 6, 12), 16, "P", "R", "P"),
    Case("input in means", (4,), (5, 6, 12), 16, "Pavg", "R", "R"),
    Case("weight in terms", (4,), (5, 6, 12), 16, "R", "P", "R"),
    # Two mesh dimensions.
    Case("batch twice", (2, 2), (8, 6, 12), 16, "S0 S0", "R R", "R R"),
    Case("batch twice, uneven", (2, 2), (5, 6, 12), 16, "S0 S0", "R R", "R R"),
    Case("sequence twice", (2, 2), (3, 8, 12), 16, "S1 S1", "R R", "R R", report=_TWO_AXES),
    Case("sequence twice, no bias", (2, 2), (3, 8, 12), 16, "S1 S1", "R R", None),
    Case("sequence twice, uneven", (2, 2), (3, 5, 12), 16, "S1 S1", "R R", "R R"),
    Case("sequence twice, smaller", (2, 2), (3, 3, 12), 16, "S1 S1", "R R", "R R"),
    Case("batch and sequence", (2, 2), (4, 6, 12), 16, "S0 S1", "R R", "R R"),
    Case("batch and sequence, uneven", (2, 2), (3, 5, 12), 16, "S0 S1", "R R", "R R"),
    Case("uneven batch, column", (2, 2), (3, 6, 12), 16, "S0 R", "R S0", "R S0"),
    Case("uneven batch, row", (2, 2), (3, 6, 12), 16, "S0 S2", "R S1", "R R"),
    Case("sequence, column", (2, 2), (3, 5, 12), 16, "S1 R", "R S0", "R S0"),
    Case("sequence, row", (2, 2), (3, 6, 12), 16, "S1 S2", "R S1", "R R"),
    Case("column twice", (2, 2), (3, 6, 12), 14, "R R", "S0 S0", "S0 S0"),
    Case("row twice", (2, 2), (3, 6, 14), 16, "S2 S2", "S1 S1", "R R"),
    Case("column and row", (2, 2), (3, 6, 12), 16, "R S2", "S0 S1", "S0 R"),
    Case("row, input in terms", (2, 2), (3, 6, 12), 16, "S2 P", "S1 R", "R R"),
    # Three mesh dimensions, one of them of size 1.
    Case("batch, sequence, column", (2, 2, 1), (3, 5, 12), 16, "S0 S1 R", "R R S0", "R R S0"),
    Case("sequence twice, row", (2, 1, 2), (3, 6, 12), 16, "S1 S1 S2", "R R S1", "R R R"),
    Case(
        "batch, sequence twice", (1, 2, 2), (3, 8, 12), 16, "S0 S1 S1", "R R R", "R R R",
        report=_TWO_AXES,
    ),
    Case(
        "uneven batch, row, input in terms", (2, 2, 1), (3, 6, 12), 16, "P S0 S2", "R R S1",
        "R R R",
    ),
    # Nothing is free here.
    Case("weight sharded as the batch is", (4,), (8, 6, 12), 16, "S0", "S0", "R", (1, 1)),
    Case("weight in terms, batch sharded", (4,), (8, 6, 12), 16, "S0", "P", "R", (1, 1)),
    Case("input in terms, column", (4,), (5, 6, 12), 16, "P", "S0", "S0", (1, 1)),
    Case("input in maxima", (4,), (5, 6, 12), 16, "Pmax", "R", "R", (1, 1)),
)  # fmt: skip
