"""Every rule, on one process: split by its operands, multiply, join by its results."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement

from noalias.linear.sharding_rules import Rule, linear_backward_rules, linear_rules, shard_dim

PARTS = 3
SHAPE, OUT = (2, 5, 7), 4  # nothing that 3 divides; one dimension smaller than 3


def split(tensor: Tensor, placement: Placement | None) -> list[Tensor]:
    if shard_dim(placement) >= 0:
        parts = list(torch.chunk(tensor, PARTS, dim=shard_dim(placement)))
        empty = parts[0].narrow(shard_dim(placement), 0, 0)
        return parts + [empty] * (PARTS - len(parts))
    if isinstance(placement, Partial):
        terms = [torch.randn_like(tensor) for _ in range(PARTS - 1)]
        scale = PARTS if placement.reduce_op == "avg" else 1
        return [*terms, tensor * scale - sum(terms)]
    return [tensor] * PARTS


def join(parts: list[Tensor], placement: Placement | None) -> Tensor:
    if shard_dim(placement) >= 0:
        return torch.cat(parts, dim=shard_dim(placement))
    if isinstance(placement, Partial):
        return sum(parts) / (PARTS if placement.reduce_op == "avg" else 1)
    for part in parts[1:]:
        torch.testing.assert_close(part, parts[0])
    return parts[0]


def operands(*shapes: tuple[int, ...]) -> list[Tensor]:
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


def contexts() -> list[tuple[Placement | None, ...]]:
    """Placements that bring rules of their own: partial sums and means of each operand."""
    replicate = Replicate()
    found: list[tuple[Placement | None, ...]] = [(replicate,) * 3]
    for kind in ("sum", "avg"):
        for place in range(3):
            found.append(tuple(Partial(kind) if i == place else replicate for i in range(3)))
        found.append((Partial(kind), replicate, Partial(kind)))
        found.append((replicate, Partial(kind), Partial(kind)))
    return found


FORWARD = {rule: None for now in contexts() for rule in linear_rules(len(SHAPE), now)}
BACKWARD = {rule: None for now in contexts() for rule in linear_backward_rules(len(SHAPE), now)}


def say(rule: Rule) -> str:
    return f"{rule.name} {' '.join(map(str, rule.operands))}"


@pytest.mark.parametrize("rule", FORWARD, ids=say)
def test_local_products_join_to_the_output(rule: Rule) -> None:
    x, w, b = operands(SHAPE, (OUT, SHAPE[-1]), (OUT,))
    pieces = [split(t, p) for t, p in zip((x, w, b), rule.operands, strict=True)]
    replicated_once = rule.bias_once and rule.operands[2] == Replicate()
    outputs = [
        F.linear(pieces[0][i], pieces[1][i], None if replicated_once and i > 0 else pieces[2][i])
        for i in range(PARTS)
    ]
    torch.testing.assert_close(join(outputs, rule.results[0]), F.linear(x, w, b))


@pytest.mark.parametrize("rule", BACKWARD, ids=say)
def test_local_gradients_join_to_the_gradients(rule: Rule) -> None:
    x, g, w = operands(SHAPE, (*SHAPE[:-1], OUT), (OUT, SHAPE[-1]))
    pieces = [split(t, p) for t, p in zip((x, g, w), rule.operands, strict=True)]
    whole = gradients(x, g, w)
    local = [gradients(*(piece[i] for piece in pieces)) for i in range(PARTS)]
    for index, wanted in enumerate(whole):
        got = join([part[index] for part in local], rule.results[index])
        torch.testing.assert_close(got, wanted)


def gradients(x: Tensor, g: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return g @ w, torch.einsum("abo,abk->ok", g, x), g.sum((0, 1))


def test_shards_of_every_kind_that_operands_bring_have_a_rule() -> None:
    for dim in range(2):
        now = (Shard(dim), Replicate(), Replicate())
        assert any(rule.operands == now for rule in linear_rules(3, now))


def test_a_maximum_is_no_sum_and_has_no_rule() -> None:
    now = (Partial("max"), Replicate(), Replicate())
    assert not any(rule.operands[0] == Partial("max") for rule in linear_rules(3, now))
