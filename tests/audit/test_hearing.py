"""Audits that run at the same time: each is told what happens in its own time."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import noalias
from noalias.audit import hearing
from noalias.audit.report import as_json
from noalias.audit.result import Report
from noalias.cli import main
from noalias.native.core import Core

pytestmark = pytest.mark.usefixtures("core")


def pay() -> None:
    x = torch.randn(2, 3, 4, requires_grad=True)
    F.relu(F.instance_norm(x), inplace=True).sum().backward()


def pay_in_a_loop() -> None:
    out = torch.zeros(8, 3)
    value = torch.ones(3, requires_grad=True)
    for t in range(8):
        out[t] = value
    out.sum().backward()


def codes(report: Report) -> list[str]:
    return sorted(finding.code for finding in report.findings)


def test_inner_audit_has_what_happens_inside_it_and_the_outer_one_has_all() -> None:
    with noalias.audit() as outer:
        pay()
        with noalias.audit() as inner:
            pay_in_a_loop()
        pay()

    assert codes(inner) == ["NA201"]
    assert codes(outer) == ["NA101", "NA201"]
    of_inner, of_outer = inner.findings[0], next(f for f in outer.findings if f.code == "NA201")
    assert (of_inner.line, of_inner.source) == (of_outer.line, of_outer.source)
    assert (inner.steps.backward_calls, outer.steps.backward_calls) == (1, 3)
    # For each of the two calls that pay it; the inner one does not use the line.
    assert next(f for f in outer.findings if f.code == "NA101").copies == 4


def test_audits_may_end_in_the_order_they_began() -> None:
    first, second = noalias.audit(), noalias.audit()
    of_first = first.__enter__()
    pay()
    of_second = second.__enter__()
    first.__exit__(None, None, None)
    pay_in_a_loop()
    second.__exit__(None, None, None)

    assert (codes(of_first), codes(of_second)) == (["NA101"], ["NA201"])


def test_modules_have_the_same_path_in_both() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = nn.ReLU(inplace=True)

        def forward(self, x: Tensor) -> Tensor:
            with noalias.audit() as report:
                out: Tensor = self.act(F.instance_norm(x))
            inner.append(report)
            return out

    inner: list[Report] = []
    with noalias.audit() as outer:
        nn.Sequential(Net())(torch.randn(2, 3, 4, requires_grad=True)).sum().backward()

    assert [f.module for report in (outer, *inner) for f in report.findings] == ["0.act", "0.act"]


def test_audits_of_two_threads_hear_both() -> None:
    def other() -> None:
        with noalias.audit() as report:
            began.set()
            assert go_on.wait(60)
            pay_in_a_loop()
        reports.append(report)

    began, go_on = threading.Event(), threading.Event()
    reports: list[Report] = []
    thread = threading.Thread(target=other)
    with noalias.audit() as mine:
        thread.start()
        assert began.wait(60)
        pay()
        go_on.set()
        thread.join()

    assert codes(mine) == codes(reports[0]) == ["NA101", "NA201"]


def test_only_who_asked_for_returned_views_gets_them() -> None:
    def step() -> None:
        nn.InstanceNorm1d(3)(torch.randn(2, 3, 4, requires_grad=True)).sum().backward()

    with noalias.audit() as outer, noalias.audit(select=["NA401"]) as inner:
        step()

    assert (codes(outer), codes(inner)) == ([], ["NA401"])


@pytest.mark.usefixtures("capfd")  # PyTorch's profiler writes to stderr by itself
def test_price_of_an_inner_audit_is_measured_while_the_outer_one_listens() -> None:
    x = torch.randn(2, 3, 8, 8, requires_grad=True)

    def step() -> Tensor:
        x.grad = None
        F.relu(F.instance_norm(x), inplace=True).sum().backward()
        return x

    with noalias.audit() as outer, noalias.audit(step=step, rounds=1) as inner:
        step()

    assert inner.price is not None
    assert inner.price.exact
    assert inner.price.stock.copies - inner.price.cured.copies == 4
    assert codes(outer) == ["NA101"]


def test_nothing_is_left_behind_by_the_last(core: Core) -> None:
    stock = torch.autograd._engine_run_backward  # type: ignore[attr-defined]
    with noalias.audit():
        with noalias.audit():
            pay()
        assert torch.autograd._engine_run_backward is not stock  # type: ignore[attr-defined]

    assert torch.autograd._engine_run_backward is stock  # type: ignore[attr-defined]
    assert not torch.nn.modules.module._global_forward_hooks
    assert core.trail_size() == (0, 0)
    assert hearing.alone()


def test_program_that_audits_its_own_steps_is_audited_with_stock_steps_only(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        """
import torch
import torch.nn.functional as F
import noalias

x = torch.randn(2, 3, 8, 8, requires_grad=True)
optimizer = torch.optim.SGD([x], lr=0.1)
for step in range(10):
    with noalias.audit() as report:
        F.leaky_relu(F.instance_norm(x), inplace=True).sum().backward()
    assert [finding.code for finding in report.findings] == ["NA101"], step
    optimizer.step()
""",
        encoding="utf-8",
    )
    output = tmp_path / "report.json"

    assert main(["audit", "--format", "json", "-o", str(output), str(path)]) == 1

    report = as_json.read(output)
    assert codes(report) == ["NA101"]
    assert report.price is None
    assert any("audits of its own" in note for note in report.notes)
    assert capfd.readouterr().out == ""
