"""The same rules through DTensor's public interface, for planners that ask what linear allows.

What that interface cannot say: :mod:`noalias.linear.sharding`, Note [Who runs the rule].
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.distributed.tensor import Partial
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor.placement_types import Placement

from noalias.linear.sharding_plan import RULES
from noalias.linear.sharding_rules import Placements, present

_Pairs = list[tuple[list["Placement | None"], list["Placement | None"]]]


def register() -> None:
    """Register both operators with DTensor's sharding propagation."""
    from torch.distributed.tensor.experimental import register_sharding

    def linear_sharding(
        input: DTensorSpec,
        weight: DTensorSpec,
        bias: DTensorSpec | None = None,
    ) -> _Pairs:
        there = (True, True, bias is not None)
        return _pairs("linear", input.ndim, there, (True,), bias_in_terms=True)

    def linear_backward_sharding(
        self: DTensorSpec | None,
        grad_output: DTensorSpec,
        weight: DTensorSpec | None,
        output_mask: Sequence[bool],
    ) -> _Pairs:
        there = (self is not None, True, weight is not None)
        pairs = _pairs("linear_backward", grad_output.ndim, there, tuple(output_mask))
        return [(results, [*operands, None]) for results, operands in pairs]

    register_sharding(torch.ops.noalias.linear.default)(linear_sharding)
    register_sharding(torch.ops.noalias.linear_backward.default)(linear_backward_sharding)


def _pairs(
    name: str,
    ndim: int,
    there: Sequence[bool],
    asked: Sequence[bool],
    *,
    bias_in_terms: bool = False,
) -> _Pairs:
    """The rules as pairs (results, operands), with partial operands among them."""
    pairs: _Pairs = []
    for partial_at in range(-1, 3):
        now: Placements = tuple(Partial() if i == partial_at else None for i in range(3))
        for rule in RULES[name](ndim, now):
            operands = list(present(rule.operands, there))
            if bias_in_terms and rule.bias_once and operands[2] is not None:
                operands[2] = Partial()
            pair = (list(present(rule.results, asked)), operands)
            if pair not in pairs:
                pairs.append(pair)
    return pairs
