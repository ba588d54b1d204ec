"""The operators that tools see: a change here is a change for them.

Backward differs between versions in what the engine adds around the operators (``aten.detach``,
how gradients are accumulated), so those are left out.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.distributed.tensor.debug import CommDebugMode
from torch.profiler import ProfilerActivity, profile

import noalias
from tests.linear.support import dispatched

pytestmark = pytest.mark.usefixtures("core")

ENGINE = ("detach", "add_", "ones_like", "expand", "sum.default", "empty", "resolve", "Optimizer")

FORWARD = [
    "aten.view.default",
    "aten.t.default",
    "aten.addmm.default",
    "aten._unsafe_view.default",
    "aten.relu_.default",
]
BACKWARD = [
    "aten.threshold_backward.default",
    "aten.view.default",
    "aten.t.default",
    "aten.mm.default",
    "aten.t.default",
    "aten.mm.default",
    "aten.t.default",
    "aten.sum.dim_IntList",
    "aten.view.default",
    "aten.t.default",
    "aten.view.default",
]


def operands(shape: tuple[int, ...] = (2, 3, 4)) -> list[torch.Tensor]:
    return [torch.randn(*s, requires_grad=True) for s in [shape, (5, 4), (5,)]]


def forward_and_backward(recorder: Callable) -> tuple[list[str], list[str]]:
    arguments = operands()
    with recorder() as forward:
        y = noalias.linear(*arguments).relu_()
    total = y.sum()
    with recorder() as backward:
        total.backward()
    return forward, [name for name in backward if not any(part in name for part in ENGINE)]


def test_a_dispatch_mode() -> None:
    forward, backward = forward_and_backward(dispatched)
    assert [name for name in forward if "detach" not in name] == FORWARD
    assert backward == BACKWARD
    assert forward.count("aten.view.default") == 1


def test_a_dispatch_mode_without_bias_and_in_two_dimensions() -> None:
    x, w, b = operands()
    with dispatched() as names:
        noalias.linear(x, w)
    assert names == [
        "aten.view.default",
        "aten.t.default",
        "aten.mm.default",
        "aten._unsafe_view.default",
    ]
    with dispatched() as names:
        noalias.linear(x[0].detach(), w, b)
    assert names[-2:] == ["aten.t.default", "aten.addmm.default"]


def profiled(run: Callable[[], object]) -> list[str]:
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as recorded:
        run()
    return [event.name for event in recorded.events()]


def test_the_profiler_sees_the_operator_by_name_and_no_view_of_its_result() -> None:
    arguments = operands()
    names = profiled(lambda: noalias.linear(*arguments).relu_())
    assert [n for n in names if "noalias" in n] == ["noalias::linear"]
    after = names[names.index("aten::addmm") :]
    assert "aten::_unsafe_view" in after
    assert "aten::view" not in after[after.index("aten::_unsafe_view") :]
    assert "aten::as_strided" not in after[after.index("aten::_unsafe_view") :]
    total = noalias.linear(*arguments).relu_().sum()
    names = profiled(total.backward)
    assert [n for n in names if n == "noalias::linear_backward"] == ["noalias::linear_backward"]
    evaluated = [n for n in names if n.startswith("autograd::engine::evaluate_function")]
    assert "autograd::engine::evaluate_function: LinearBackward0" in evaluated
    assert not any("CopySlices" in n or "AsStrided" in n for n in evaluated)


def test_the_profiler_counts_no_copy_beyond_the_bias() -> None:
    arguments = operands()
    names = profiled(lambda: noalias.linear(*arguments).relu_())
    assert names.count("aten::copy_") == 1
    total = noalias.linear(*arguments).relu_().sum()
    assert profiled(total.backward).count("aten::copy_") == 0


def test_debug_mode() -> None:
    debug = pytest.importorskip(
        "torch.utils._debug_mode", reason="DebugMode is not in this PyTorch", exc_type=ImportError
    )
    x, w, b = operands()
    with debug.DebugMode() as mode:
        noalias.linear(x, w, b).relu_()
    text = mode.debug_string()
    assert text.index("aten::addmm") < text.index("aten::_unsafe_view") < text.index("aten::relu_")
    assert text.count("aten::view") == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_comm_debug_mode_sees_no_collective_of_plain_tensors() -> None:
    arguments = operands()
    with CommDebugMode() as mode:
        noalias.linear(*arguments).relu_().sum().backward()
    assert mode.get_total_counts() == 0
    assert arguments[0].grad is not None
