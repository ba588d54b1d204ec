"""The small programs with a hidden base: stock rebases each, the cures rebase none."""

from __future__ import annotations

import pytest
import torch

import noalias
from noalias import graph
from noalias.bench import hidden
from noalias.bench.compare import Program

# PyTorch 2.15 returns no view from linear any more.
FIXED = {"linear, 3-D + relu_"} if torch.__version__ >= "2.15" else set()


@pytest.mark.parametrize("program", hidden.PROGRAMS, ids=[p.name for p in hidden.PROGRAMS])
def test_stock_rebases_and_the_cures_do_not(program: Program) -> None:
    built = program.build(torch.device("cpu"))
    stock = graph.names(built.forward())[graph.COPY_SLICES]
    with noalias.enabled():
        cured = graph.names(built.forward())[graph.COPY_SLICES]
    assert (stock, cured) == (0 if program.name in FIXED else 1, 0)
