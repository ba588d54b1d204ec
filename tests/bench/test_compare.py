"""Stock against enabled: what the comparison of a program says."""

from __future__ import annotations

import torch

from noalias.bench import compare
from noalias.bench.compare import Built, Program, Skipped

CPU = torch.device("cpu")


def _hidden(device: torch.device) -> Built:
    x = torch.rand(64, 64, device=device, requires_grad=True)
    return Built(lambda: x.mul(2.0).view(-1).add_(1).sum(), [x])


def _varying(device: torch.device) -> Built:
    x = torch.rand(8, device=device, requires_grad=True)
    calls = iter(range(1, 1000))
    return Built(lambda: (x * next(calls)).sum(), [x])


def test_a_hidden_base_costs_copies_that_the_cures_save() -> None:
    row = compare.compare(Program("hidden", _hidden), CPU, rounds=1, budget=None)
    assert row.stock.copy_slices == 1
    assert row.enabled.copy_slices == 0
    assert row.enabled.counts.copies < row.stock.counts.copies
    assert row.enabled.counts.allocated_bytes < row.stock.counts.allocated_bytes
    assert row.gradients == "identical"


def test_a_program_that_is_not_repeatable_says_so() -> None:
    row = compare.compare(Program("varying", _varying), CPU, rounds=1, budget=None)
    assert row.gradients == "stock varies"


def test_a_gradient_that_differs_is_reported_with_its_distance() -> None:
    a, b = [torch.tensor([1.0, 2.0])], [torch.tensor([1.0, 2.5])]
    assert compare._verdict(a, a, b) == "differ by 2.5e-01"


def test_skipped_programs_keep_their_reason_below_the_table() -> None:
    table = compare.table("title", [Skipped("net", "monai is not installed: pip install monai")])
    assert table.row_count == 0
    assert "net: skipped, monai is not installed: pip install monai" in str(table.caption)
