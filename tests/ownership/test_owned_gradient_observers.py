"""Whoever can see a gradient under the cure ``owned_gradient`` sees stock's, unchanged."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.autograd.graph import register_multi_grad_hook, save_on_cpu, saved_tensors_hooks
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import TorchDispatchMode

import noalias
from tests.ownership.owned import leaf, reused, same_as_stock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# PyTorch's own, on the first use of forward-mode automatic differentiation.
DEPRECATED = "ignore:`torch.jit.script` is deprecated"

KEEPS: dict[str, Callable[[Tensor], object]] = {
    "itself": lambda g: g,
    "detached": lambda g: g.detach(),
    "a view": lambda g: g[1:],
    "its data": lambda g: g.data,
    "numpy": lambda g: g.numpy(),
    "dlpack": lambda g: torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(g)),
    "its storage": lambda g: g.untyped_storage(),
}


def values(kept: object) -> Tensor:
    if isinstance(kept, torch.UntypedStorage):
        return torch.tensor([], dtype=torch.float32).set_(kept).clone()
    if isinstance(kept, np.ndarray):
        return torch.from_numpy(kept.copy())
    assert isinstance(kept, Tensor)
    return kept.clone()


def activations(h: Tensor) -> Tensor:
    """Four formulas in a row, each of which would write over what it receives."""
    return F.gelu(F.relu(h * 2) / 3).cos()


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("where", ["tensor hook", "node prehook", "node hook"])
def test_what_a_hook_keeps_of_a_gradient_is_not_written_over(where: str, keep: str) -> None:
    def program() -> Iterator[Tensor | None]:
        x, kept = leaf(5, 4), []
        h = F.relu(x * 2)
        y = h.cos()
        if where == "tensor hook":
            h.register_hook(lambda g: kept.append(KEEPS[keep](g)))
        elif where == "node prehook":
            h.grad_fn.register_prehook(lambda gs: kept.append(KEEPS[keep](gs[0])))
        else:
            h.grad_fn.register_hook(lambda _, gs: kept.append(KEEPS[keep](gs[0])))
        y.sum().backward()
        yield from (x.grad, values(kept[0]))

    same_as_stock(program)


def test_a_weak_reference_does_not_outlive_its_gradient() -> None:
    alive = []

    def program() -> Iterator[Tensor | None]:
        x = leaf(5, 4)
        h = F.relu(x * 2)
        h.register_hook(lambda g: references.append(weakref.ref(g)))
        references: list[weakref.ref[Tensor]] = []
        h.cos().sum().backward()
        alive.append(references[0]() is not None)
        yield x.grad

    same_as_stock(program)
    assert alive == [False, False]


def test_hooks_that_replace_or_scale_a_gradient() -> None:
    def program() -> Iterator[Tensor | None]:
        x = leaf(5, 4)
        h = x * 2
        h.register_hook(lambda g: g * 3)
        r = F.relu(h)
        r.register_hook(lambda g: g.clone())
        r.cos().sum().backward()
        yield x.grad

    same_as_stock(program)


def test_retained_gradients_of_every_intermediate() -> None:
    def program() -> Iterator[Tensor | None]:
        steps = [leaf(5, 4)]
        for operator in (lambda t: t * 2, F.relu, F.gelu, torch.tanh, torch.cos):
            steps.append(operator(steps[-1]))
            steps[-1].retain_grad()
        steps[-1].sum().backward()
        yield from (step.grad for step in steps)

    same_as_stock(program)


def test_gradients_asked_for_in_the_middle_of_a_graph() -> None:
    def program() -> Iterator[Tensor | None]:
        x = leaf(5, 4)
        a = x * 2
        b = F.relu(a)
        c = F.gelu(b)
        yield from torch.autograd.grad(c.cos().sum(), [c, x, b, a], retain_graph=True)
        yield from torch.autograd.grad(c.cos().sum(), [a])

    assert same_as_stock(program) > 0


def test_module_hooks_and_multi_grad_hooks() -> None:
    def program() -> Iterator[Tensor | None]:
        seen: list[Tensor | None] = []
        net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4))
        for module in net:
            module.register_full_backward_hook(lambda _, i, o: seen.extend((*i, *o)))
            module.register_full_backward_pre_hook(lambda _, o: seen.extend(o))
        x = leaf(5, 4)
        a = x * 2
        b = F.relu(a)
        register_multi_grad_hook((a, b), lambda gs: seen.extend(gs))
        net(b).cos().sum().backward()
        yield from (x.grad, *seen)

    same_as_stock(program)


def test_the_gradient_passed_to_backward_belongs_to_the_caller() -> None:
    def program() -> Iterator[Tensor | None]:
        x, gradient = leaf(5, 4), torch.randn(5, 4)
        F.relu(x * 2).backward(gradient)
        (F.gelu(x) * 2).backward(gradient.view(20).view(5, 4))
        yield from (x.grad, gradient)

    same_as_stock(program)


def test_memory_that_a_custom_function_lends_is_not_written() -> None:
    buffer = np.ones((5, 4), dtype=np.float32)

    class Lend(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return torch.from_numpy(buffer)

    def program() -> Iterator[Tensor | None]:
        x = leaf(5, 4)
        Lend.apply(F.relu(x * 2)).sum().backward()
        yield from (x.grad, torch.from_numpy(buffer))

    same_as_stock(program)
    assert (buffer == 1).all()


def test_residual_connections_share_one_gradient() -> None:
    def program() -> Iterator[Tensor | None]:
        x = leaf(5, 4)
        h = x * 2
        for _ in range(4):
            h = h + F.relu(h) + F.gelu(h * 0.5)
        h.cos().sum().backward()
        yield x.grad

    assert same_as_stock(program) > 0


def test_several_backward_calls_and_double_backward() -> None:
    def program() -> Iterator[Tensor | None]:
        x = leaf(5, 4)
        y = activations(x).sum()
        y.backward(retain_graph=True)
        (first,) = torch.autograd.grad(y, x, create_graph=True)
        first.square().sum().backward()
        yield from (first.detach(), x.grad)

    same_as_stock(program)


def test_create_graph_leaves_every_gradient_alone() -> None:
    def program() -> Iterator[Tensor | None]:
        x = leaf(5, 4)
        (first,) = torch.autograd.grad(activations(x).sum(), x, create_graph=True)
        yield first.detach()

    assert same_as_stock(program) == 0


def test_backward_operators_called_by_hand_stay_out_of_place() -> None:
    class ByHand(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x.relu()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            mine = gradient * 3
            seen.append(torch.ops.aten.threshold_backward(mine, x, 0.0))
            seen.append(torch.ops.aten.gelu_backward(mine, x))
            seen.append(mine)
            return mine * 2

    seen: list[Tensor] = []

    def program() -> Iterator[Tensor | None]:
        seen.clear()
        x = leaf(5, 4)
        with torch.no_grad():
            gradient = torch.randn(5, 4)
            yield torch.ops.aten.threshold_backward(gradient, x, 0.0)
            yield torch.ops.aten.silu_backward(gradient, x)
            yield torch.mul(gradient, x)
            yield gradient
        ByHand.apply(x * 2).cos().sum().backward()
        yield from (x.grad, *seen)

    same_as_stock(program)


def test_operators_called_by_a_hook_of_a_node_that_would_call_them() -> None:
    def program() -> Iterator[Tensor | None]:
        seen: list[Tensor] = []

        def look(g: Tensor) -> None:
            # Composite operators: what they multiply is theirs alone, in C++.
            seen.append(F.cosine_similarity(g, g + 1, dim=0))
            seen.append(torch.nn.functional.normalize(g))
            seen.append(torch.cov(g) + torch.corrcoef(g))
            seen.append(torch.ops.aten.threshold_backward(g, g, 0.0))

        x = leaf(5, 4)
        for operator in (lambda t: t * 2, lambda t: t / 2, lambda t: -t, F.relu):
            y = operator(x)
            y.register_hook(look)
            y.cos().sum().backward()
        yield from (x.grad, *seen)

    same_as_stock(program)


def test_saved_tensor_hooks_that_compute() -> None:
    def program() -> Iterator[Tensor | None]:
        x = leaf(5, 4)
        with saved_tensors_hooks(lambda t: t * 4, lambda t: t * torch.full_like(t, 0.25)):
            y = activations(x) * x
        y.sum().backward()
        yield x.grad

    same_as_stock(program)


def test_arithmetic_stays_stocks_where_unpack_hooks_run_inside_the_node() -> None:
    def program() -> Iterator[Tensor | None]:
        x = leaf(5, 4)
        with saved_tensors_hooks(lambda t: t, lambda t: t):
            y = (x * torch.full((5, 4), 2.0)) / torch.full((5, 4), 3.0)
        y.cos().sum().backward()
        yield x.grad

    assert same_as_stock(program) == 0


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints(reentrant: bool) -> None:
    def program() -> Iterator[Tensor | None]:
        x = leaf(5, 4)
        h = torch.utils.checkpoint.checkpoint(activations, x * 2, use_reentrant=reentrant)
        F.relu(h).cos().sum().backward()
        yield x.grad

    assert same_as_stock(program) > 0


def test_saved_tensors_kept_elsewhere() -> None:
    def program() -> Iterator[Tensor | None]:
        x = leaf(5, 4)
        with save_on_cpu():
            y = activations(x)
        y.sum().backward()
        yield x.grad

    assert same_as_stock(program) > 0


@pytest.mark.filterwarnings("ignore:Anomaly", "ignore:Error detected")
def test_anomaly_mode_finds_the_same_error() -> None:
    def fails() -> str:
        x = torch.zeros(5, 4, requires_grad=True)
        with torch.autograd.detect_anomaly(), pytest.raises(RuntimeError) as caught:
            F.relu((x.sqrt() * 0).exp()).cos().sum().backward()
        return str(caught.value)

    expected = fails()
    assert "SqrtBackward0" in expected
    with noalias.enabled("owned_gradient"):
        assert fails() == expected


def test_threads_that_run_backward_over_one_graph() -> None:
    x = leaf(64, 64)
    y = activations(activations(x)).sum()
    (expected,) = torch.autograd.grad(y, x, retain_graph=True)
    found: list[Tensor] = []

    def run() -> None:
        for _ in range(20):
            found.extend(torch.autograd.grad(y, x, retain_graph=True))

    before = reused()
    with noalias.enabled("owned_gradient"):
        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 80
    assert all(torch.equal(gradient, expected) for gradient in found)
    assert reused() - before >= 80 * 4


@pytest.mark.filterwarnings(DEPRECATED)
def test_tangents_of_gradients() -> None:
    def program() -> Iterator[Tensor | None]:
        x = leaf(5, 4)
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, torch.randn(5, 4))
            (gradient,) = torch.autograd.grad(activations(dual * dual).sum(), dual)
            primal, tangent = forward_ad.unpack_dual(gradient)
            yield from (primal.clone(), None if tangent is None else tangent.clone())

    same_as_stock(program)


@pytest.mark.filterwarnings(DEPRECATED)
@pytest.mark.parametrize("transform", ["grad", "vjp", "vmap", "jvp of grad", "jacrev"])
def test_functional_transforms(transform: str) -> None:
    def loss(x: Tensor) -> Tensor:
        return activations(x).sum()

    def program() -> Iterator[Tensor | None]:
        x = torch.randn(5, 4)
        if transform == "grad":
            yield torch.func.grad(loss)(x)
        elif transform == "vjp":
            yield from torch.func.vjp(activations, x)[1](torch.ones(5, 4))
        elif transform == "vmap":
            yield torch.func.vmap(torch.func.grad(loss))(x)
        elif transform == "jacrev":
            yield torch.func.jacrev(activations)(x)
        else:
            yield from torch.func.jvp(torch.func.grad(loss), (x,), (torch.ones(5, 4),))

    assert same_as_stock(program) == 0


def test_a_dispatch_mode_sees_stocks_operators() -> None:
    class Names(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self.seen.append(str(func))
            return func(*args, **(kwargs or {}))

    def names() -> list[str]:
        y = activations(leaf(5, 4)).sum()
        with Names() as mode:
            y.backward()
        return mode.seen

    expected = names()
    with noalias.enabled("owned_gradient"):
        assert names() == expected


def test_wrapper_subclasses_get_stock() -> None:
    def program() -> Iterator[Tensor | None]:
        x = TwoTensor(torch.randn(5, 4), torch.randn(5, 4)).requires_grad_()
        activations(x).sum().backward()
        assert isinstance(x.grad, TwoTensor)
        yield from (x.grad.a, x.grad.b)

    assert same_as_stock(program) == 0


def test_hooks_on_parameters_and_after_accumulation() -> None:
    def program() -> Iterator[Tensor | None]:
        seen: list[Tensor | None] = []
        bias = leaf(5, 4)
        x = leaf(5, 4)
        bias.register_hook(lambda g: seen.append(g))
        x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad))
        # The addition hands one gradient to the parameter and to relu.
        (F.relu(x * 2) + bias).cos().sum().backward()
        yield from (x.grad, bias.grad, *seen)

    same_as_stock(program)
