"""Where the elements of a tensor lie."""

from __future__ import annotations

from collections.abc import Sequence


def element_offsets(sizes: Sequence[int], strides: Sequence[int], begin: int = 0) -> list[int]:
    """Where in memory the elements of a tensor with this geometry lie."""
    offsets = [begin]
    for size, stride in zip(sizes, strides, strict=True):
        offsets = [offset + i * stride for offset in offsets for i in range(size)]
    return offsets
