"""The price: the same step with and without the cures."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import noalias
from noalias.audit.result import Report

# PyTorch's profiler writes to stderr by itself.
pytestmark = pytest.mark.usefixtures("core", "capfd")


def measured(step: Callable[[], object], rounds: int = 2) -> Report:
    with noalias.audit(step=step, rounds=rounds) as report:
        step()
    return report


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.LeakyReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.act(F.instance_norm(x))
        return out


def block_step() -> Callable[[], object]:
    x = torch.randn(2, 3, 16, 16, requires_grad=True)
    net = nn.Sequential(Block())

    def step() -> Tensor:
        x.grad = None
        net(x).square().sum().backward()
        return x

    return step


def test_cured_step_makes_the_predicted_copies_fewer_with_the_same_gradients() -> None:
    report = measured(block_step(), rounds=3)

    assert report.price is not None
    stock, cured = report.price.stock, report.price.cured
    base = 2 * 3 * 16 * 16 * 4
    assert (stock.copies - cured.copies, stock.bytes_moved - cured.bytes_moved) == (4, 4 * base)
    assert stock.peak_bytes > cured.peak_bytes
    assert stock.bytes_allocated > cured.bytes_allocated
    assert (report.price.runs, report.price.exact) == (3, True)
    assert {p.quantity for p in report.predictions if p.borne_out} >= {"copies", "bytes_moved"}


def test_part_of_a_hidden_base_keeps_the_copy_of_its_own_node() -> None:
    """What a convolutional net with a cut-off concatenation does: ``cat(...)[:, :n]``, then +=."""
    x, y = torch.randn(2, 3, 4, requires_grad=True), torch.randn(2, 3, 4)

    def step() -> Tensor:
        x.grad = None
        part = torch.cat([x, y], 1)[:, :5]
        part += 1
        part.square().sum().backward()
        return x

    report = measured(step)

    assert [(f.code, f.copies) for f in report.findings] == [("NA101", 4)]
    assert report.price is not None
    assert report.price.stock.copies - report.price.cured.copies == 3
    assert {p.quantity for p in report.predictions if p.borne_out} >= {"copies", "bytes_moved"}


def test_copies_are_put_down_to_the_module_whose_forward_they_undo() -> None:
    report = measured(block_step())

    assert report.price is not None
    saved = {m.module: m.stock.copies - m.cured.copies for m in report.price.modules}
    assert saved["0.act"] == 4
    assert sum(saved.values()) == 4
    whole = sum(module.stock.copies for module in report.price.modules)
    assert whole == report.price.stock.copies


def test_copies_in_the_timeline_are_owed_to_the_in_place_line() -> None:
    report = measured(block_step())

    owed = [piece for piece in report.timeline if piece.kind == "copy" and piece.cause is not None]
    assert len(owed) == 4
    causes = {report.timeline[piece.cause].line for piece in owed if piece.cause is not None}
    assert causes == {report.findings[0].line}
    assert {piece.kind for piece in report.timeline} == {
        "step", "module", "in_place", "copy", "backward",
    }  # fmt: skip


def test_loop_over_slices_is_cured_in_fewer_copies() -> None:
    def step() -> Tensor:
        x.grad = None
        out = torch.zeros(16, 8)
        for t in range(16):
            out[t] = x[t] * 2
        (out * weight).sum().backward()
        return x

    x = torch.randn(16, 8, requires_grad=True)
    weight = torch.randn(16, 8)
    report = measured(step)

    assert sorted(finding.code for finding in report.findings) == ["NA201", "NA202"]
    assert report.price is not None
    assert report.price.exact
    assert report.price.stock.bytes_moved > 2 * report.price.cured.bytes_moved


def test_no_cure_is_left_on() -> None:
    measured(block_step())

    assert noalias.status().active == ()


def test_no_cure_is_left_on_by_a_step_that_fails() -> None:
    def step() -> None:
        calls.append(1)
        if len(calls) == 5:
            raise ValueError("on purpose")

    calls: list[int] = []
    with pytest.raises(ValueError, match="on purpose"):
        measured(step)

    assert noalias.status().active == ()


def test_with_cures_on_already_nothing_is_compared_and_a_note_says_so() -> None:
    with noalias.enabled("hidden_base"):
        report = measured(block_step())

    assert report.price is None
    assert any("cures of its own switched on" in note for note in report.notes)


def test_step_that_gives_no_tensor_or_differs_by_itself_is_not_called_exact() -> None:
    silent = measured(lambda: torch.ones(1, requires_grad=True).exp().backward())
    random = measured(lambda: torch.randn(3))

    assert silent.price is not None
    assert random.price is not None
    assert (silent.price.exact, random.price.exact) == (None, None)
