"""Tracing: what a compiler is shown, and the operator whole for those who ask."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch._functorch.aot_autograd import aot_function, make_boxed_compiler
from torch.fx.experimental.proxy_tensor import make_fx

import noalias
from noalias.linear.capture import decompositions, whole_capture
from tests.linear.support import dispatched

pytestmark = pytest.mark.usefixtures("core")

WHOLE = ["noalias.linear.default", "noalias.linear_backward.default"]
PRODUCTS = ("mm", "view", "aten.t.")


def operands() -> list[Tensor]:
    return [torch.randn(*s, requires_grad=True) for s in [(2, 3, 4), (5, 4), (5,)]]


def step(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    y = noalias.linear(x, w, b).relu_()
    return y, *torch.autograd.grad(y.sum(), [x, w, b])


def targets(module: fx.GraphModule) -> list[str]:
    return [
        str(node.target)
        for node in module.graph.nodes
        if node.op == "call_function" and node.target is not operator.getitem
    ]


def linears(names: list[str]) -> list[str]:
    return [name for name in names if "linear" in name]


def flattened(names: list[str]) -> list[str]:
    return [name for name in names if any(part in name for part in PRODUCTS)]


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx_sees_the_operator_and_its_derivative_as_one_node_each(mode: str) -> None:
    with whole_capture():
        module = make_fx(step, tracing_mode=mode)(*operands())
    assert linears(targets(module)) == WHOLE
    assert flattened(targets(module)) == []
    arguments = operands()
    for left, right in zip(module(*arguments), step(*arguments), strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_the_decomposition_table_takes_them_apart(mode: str) -> None:
    with whole_capture():
        module = make_fx(step, tracing_mode=mode, decomposition_table=decompositions())(*operands())
    names = targets(module)
    assert linears(names) == []
    assert {"aten.addmm.default", "aten.mm.default", "aten._unsafe_view.default"} <= set(names)
    arguments = operands()
    for left, right in zip(module(*arguments), step(*arguments), strict=True):
        assert torch.equal(left, right)


def test_a_graph_captured_whole_can_be_taken_apart_later() -> None:
    arguments = operands()
    with whole_capture():
        module = make_fx(step)(*arguments)
    apart = make_fx(module, decomposition_table=decompositions())(*arguments)
    assert linears(targets(apart)) == []
    for left, right in zip(apart(*arguments), module(*arguments), strict=True):
        assert torch.equal(left, right)


def test_by_default_make_fx_sees_products_and_no_view_of_the_result() -> None:
    names = targets(make_fx(step)(*operands()))
    assert linears(names) == []
    assert names[names.index("aten.addmm.default") + 1] == "aten._unsafe_view.default"
    assert not any("as_strided" in name or "copy" in name for name in names)


def aot(function: Callable[..., Tensor]) -> list[list[str]]:
    graphs: list[list[str]] = []

    def compiler(module: fx.GraphModule, _: object) -> fx.GraphModule:
        graphs.append(targets(module))
        return module

    boxed = make_boxed_compiler(compiler)
    aot_function(function, boxed, boxed)(*operands()).sum().backward()
    return graphs


def test_the_aot_joint_graph_sees_one_node_each() -> None:
    with whole_capture():
        forward, backward = aot(lambda x, w, b: noalias.linear(x, w, b).relu())
    assert linears(forward) == WHOLE[:1]
    assert linears(backward) == WHOLE[1:]
    assert flattened(forward + backward) == []
    forward, backward = aot(lambda x, w, b: noalias.linear(x, w, b).relu())
    assert linears(forward + backward) == []


def test_a_dispatch_mode_sees_one_node_each() -> None:
    with whole_capture(), dispatched() as names:
        step(*operands())
    assert linears(names) == WHOLE
    assert flattened(names) == []


def test_functorch_inside_a_capture_stays_whole() -> None:
    def loss(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return noalias.linear(x, w, b).relu_().sum()

    with whole_capture():
        names = targets(make_fx(torch.func.grad(loss, argnums=(0, 1, 2)))(*operands()))
        twice = targets(
            make_fx(torch.func.grad(lambda *a: torch.func.grad(loss, 1)(*a).sum()))(*operands())
        )
    assert linears(names) == WHOLE
    assert flattened(names) == []
    assert flattened(twice) == []


def test_whole_capture_ends_with_the_block_and_nests() -> None:
    core = noalias.native.load()
    with whole_capture():
        with whole_capture():
            pass
        assert core.whole_capture()
    assert not core.whole_capture()
    with pytest.raises(KeyError), whole_capture():
        raise KeyError
    assert not core.whole_capture()


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = noalias.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).relu()


@pytest.mark.parametrize("strict", [True, False])
def test_export_is_one_node(strict: bool) -> None:
    layer, x = Layer(), torch.randn(2, 3, 4)
    program = torch.export.export(layer, (x,), strict=strict)
    assert linears(targets(program.graph_module)) == ["aten.linear.default"]
    with whole_capture():
        whole = torch.export.export(layer, (x,), strict=strict)
    assert linears(targets(whole.graph_module)) == WHOLE[:1]
    assert torch.equal(whole.module()(x), layer(x))


@pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.:FutureWarning")
def test_an_exported_program_is_taken_apart_by_the_table() -> None:
    layer, x = Layer(), torch.randn(2, 3, 4)
    with whole_capture():
        program = torch.export.export(layer, (x,))
        apart = program.run_decompositions(decompositions())
    assert linears(targets(apart.graph_module)) == []
    assert torch.equal(apart.module()(x), layer(x))


def test_export_with_a_dynamic_batch() -> None:
    batch = torch.export.Dim("batch", min=2, max=64)
    layer = Layer()
    for context in (torch.enable_grad(), whole_capture()):
        with context:
            program = torch.export.export(
                layer, (torch.randn(4, 3, 4),), dynamic_shapes={"x": {0: batch}}
            )
        x = torch.randn(7, 3, 4)
        assert torch.equal(program.module()(x), layer(x))


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"
)
def test_onnx_export_gives_a_gemm_or_a_matmul_and_an_add() -> None:
    pytest.importorskip("onnx", reason="onnx is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    program = torch.onnx.export(Layer().eval(), (torch.randn(2, 3, 4),), dynamo=True, verbose=False)
    kinds = [node.op_type for node in program.model_proto.graph.node]
    assert "Gemm" in kinds or {"MatMul", "Add"} <= set(kinds)
    assert "Relu" in kinds


@pytest.mark.filterwarnings("ignore:.torch.jit.*is deprecated")
def test_jit_trace_records_linear_of_aten() -> None:
    w, b = torch.randn(5, 4), torch.randn(5)
    traced = torch.jit.trace(lambda x: noalias.linear(x, w, b), (torch.randn(2, 3, 4),))
    assert "aten::linear" in str(traced.graph)
    x = torch.randn(6, 7, 4)
    assert torch.equal(traced(x), F.linear(x, w, b))


@pytest.mark.filterwarnings("ignore:.torch.jit.*is deprecated")
def test_jit_script_calls_the_operator() -> None:
    scripted = torch.jit.script(noalias.Linear(4, 5))
    assert "noalias::linear" in str(scripted.inlined_graph)
    y = scripted(torch.randn(2, 3, 4))
    assert y.grad_fn.name() == "LinearBackward0"
