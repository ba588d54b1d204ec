"""Whether two tensors are the same in every bit, and how far apart if not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal shape, dtype and bits. Unlike `torch.equal`: NaN equals itself, 0.0 is not -0.0."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(_bytes(a), _bytes(b))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)


def distance(ours: Sequence[torch.Tensor | None], theirs: Sequence[torch.Tensor | None]) -> float:
    """0 where every tensor is the same in every bit.

    Otherwise the largest absolute difference in a tensor over that tensor's largest value, taken
    over the tensors that differ; infinite where one is missing, or differs by NaN or in shape.
    """
    largest = 0.0
    for a, b in zip(ours, theirs, strict=True):
        if a is None and b is None:
            continue
        if a is None or b is None or a.shape != b.shape:
            return float("inf")
        if not same(a, b):
            difference = (a - b).abs().max().item() / (a.abs().max().item() or 1.0)
            # Bits that differ without a difference in value (-0.0, say) must not pass as equal.
            largest = max(largest, difference or torch.finfo(a.dtype).tiny)
            if difference != difference:
                return float("inf")
    return largest
