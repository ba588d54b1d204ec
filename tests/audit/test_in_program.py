"""The price of a running program: some of its steps run with the cures, and it cannot tell."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import noalias
from noalias.audit.in_program import InProgram
from noalias.audit.record import fill
from noalias.audit.recorder import Recorder
from noalias.audit.result import Report

# PyTorch's profiler writes to stderr by itself.
pytestmark = pytest.mark.usefixtures("core", "capfd")

STEPS = 30
"""A few more than are recorded, profiled, settling and timed."""


def priced(step: Callable[[], object]) -> Report:
    """The report on a program that takes this step again and again."""
    recorder = Recorder(done=lambda steps: comparison.step_done(steps))
    comparison = InProgram(recorder)
    report = Report()
    recorder.start()
    try:
        for _ in range(STEPS):
            step()
    finally:
        comparison.end()
        recorder.stop()
    fill(report, recorder)
    comparison.fill(report)
    recorder.close()
    return report


def hundredfold(gradient: Tensor) -> Tensor:
    """A hook that nobody overlooks where it runs."""
    return gradient * 100


def einsum_and_hook(x: Tensor) -> Tensor:
    y = torch.einsum("ij,kj->ik", x, x)
    y.register_hook(hundredfold)
    return y.mul_(0.5)


def view_and_hook_on_its_node(x: Tensor) -> Tensor:
    y = (x * 2).view(-1)
    assert y.grad_fn is not None
    y.grad_fn.register_prehook(lambda gradients: tuple(100 * each for each in gradients))
    return y.mul_(0.5)


def linear_of(x: Tensor) -> Tensor:
    return F.linear(x[None], torch.ones(2, 5), torch.ones(2))


def linear_and_hook(x: Tensor) -> Tensor:
    y = linear_of(x)
    y.register_hook(hundredfold)
    return y.relu_()


def refused_write(x: Tensor) -> Tensor:
    part: Tensor = (x * 2).unbind(0)[0]
    try:
        return part.mul_(2)
    except RuntimeError:
        return part * 3  # what the program does instead, which is something else


@pytest.mark.parametrize(
    "forward", [einsum_and_hook, view_and_hook_on_its_node, linear_and_hook, refused_write]
)
def test_program_trains_as_it_does_in_stock_while_its_price_is_measured(
    forward: Callable[[Tensor], Tensor],
) -> None:
    def trained(run: Callable[[Callable[[], object]], object]) -> Tensor:
        x = torch.linspace(-1, 1, 30).view(6, 5).requires_grad_()
        optimizer = torch.optim.SGD([x], lr=1e-3)

        def step() -> None:
            optimizer.zero_grad()
            (forward(x).square().sum() + paying(x)).backward()
            optimizer.step()

        run(step)
        return x.detach()

    def paying(x: Tensor) -> Tensor:
        return F.leaky_relu(F.instance_norm(x[None]), inplace=True).square().sum()

    def alone(step: Callable[[], object]) -> None:
        for _ in range(STEPS):
            step()

    reports: list[Report] = []
    expected = trained(alone)
    found = trained(lambda step: reports.append(priced(step)))

    assert torch.equal(found, expected)
    (report,) = reports
    assert report.price is not None
    assert report.price.stock.copies > report.price.cured.copies  # the cures were at work
    # From PyTorch 2.15 on the result of linear is no view, and the hook runs in stock, too.
    spared = forward is linear_and_hook and linear_of(torch.ones(6, 5).requires_grad_())._is_view()
    assert ("linear" in report.price.cures) != spared
    assert any("the cure linear" in note for note in report.notes) == spared
    assert noalias.status().active == ()


def test_lines_that_are_used_once_each_are_all_found() -> None:
    """A program without a loop: none of its backward calls is taken for a step to measure."""

    def hidden() -> Tensor:
        return F.leaky_relu(F.instance_norm(x[None]), inplace=True)

    def einsum() -> Tensor:
        return torch.einsum("ij,kj->ik", x, x).add_(1)

    def observable() -> Tensor:
        base = x * 2
        base.view(-1).mul_(3)
        return base

    def filled() -> Tensor:
        row, out = x.sum(0), torch.zeros(8, 5)
        for t in range(8):
            out[t] = row
        return out

    x = torch.randn(6, 5, requires_grad=True)
    recorder = Recorder(done=lambda steps: comparison.step_done(steps))
    comparison = InProgram(recorder)
    report = Report()
    recorder.start()
    for part in (x.exp, x.exp, hidden, hidden, einsum, x.exp, observable, filled, hidden):
        part().sum().backward()
    comparison.end()
    recorder.stop()
    fill(report, recorder)
    comparison.fill(report)
    recorder.close()

    codes = sorted(finding.code for finding in report.findings)
    assert codes == ["NA101", "NA101", "NA102", "NA201"]
    # For a step that the line is used in, and not for the others, too.
    costs = {(f.operator, f.count, f.copies) for f in report.findings}
    assert costs == {
        ("aten::leaky_relu_", 1, 4),
        ("aten::add_", 1, 4),
        ("aten::mul_", 1, 3),
        ("aten::copy_", 8, 10),
    }
    assert any("10 backward calls on that pay in the same lines" in n for n in report.notes)


def test_steps_are_measured_once_one_pays_in_the_lines_of_the_one_before() -> None:
    def step() -> None:
        calls.append(1)
        y = torch.einsum("ij,kj->ik", x, x)
        if len(calls) == 2:
            y.mul_(2)
        y.add_(1)
        y.sum().backward()
        optimizer.step()

    calls: list[int] = []
    x = torch.randn(6, 5, requires_grad=True)
    optimizer = torch.optim.SGD([x], lr=0.0)
    report = priced(step)

    assert {finding.operator for finding in report.findings} == {"aten::mul_", "aten::add_"}
    assert report.price is not None
    assert report.price.runs == InProgram.PAIRS


def test_with_the_cures_asked_for_the_hook_runs_again_afterwards() -> None:
    """What an audit leaves alone is its own affair: `enable()` is not changed by it."""
    ran: list[Tensor] = []

    def step() -> None:
        y = (x * 2).view(-1)
        y.register_hook(ran.append)
        y.mul_(2)
        y.sum().backward()

    x = torch.ones(2, 3, requires_grad=True)
    priced(step)
    assert not ran

    with noalias.enabled():
        step()
    assert len(ran) == 1


@pytest.mark.parametrize("failing", range(1, 29))
def test_error_is_explained_in_whatever_step_of_a_program_it_happens(failing: int) -> None:
    """Recorded, profiled, settling and timed ones, with the cures and without."""

    def step(number: int) -> None:
        x = torch.randn(2, 3, 4, requires_grad=True)
        y = F.leaky_relu(F.instance_norm(x), inplace=True)
        kept = y.exp()
        if number == failing:
            kept.add_(1)
        kept.sum().backward()

    recorder = Recorder(done=lambda steps: comparison.step_done(steps))
    comparison = InProgram(recorder)
    report = Report()
    recorder.start()
    try:
        for number in range(1, failing):
            step(number)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            step(failing)
        first, second = torch.ones(2, 3, requires_grad=True).unbind()
        with pytest.raises(RuntimeError, match="a view and is being modified inplace"):
            first.add_(second)
    finally:
        comparison.end()
        recorder.stop()
    fill(report, recorder)
    recorder.close()

    found = {finding.code: finding for finding in report.findings}
    assert sorted(found) == ["NA101", "NA302", "NA303"]
    overwritten = found["NA303"]
    assert overwritten.source == "kept.add_(1)"
    assert overwritten.saved_by is not None
    assert overwritten.saved_by.source == "kept = y.exp()"
    refused = found["NA302"]
    assert (refused.source, refused.shape) == ("first.add_(second)", (3,))
    assert refused.made_by is not None
    assert refused.made_by.operator == "aten::unbind"
    assert not recorder.faults
    assert noalias.status().active == ()


def test_fewest_steps_for_a_price_are_those_of_the_first_pair() -> None:
    # record, record, then: profile, settle, profile, time, settle, time.
    assert InProgram.FEWEST == 8
