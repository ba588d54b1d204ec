"""``torch.func``, forward mode, double backward, and in-place consumers inside each."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as fwAD
import torch.nn.functional as F
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves

import noalias
from noalias import graph
from tests.linear.support import Linear, assert_close, dispatched

BATCHED = [dims for dims in itertools.product([None, 0], repeat=3) if dims != (None, None, None)]
INFO = next(op for op in op_db if op.name == "nn.functional.linear")


def operands(*batch: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    shapes = (2, 3, 4), (5, 4), (5,)
    return tuple(torch.randn(*batch, *shape, dtype=torch.float64) for shape in shapes)


def some_batched(dims, *, place: int = 0) -> list[torch.Tensor]:
    pairs = zip(operands(), operands(7), dims, strict=True)
    return [one if dim is None else many.movedim(0, place) for one, many, dim in pairs]


def same(run, linear: Linear) -> None:
    assert_close(tree_leaves(run(linear)), tree_leaves(run(F.linear)))


def loss(linear: Linear):
    return lambda *arguments: linear(*arguments).relu_().sin().sum()


@pytest.mark.parametrize("dims", BATCHED)
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("with_bias", [True, False])
def test_vmap_over_any_subset(linear: Linear, dims, rank: int, with_bias: bool) -> None:
    x, w, b = some_batched(dims)
    x = x[(..., *[0] * (3 - rank), slice(None), slice(None))] if rank > 1 else x[..., 0, 0, :]
    if not with_bias:
        if dims[:2] != (None, None):
            same(lambda f: vmap(f, in_dims=dims[:2])(x, w), linear)
        return
    same(lambda f: vmap(f, in_dims=dims)(x, w, b), linear)


@pytest.mark.parametrize("dims", BATCHED)
def test_vmap_over_the_last_dimension(linear: Linear, dims) -> None:
    arguments = some_batched(dims, place=-1)
    last = tuple(None if dim is None else -1 for dim in dims)
    same(lambda f: vmap(f, in_dims=last)(*arguments), linear)


@pytest.mark.parametrize("dims", BATCHED)
def test_vmap_of_grad_and_grad_of_vmap(linear: Linear, dims) -> None:
    arguments = some_batched(dims)
    same(lambda f: vmap(grad(loss(f), argnums=(0, 1, 2)), in_dims=dims)(*arguments), linear)
    same(
        lambda f: grad(lambda *a: vmap(f, in_dims=dims)(*a).sin().sum(), argnums=(0, 1, 2))(
            *arguments
        ),
        linear,
    )


@pytest.mark.parametrize("shape", [(1,), (), (1, 5), (1, 1, 5), (2, 1, 5), (3, 5), (6, 5), (6, 1)])
@pytest.mark.parametrize("dims", BATCHED)
def test_vmap_with_a_bias_that_broadcasts(linear: Linear, shape: tuple[int, ...], dims) -> None:
    x, w, _ = some_batched(dims)
    b = torch.randn([*([] if dims[2] is None else [7]), *shape], dtype=torch.float64)

    def by_hand(x, w, b):
        y = F.linear(x, w)
        return (y.reshape(6, 5) + b).reshape(2, 3, 5) if b.dim() == 2 and b.shape[0] == 6 else y + b

    assert_close([vmap(linear, in_dims=dims)(x, w, b)], [vmap(by_hand, in_dims=dims)(x, w, b)])


def test_vmap_within_vmap(linear: Linear) -> None:
    x, w, b = some_batched((0, 0, None))
    same(lambda f: vmap(vmap(f, in_dims=(0, None, None)), in_dims=(0, 0, None))(x, w, b), linear)


def test_vmap_calls_the_operator_once_when_the_weight_is_shared() -> None:
    x, w, b = some_batched((0, None, None))
    with dispatched() as names:
        vmap(noalias.linear, in_dims=(0, None, None))(x, w, b)
    assert [name for name in names if "mm" in name] == ["aten.addmm.default"]


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: grad(loss(f), argnums=(0, 1, 2)),
        lambda f: lambda *a: jvp(f, a, tuple(t.cos() for t in a)),
        lambda f: lambda *a: jvp(lambda *b: f(*b).relu_(), a, tuple(t.cos() for t in a)),
        lambda f: lambda *a: vjp(lambda *b: f(*b).relu_(), *a)[1](torch.ones(2, 3, 5).double()),
        lambda f: jacrev(f, argnums=(0, 1, 2)),
        lambda f: jacfwd(f, argnums=(0, 1, 2)),
        lambda f: hessian(loss(f), argnums=(0, 1, 2)),
        lambda f: jacfwd(jacfwd(loss(f), argnums=(0, 1)), argnums=(0, 1)),
        lambda f: jacrev(jacrev(loss(f), argnums=(0, 1)), argnums=(0, 1)),
        lambda f: jacrev(jacfwd(loss(f), argnums=(0, 1)), argnums=(0, 1)),
        lambda f: grad(lambda *a: grad(loss(f))(*a).cos().sum(), argnums=(1, 2)),
        lambda f: grad(lambda *a: jvp(loss(f), a, a)[1], argnums=(0, 1, 2)),
        lambda f: vmap(jacrev(f, argnums=1), in_dims=(0, None, None)),
        lambda f: vmap(jacfwd(f, argnums=0), in_dims=(0, None, None)),
        lambda f: vmap(hessian(loss(f), argnums=1), in_dims=(0, None, None)),
    ],
    ids=[
        "grad", "jvp", "jvp in place", "vjp in place", "jacrev", "jacfwd", "hessian",
        "jacfwd jacfwd", "jacrev jacrev", "jacrev jacfwd", "grad grad", "grad jvp",
        "vmap jacrev", "vmap jacfwd", "vmap hessian",
    ],
)  # fmt: skip
def test_transforms_and_their_compositions(linear: Linear, transform) -> None:
    arguments = operands()
    same(lambda f: transform(f)(*arguments), linear)


@pytest.mark.parametrize("which", [(0,), (1,), (2,), (0, 1, 2)])
def test_forward_mode_gives_a_tangent_for_each_operand(linear: Linear, which) -> None:
    arguments = operands()

    def tangent(f: Linear) -> torch.Tensor:
        with fwAD.dual_level():
            dual = [
                fwAD.make_dual(t, t.cos()) if i in which else t for i, t in enumerate(arguments)
            ]
            found = fwAD.unpack_dual(f(*dual).mul_(2)).tangent
        assert found is not None
        return found

    same(tangent, linear)
    assert tangent(linear).abs().sum() > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("rows", [(6,), (2, 3), (33, 2)])
def test_a_tangent_of_three_terms_has_the_bits_of_stock(
    linear: Linear, rows: tuple[int, ...], dtype: torch.dtype
) -> None:
    shapes = (*rows, 4), (5, 4), (5,)
    values = [torch.randn(shape, dtype=dtype) for shape in shapes]
    tangents = [torch.randn(shape, dtype=dtype) for shape in shapes]

    def tangent(function: Linear) -> torch.Tensor:
        with fwAD.dual_level():
            duals = [fwAD.make_dual(*pair) for pair in zip(values, tangents, strict=True)]
            return fwAD.unpack_dual(function(*duals)).tangent

    assert torch.equal(tangent(linear), tangent(F.linear))


@pytest.mark.parametrize("shape", [(1,), (), (1, 1, 5), (3, 5), (6, 5), (6, 1)])
def test_forward_mode_of_a_bias_that_broadcasts(linear: Linear, shape: tuple[int, ...]) -> None:
    x, w, _ = operands()
    b = torch.randn(shape, dtype=torch.float64)
    (value, tangent) = jvp(lambda b: linear(x, w, b), (b,), (b.cos(),))
    flat = shape in ((6, 5), (6, 1))
    spread = b.cos().expand(6, 5).reshape(2, 3, 5) if flat else b.cos().expand(2, 3, 5)
    torch.testing.assert_close(tangent, spread)
    assert value.shape == (2, 3, 5)


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: lambda *a: grad(f, argnums=(0, 1, 2))(*a),
        lambda f: lambda *a: vmap(grad(f), in_dims=(0, None, None))(*a),
        lambda f: lambda *a: grad(lambda *b: grad(f)(*b).sum())(*a),
        lambda f: lambda *a: jvp(f, a, a),
        lambda f: lambda *a: vmap(f, in_dims=(0, None, None))(*a),
    ],
    ids=["grad", "vmap grad", "grad grad", "jvp", "vmap"],
)
def test_an_in_place_consumer_rewrites_no_history_inside_a_transform(transform) -> None:
    seen = []

    def in_place(*arguments):
        y = noalias.linear(*arguments)
        y.relu_()
        seen.append((y._is_view(), graph.has_copy_slices(y), graph.has_as_strided(y)))
        return y.sin().sum()

    transform(in_place)(*operands())
    assert seen
    assert set(seen) == {(False, False, False)}


def test_no_transform_sees_a_view_of_the_product() -> None:
    with dispatched() as names:
        grad(loss(noalias.linear), argnums=(0, 1, 2))(*operands())
    assert "aten.as_strided.default" not in names
    assert "aten.copy_.default" not in names
    assert "aten._unsafe_view.default" in names


SAMPLES = [
    pytest.param(dtype, index, id=f"{dtype}-{index}".removeprefix("torch."))
    for dtype in (torch.float64, torch.complex128)
    for index in range(len(list(INFO.sample_inputs("cpu", dtype))))
]


@pytest.mark.parametrize(("dtype", "index"), SAMPLES)
def test_gradcheck_over_pytorchs_own_samples(linear: Linear, dtype, index: int) -> None:
    sample = list(INFO.sample_inputs("cpu", dtype, requires_grad=True))[index]
    arguments = (sample.input, *sample.args)
    assert torch.autograd.gradcheck(
        linear,
        arguments,
        check_forward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=True,
    )
    assert torch.autograd.gradgradcheck(
        linear, arguments, check_fwd_over_rev=True, check_rev_over_rev=True, check_batched_grad=True
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("mask", [[True, True, True], [True, False, False], [False, True, True]])
def test_gradcheck_of_linear_backward(core, dtype, mask) -> None:
    x, g, w = (
        torch.randn(shape, dtype=dtype, requires_grad=True)
        for shape in [(2, 2, 3), (2, 2, 4), (4, 3)]
    )

    def backward(x, g, w):
        found = torch.ops.noalias.linear_backward(x, g, w, mask)
        return tuple(grad for grad in found if grad is not None)

    assert torch.autograd.gradcheck(
        backward, (x, g, w), check_forward_ad=True, check_batched_grad=True
    )
    assert torch.autograd.gradgradcheck(backward, (x, g, w))


def test_double_backward_is_one_node_of_history_each_time(core) -> None:
    x, w, b = (t.requires_grad_() for t in operands())
    (first,) = torch.autograd.grad(noalias.linear(x, w, b).sin().sum(), [x], create_graph=True)
    assert first.grad_fn.name() == "LinearBackwardBackward0"
    names = graph.names(first)
    assert not any("Mm" in name or "View" in name for name in names)


@pytest.mark.parametrize("asked", ["input", "weight"])
def test_a_gradient_has_no_edge_to_what_it_does_not_depend_on(core, asked: str) -> None:
    """A custom Function makes zeros of a gradient that is not there; stock PyTorch says None."""

    class Identity(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad.clone()

    def second(linear: Callable[..., torch.Tensor]) -> torch.Tensor | None:
        leaves = {"input": torch.randn(2, 4), "weight": torch.randn(5, 4)}
        x, w = (Identity.apply(leaf.requires_grad_()) for leaf in leaves.values())
        leaf = leaves[asked]
        (first,) = torch.autograd.grad(linear(x, w).sum(), [leaf], create_graph=True)
        (found,) = torch.autograd.grad(first.sum(), [leaf], allow_unused=True)
        return found

    assert second(F.linear) is None
    assert second(noalias.linear) is None
