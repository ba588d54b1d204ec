"""``torch.compile``: no graph break, and the same code as for ``F.linear``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch._dynamo.utils import counters
from torch._inductor.utils import run_and_get_code

import noalias
from noalias.linear.capture import whole_capture

pytestmark = [
    pytest.mark.usefixtures("core"),
    pytest.mark.filterwarnings(
        "ignore::DeprecationWarning",
        "ignore::FutureWarning",
        # Compiled autograd reads the .grad of whatever it meets.
        "ignore:The .grad attribute of a Tensor that is not a leaf",
    ),
]


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def operands() -> list[Tensor]:
    return [torch.randn(*s, requires_grad=True) for s in [(2, 3, 4), (5, 4), (5,)]]


def test_dynamo_is_shown_linear_of_stock_and_nothing_else() -> None:
    seen: list[fx.GraphModule] = []

    def backend(module: fx.GraphModule, _: list[Tensor]) -> Callable[..., object]:
        seen.append(module)
        return module.forward

    compiled = torch.compile(lambda *a: noalias.linear(*a).relu_(), backend=backend, fullgraph=True)
    arguments = operands()
    assert torch.equal(compiled(*arguments), F.linear(*arguments).relu_())
    (module,) = seen
    called = [node.target for node in module.graph.nodes if node.op == "call_function"]
    assert called == [torch._C._nn.linear]


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4)])
def test_module_and_function_have_no_graph_break(shape: tuple[int, ...]) -> None:
    counter = CompileCounterWithBackend("aot_eager")
    layer = noalias.Linear(4, 5)
    compiled = torch.compile(
        lambda x: noalias.linear(layer(x).relu_(), torch.ones(2, 5)),
        backend=counter,
        fullgraph=True,
    )
    x = torch.randn(shape, requires_grad=True)
    compiled(x).sum().backward()
    assert counter.frame_count == 1
    assert x.grad is not None


def test_whole_capture_shows_dynamo_the_operator_and_compiles_anew() -> None:
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(noalias.linear, backend=counter, fullgraph=True)
    arguments = operands()
    expected = compiled(*arguments)
    with whole_capture():
        y = compiled(*arguments)
        y.sum().backward()
    names = [
        {str(node.target) for node in graph.graph.nodes if node.op == "call_function"}
        for graph in counter.graphs
    ]
    assert len(names) == 2
    assert names[1] == {"noalias.linear"} or names[1] == {"noalias.linear.default"}
    torch.testing.assert_close(y, expected)


def kernels(function: Callable[..., Tensor], *arguments: Tensor) -> list[str]:
    """Inductor's code for forward and backward, less comments and hashes."""
    torch.compiler.reset()
    compiled = torch.compile(function, fullgraph=True)

    def run() -> None:
        y = compiled(*arguments)
        if y.requires_grad:
            y.sum().backward()

    _, codes = run_and_get_code(run)
    return [
        re.sub(r"[a-z0-9]{51,}", "hash", re.sub(r"(?m)^\s*#.*$|\s+#.*$", "", code))
        for code in codes
    ]


@pytest.mark.long
@pytest.mark.parametrize("grads", [True, False])
@pytest.mark.parametrize("tail", [lambda y: y, torch.relu, F.gelu])
def test_inductor_generates_the_code_it_generates_for_stock(tail, grads: bool) -> None:
    arguments = [t.requires_grad_(grads) for t in operands()]
    ours = kernels(lambda *a: tail(noalias.linear(*a)), *arguments)
    stock = kernels(lambda *a: tail(F.linear(*a)), *arguments)
    assert ours == stock
    assert len(ours) == (2 if grads else 1)


@pytest.mark.long
def test_inductors_packing_of_frozen_weights_matches_as_for_stock() -> None:
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this PyTorch has no oneDNN")
    x = torch.randn(2, 64, 64, dtype=torch.bfloat16)

    def matched(kind: type[nn.Linear]) -> dict[str, int]:
        torch.compiler.reset()
        counters.clear()
        torch.manual_seed(0)
        net = nn.Sequential(kind(64, 64), nn.ReLU(), kind(64, 64)).to(torch.bfloat16).eval()
        with torch.no_grad(), torch._inductor.config.patch(freezing=True):
            torch.compile(net, fullgraph=True)(x)
        return dict(counters["inductor"])

    assert matched(noalias.Linear) == matched(nn.Linear)


@pytest.mark.long
def test_compiled_results_and_gradients_are_those_of_eager() -> None:
    arguments = operands()
    compiled = torch.compile(lambda *a: noalias.linear(*a).relu_(), fullgraph=True)
    actual = torch.autograd.grad(compiled(*arguments).square().sum(), arguments)
    expected = torch.autograd.grad(noalias.linear(*arguments).relu_().square().sum(), arguments)
    for left, right in zip(actual, expected, strict=True):
        torch.testing.assert_close(left, right)


def compiled_backward(run: Callable[[], Tensor], **options: object) -> None:
    with torch._dynamo.compiled_autograd._enable(
        torch.compile(backend="aot_eager", fullgraph=True, **options)
    ):
        run().backward()


@pytest.mark.parametrize(
    "case", ["all", "frozen weight", "frozen input", "broadcast bias", "hooks"]
)
def test_compiled_autograd_takes_a_graph_recorded_in_eager(case: str) -> None:
    def run(arguments: list[Tensor]) -> Tensor:
        return noalias.linear(*arguments).relu_().square().sum()

    arguments = operands()
    if case == "frozen weight":
        arguments[1].requires_grad_(False)
        arguments[0] = torch.randn(4, 3).t().requires_grad_()
    if case == "frozen input":
        arguments[0].requires_grad_(False)
        arguments[1] = torch.randn(4, 5).t().requires_grad_()
    if case == "broadcast bias":
        arguments[2] = torch.randn(1, 1, 5, requires_grad=True)
    if case == "hooks":
        arguments[0].register_hook(lambda grad: grad * 2)
    leaves = [t for t in arguments if t.requires_grad]
    run(arguments).backward()
    expected = [leaf.grad for leaf in leaves]
    for _ in range(2):
        for leaf in leaves:
            leaf.grad = None
        compiled_backward(lambda: run(arguments))
        for leaf, wanted in zip(leaves, expected, strict=True):
            torch.testing.assert_close(leaf.grad, wanted)
