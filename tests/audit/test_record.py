"""The recorder: what it finds in a program, and that the program does not notice."""

from __future__ import annotations

import gc
import runpy
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from audit_steps import audited, codes, leaf, only
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import noalias
from noalias.audit.result import Report
from noalias.native.core import Core

PAYING = Path(__file__).parent / "audited" / "paying.py"

pytestmark = pytest.mark.usefixtures("core")


def line_of(text: str) -> int:
    """Number of the one line of this file that has ``text`` in it, above its own mention."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


# What is found.


def test_every_kind_of_line_is_found_with_its_code_line_and_module_and_nothing_else() -> None:
    expected = set()
    for number, line in enumerate(PAYING.read_text(encoding="utf-8").splitlines(), 1):
        if "  # -> " in line:
            code, operator, *module = line.partition("  # -> ")[2].split()
            expected.add((code, number, operator, module[0] if module else ""))

    report = audited(lambda: runpy.run_path(str(PAYING), run_name="__main__"))

    found = {(f.code, f.line, f.operator, f.module) for f in report.findings}
    assert found == expected
    assert {f.file for f in report.findings} == {str(PAYING)}
    assert report.notes == ()
    assert (report.steps.seen, report.steps.backward_calls) == (3, 4)


def test_finding_says_what_the_view_is_how_it_was_made_and_what_it_costs() -> None:
    def step() -> None:
        y = torch.einsum("bij,bjk->bik", x, x)  # the einsum
        y.add_(1)  # the write
        y.sum().backward()

    x = leaf(2, 3, 3)
    finding = only(audited(step))

    assert (finding.code, finding.verdict, finding.observers) == ("NA101", "hidden", ())
    assert finding.line == line_of("y.add_(1)  # the write")
    assert finding.source == "y.add_(1)  # the write"
    assert (finding.operator, finding.shape, finding.dtype) == (
        "aten::add_",
        (2, 3, 3),
        "torch.float32",
    )
    assert (finding.bytes, finding.count, finding.copies) == (2 * 3 * 3 * 4, 1, 4)
    assert finding.extra_peak_bytes == 2 * finding.bytes
    assert finding.made_by is not None
    assert finding.made_by.operator == "aten::einsum"
    assert finding.made_by.line == line_of("# the einsum")
    assert "enable()" in finding.cure
    assert "y = y.add(1)" in finding.cure
    assert finding.excerpt is not None
    assert finding.graph is not None
    before = [node.name for node in finding.graph.before.nodes]
    after = [node.name for node in finding.graph.after.nodes]
    assert {"CopySlices", "AsStridedBackward0"} <= set(before)
    assert "CopySlices" not in after
    assert after[0].startswith("AddBackward")


def test_occurrences_are_counted_per_step_and_predicted_for_all_together() -> None:
    def step() -> None:
        for _ in range(3):
            F.leaky_relu(F.instance_norm(x), inplace=True).sum().backward()

    x = leaf(2, 3, 8, 8)
    report = audited(lambda: in_two_optimizer_steps(step, x))
    finding = only(report)

    assert report.steps.seen == 2
    assert (finding.count, finding.copies) == (3, 12)


def in_two_optimizer_steps(step: Callable[[], None], x: Tensor) -> None:
    optimizer = torch.optim.SGD([x], lr=0.0)
    for _ in range(2):
        step()
        optimizer.step()


def test_seven_slice_reads_are_no_loop_and_eight_are() -> None:
    def step(reads: int) -> None:
        sum(x[t].sum() for t in range(reads)).backward()  # type: ignore[union-attr]

    x = leaf(9, 2)

    assert codes(audited(lambda: step(7))) == []
    finding = only(audited(lambda: step(8)))
    assert (finding.code, finding.count, finding.shape, finding.bytes) == ("NA202", 8, (2,), 72)


def test_overwritten_value_names_the_writer_the_saver_and_both_versions() -> None:
    def step() -> None:
        y = x.sigmoid()  # saves its result
        z = y * 2
        y.zero_()  # overwrites it
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()

    x = leaf(2, 3)
    finding = only(audited(step))

    assert (finding.code, finding.versions) == ("NA303", (0, 1))
    assert finding.line == line_of("y.zero_()  # overwrites it")
    assert finding.saved_by is not None
    assert finding.saved_by.operator == "SigmoidBackward0"
    assert finding.saved_by.line == line_of("# saves its result")


def test_optimizer_that_overwrites_a_parameter_is_named_as_the_writer() -> None:
    def step() -> None:
        loss = (layer(leaf(1, 3)) ** 2).sum()
        optimizer.step()  # between forward and backward
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()

    layer = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    for parameter in layer.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    finding = only(audited(step))

    assert finding.code == "NA303"
    assert finding.line == line_of("optimizer.step()  # between forward and backward")


def test_returned_view_is_told_only_when_selected() -> None:
    class Scale(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x * 2).view(x.shape[0], -1)

    def step() -> None:
        Scale()(x).sum().backward()

    x = leaf(2, 3, 4)

    assert codes(audited(step)) == []
    finding = only(audited(step, select=["NA401"]))
    assert (finding.code, finding.operator, finding.module) == ("NA401", "aten::view", "Scale")


def test_module_path_survives_an_exception_inside_a_module() -> None:
    class Fails(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise ValueError("on purpose")

    def step() -> None:
        with pytest.raises(ValueError, match="on purpose"):
            nn.Sequential(Fails())(x)
        F.relu(F.instance_norm(x), inplace=True).sum().backward()

    x = leaf(2, 3, 4)

    assert only(audited(step)).module == ""


def test_compiled_region_is_opaque_and_not_clean() -> None:
    @torch.compile(backend="aot_eager")
    def compiled(x: Tensor) -> Tensor:
        return F.relu(F.instance_norm(x), inplace=True)

    x = leaf(2, 3, 4)
    report = audited(lambda: compiled(x).sum().backward())

    assert codes(report) == []
    assert [region.what for region in report.opaque] == ["torch.compile region"]
    assert report.opaque[0].file == __file__


def test_with_the_cure_on_there_is_nothing_to_tell() -> None:
    def step() -> None:
        with noalias.enabled():
            F.relu(F.instance_norm(x), inplace=True).sum().backward()

    x = leaf(2, 3, 4)

    assert codes(audited(step)) == []


# What the program notices: nothing.


def test_results_and_gradients_are_bit_identical_under_audit() -> None:
    def train() -> list[Tensor]:
        torch.manual_seed(3)
        net = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4), nn.LeakyReLU(inplace=True), nn.Flatten()
        )
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = net(torch.randn(2, 3, 8, 8)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return [*losses, *(p.detach() for p in net.parameters())]

    plain = train()
    with noalias.audit():
        under_audit = train()

    assert all(torch.equal(a, b) for a, b in zip(plain, under_audit, strict=True))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_write_is_found_and_recomputed_as_in_stock(reentrant: bool) -> None:
    """What stops a recomputation is an error that comes out of the in-place call."""

    def block(x: Tensor) -> Tensor:
        return F.leaky_relu(F.instance_norm(x), inplace=True)  # checkpointed

    def step() -> Tensor:
        x.grad = None
        checkpoint(block, x, use_reentrant=reentrant).square().sum().backward()
        assert x.grad is not None
        return x.grad

    x = leaf(2, 3, 4)
    expected = step()
    found: list[Tensor] = []
    finding = only(audited(lambda: found.append(step())))

    assert (finding.code, finding.line) == ("NA101", line_of("inplace=True)  # checkpointed"))
    assert finding.copies == 4
    assert finding.made_by is not None
    assert finding.made_by.operator == "aten::instance_norm"
    assert torch.equal(found[0], expected)


def test_backward_inside_backward_ends_no_step() -> None:
    """A reentrant checkpoint calls backward on its own part."""

    def step() -> None:
        checkpoint(torch.exp, x, use_reentrant=True).sum().backward()

    x = leaf(2, 3)

    assert audited(step).steps.seen == 1


def test_error_out_of_a_hook_inside_an_in_place_call_arrives_as_it_was() -> None:
    def pack(tensor: Tensor) -> Tensor:
        raise KeyError("mine")

    def step() -> None:
        y = (x * 2).view(-1)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            y.exp_()

    x = leaf(2, 3)
    with pytest.raises(KeyError, match="mine"):
        audited(step)


def test_thousand_steps_under_audit_do_not_grow(core: Core) -> None:
    def step() -> None:
        x = F.leaky_relu(F.instance_norm(net(inputs)), inplace=True)
        out = torch.zeros(8, 2)
        for t in range(8):
            out[t] = x.mean() * t
        out.sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    net = nn.Conv1d(2, 2, 1)
    inputs = torch.randn(2, 2, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)

    with noalias.audit() as report:
        for _ in range(20):
            step()
        gc.collect()
        objects = len(gc.get_objects())
        for _ in range(980):
            step()
        gc.collect()
        grown = len(gc.get_objects()) - objects
        calls, writes = core.trail_size()

    assert report.steps.seen == 1000
    assert grown < 50, "objects left behind by 980 steps"
    assert calls <= 1 << 16
    assert writes <= 1 << 14


def test_nothing_keeps_a_tensor_alive() -> None:
    class Traced(Tensor):
        """A tensor whose death is seen."""

        def __del__(self) -> None:
            dead.append(id(self))

    dead: list[int] = []
    with noalias.audit():
        x = leaf(2, 3)
        y = (x * 2).view(-1)
        y.mul_(2)
        kept = y.detach().as_subclass(Traced)
        del kept
        gc.collect()
        assert len(dead) == 1
        live = sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())
        del y
        assert sum(issubclass(type(t), Tensor) for t in gc.get_objects()) < live


def test_looking_for_observers_keeps_no_frame_whose_variables_would_be_observers_then() -> None:
    def look() -> None:
        x = leaf(2, 3) * 2
        row = x[0]
        row.mul_(2)  # seen by x: who sees it is looked for in all running frames

    def net() -> Tensor:
        look()
        out: Tensor = F.instance_norm(leaf(2, 3, 4))
        return out

    gc.collect()
    gc.disable()
    try:
        with noalias.audit() as report:
            out = net()[:, :2]
            out.mul_(2)
    finally:
        gc.enable()

    assert {f.source.partition("  #")[0]: f.code for f in report.findings} == {
        "row.mul_(2)": "NA102",
        "out.mul_(2)": "NA101",
    }


def test_pytorch_is_left_as_it_was() -> None:
    before = (torch.autograd._engine_run_backward, Tensor.register_hook)  # type: ignore[attr-defined]

    audited(lambda: leaf(2).sum().backward())

    after = (torch.autograd._engine_run_backward, Tensor.register_hook)  # type: ignore[attr-defined]
    assert after == before
    assert torch.nn.modules.module._global_forward_hooks == {}
    assert torch.nn.modules.module._global_forward_pre_hooks == {}


def test_findings_survive_an_exception_whose_traceback_has_no_frame_of_ours() -> None:
    x = leaf(2, 3, 4)
    report = Report()

    def failing() -> None:
        nonlocal report
        with noalias.audit() as report:
            F.relu(F.instance_norm(x), inplace=True)
            y = x.exp()
            y.add_(1)
            y.sum().backward()

    with pytest.raises(RuntimeError, match="modified by an inplace") as raised:
        failing()

    assert codes(report) == ["NA101", "NA303"]
    frames = traceback.extract_tb(raised.value.__traceback__)
    assert not [frame.filename for frame in frames if "noalias/audit" in frame.filename]


def test_unknown_code_and_no_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="no code starts with 'NB'"), noalias.audit(select=["NB"]):
        pass
    with pytest.raises(ValueError, match="rounds is 0"), noalias.audit(rounds=0):
        pass


def test_forward_alone_is_told_with_a_note() -> None:
    report = audited(lambda: F.relu(F.instance_norm(leaf(2, 3, 4)), inplace=True))

    assert only(report).copies == 0
    assert any("never called backward" in note for note in report.notes)
