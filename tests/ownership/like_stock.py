"""Stock PyTorch as the oracle: the same program without and with a cure, in every bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

import noalias
from noalias import native
from noalias.bench.bits import same

Program = Callable[[], Sequence[torch.Tensor | None]]


def moved(program: Program, *cures: str) -> dict[str, int]:
    """Run `program` twice from one seed; its tensors must agree in every bit.

    Returns:
        How far the core's counters moved in the run with the cures.
    """
    torch.manual_seed(0)
    stock = program()
    core = native.load()
    before = core.counters()
    torch.manual_seed(0)
    with noalias.enabled(*cures):
        cured = program()
    assert len(stock) == len(cured)
    for number, (theirs, ours) in enumerate(zip(stock, cured, strict=True)):
        assert (theirs is None) == (ours is None), f"tensor {number}: {theirs} and {ours}"
        if theirs is not None and ours is not None:
            assert same(theirs, ours), f"tensor {number}:\nstock {theirs}\ncured {ours}"
            assert theirs.stride() == ours.stride(), f"tensor {number}: strides"
    return {name: count - before[name] for name, count in core.counters().items()}


def grads(*tensors: torch.Tensor) -> list[torch.Tensor | None]:
    return [tensor.grad for tensor in tensors]
