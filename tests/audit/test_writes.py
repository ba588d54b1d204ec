"""What an in-place call is taken for, and what is told of its view."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from audit_steps import audited, codes, leaf, only
from torch import Tensor, nn

pytestmark = pytest.mark.usefixtures("core")


def line_of(text: str) -> int:
    """Number of the one line of this file that has ``text`` in it, above its own mention."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_observer_of_the_base_is_named() -> None:
    def step() -> None:
        kept = x * 2
        view = kept.view(-1)
        view.mul_(3)
        kept.sum().backward()

    x = leaf(2, 3)
    finding = only(audited(step))

    assert (finding.code, finding.verdict) == ("NA102", "observable")
    assert any("'kept'" in observer for observer in finding.observers)
    assert all("dict" not in observer for observer in finding.observers)


def test_seven_slice_updates_are_no_loop_and_eight_are() -> None:
    def step(updates: int) -> None:
        out = torch.zeros(updates, 3)
        for t in range(updates):
            out[t] = x
        out.sum().backward()

    x = leaf(3)

    assert codes(audited(lambda: step(7))) == []
    finding = only(audited(lambda: step(8)))
    assert (finding.code, finding.count, finding.shape) == ("NA201", 8, (3,))


def test_hook_on_a_view_is_told_with_the_line_that_set_it() -> None:
    def step() -> None:
        y = (x * 2).view(-1)
        y.register_hook(print)
        y.mul_(2)
        y.sum().backward()

    x = leaf(2, 3)
    finding = only(audited(step))

    assert finding.code == "NA301"
    assert finding.hook is not None
    assert finding.hook.line == line_of("y.register_hook(print)")


def test_retain_grad_is_not_dropped_by_stock_and_not_told_as_such() -> None:
    def step() -> None:
        y = (x * 2).view(-1)
        y.retain_grad()
        y.mul_(2)
        y.sum().backward()
        assert y.grad is not None

    x = leaf(2, 3)

    assert codes(audited(step)) == ["NA101"]


def test_refused_write_is_told_once_and_not_as_a_copy() -> None:
    def step() -> None:
        part = (x * 2).unbind(0)[0]
        with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
            part.mul_(2)

    x = leaf(2, 3)
    finding = only(audited(step))

    assert (finding.code, finding.copies) == ("NA302", 0)
    assert finding.made_by is not None
    assert finding.made_by.operator == "aten::unbind"
    assert "multiple views" in finding.message


def test_single_write_is_no_loop_and_a_loop_of_writes_is_told_what_enable_takes_away() -> None:
    """``out[t].mul_(2)`` needs the old value, so it is no slice update; it costs as much."""

    def step(writes: int) -> None:
        out = x * 2
        for t in range(writes):
            out[t].mul_(2)
        out.sum().backward()

    x = leaf(8, 3)
    single, loop = only(audited(lambda: step(1))), only(audited(lambda: step(8)))

    assert (single.code, loop.code) == ("NA102", "NA102")
    assert "enable()" not in single.cure
    assert loop.cure.startswith("noalias.enable(): one copy for each write less; without it, ")


def test_returned_view_that_was_written_to_is_told_by_the_line_that_made_the_view() -> None:
    """Its history comes from the write by then; the view does not."""

    class Scale(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            out = (x * 2).view(-1)
            out.mul_(3)
            return out

    x = leaf(2, 3)

    def step() -> None:
        for _ in range(3):
            module(x).sum().backward()

    module = Scale()
    report = audited(step, select=["NA401"])

    finding = only(report)
    assert (finding.operator, finding.source) == ("aten::view", "out = (x * 2).view(-1)")
    assert finding.count == 1  # in each step, of three
