"""Sparse weights of every layout, compared with the dense weight."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.autograd.forward_ad as fwAD
import torch.nn.functional as F

import noalias
from noalias import graph
from noalias.linear.sparse import sparse_weight_gradients
from tests.linear.support import Linear, dispatched

# PyTorch says so whenever a compressed tensor is made.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse (CSR|CSC|BSR|BSC) tensor support is in beta state"),
    # And this, in 2.11, where they were disabled explicitly, too.
    pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled"),
    pytest.mark.usefixtures("core"),
]

LAYOUTS = {
    "coo": lambda dense: dense.to_sparse(),
    "coo uncoalesced": lambda dense: torch.sparse_coo_tensor(
        torch.cat([dense.to_sparse().indices()] * 2, 1),
        torch.cat([dense.to_sparse().values() / 2] * 2),
        dense.shape,
        check_invariants=False,
    ),
    "csr": lambda dense: dense.to_sparse_csr(),
    "csc": lambda dense: dense.to_sparse_csc(),
    "bsr": lambda dense: dense.to_sparse_bsr((2, 2)),
    "bsr, oblong blocks": lambda dense: dense.to_sparse_bsr((3, 2)),
    "bsc": lambda dense: dense.to_sparse_bsc((2, 2)),
    "bsc, oblong blocks": lambda dense: dense.to_sparse_bsc((1, 4)),
}
SHAPES = [(4,), (3, 4), (2, 3, 4), (2, 2, 3, 4), (0, 3, 4)]
# Those that PyTorch accumulates into .grad.
ACCUMULATED = (torch.sparse_coo, torch.sparse_csr)


def some_entries(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(6, 4, dtype=dtype) * (torch.rand(6, 4) > 0.4)


def run(linear, x, w, b, grad):
    leaves = [t.detach().requires_grad_() for t in (x, w, b) if t is not None]
    y = linear(*leaves)
    return [y.detach(), *torch.autograd.grad(y, leaves, grad)]


def dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("with_bias", [True, False])
def test_values_and_gradients_are_those_of_the_dense_weight(
    linear: Linear, layout: str, shape: tuple[int, ...], with_bias: bool
) -> None:
    w = some_entries()
    x, b = torch.randn(shape), torch.randn(6) if with_bias else None
    grad = torch.randn(*shape[:-1], 6)
    actual = run(linear, x, LAYOUTS[layout](w), b, grad)
    for left, right in zip(actual, run(F.linear, x, w, b, grad), strict=True):
        assert left.layout is torch.strided
        torch.testing.assert_close(left, right)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128, torch.bfloat16])
def test_dtypes(linear: Linear, layout: str, dtype: torch.dtype) -> None:
    w = some_entries(dtype)
    x, b, grad = (torch.randn(*s, dtype=dtype) for s in [(2, 3, 4), (6,), (2, 3, 6)])
    actual = run(linear, x, LAYOUTS[layout](w), b, grad)
    tolerance = {"rtol": 0.05, "atol": 0.05} if dtype is torch.bfloat16 else {}
    for left, right in zip(actual, run(F.linear, x, w, b, grad), strict=True):
        torch.testing.assert_close(left, right, **tolerance)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4)])
def test_result_is_contiguous_no_view_and_one_node(layout: str, shape: tuple[int, ...]) -> None:
    x, w, b = torch.randn(shape), LAYOUTS[layout](some_entries()).requires_grad_(), torch.randn(6)
    y = noalias.linear(x, w, b)
    assert y.is_contiguous()
    assert not y._is_view()
    assert graph.names(y.relu_()) == {"ReluBackward0": 1, "LinearBackward0": 1, "AccumulateGrad": 1}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_default_gradient_is_dense_as_in_stock_and_accumulates(layout: str) -> None:
    w = LAYOUTS[layout](some_entries()).requires_grad_()
    for _ in range(2):
        noalias.linear(torch.ones(2, 3, 4), w).sum().backward()
    assert w.grad.layout is torch.strided
    assert torch.equal(w.grad, torch.full((6, 4), 12.0))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_pattern_gradients_are_the_dense_ones_where_the_weight_has_entries(
    linear: Linear, layout: str, shape: tuple[int, ...]
) -> None:
    w = LAYOUTS[layout](some_entries())
    x, b, grad = torch.randn(shape), torch.randn(6), torch.randn(*shape[:-1], 6)
    with sparse_weight_gradients("pattern"):
        actual = run(linear, x, w, b, grad)
    expected = run(F.linear, x, w.to_dense(), b, grad)
    found = actual[2]
    assert found.layout is w.layout
    ones = w.coalesce() if w.layout is torch.sparse_coo else w
    if w.layout is torch.sparse_coo:
        assert torch.equal(found.indices(), ones.indices())
        assert found._nnz() == ones._nnz()
    values = found.values()
    assert values.shape == ones.values().shape
    # Blocks hold zeros of the weight, whose gradients are no zeros: compare where any block is.
    pattern = ones.detach().clone()
    pattern.values().fill_(1)
    torch.testing.assert_close(dense(found), expected[2] * pattern.to_dense())
    for left, right in zip(actual[:2], expected[:2], strict=True):
        torch.testing.assert_close(left, right)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pattern_gradients_accumulate_or_say_why_not(layout: str) -> None:
    w = LAYOUTS[layout](some_entries()).requires_grad_()
    x = torch.ones(2, 3, 4)
    with sparse_weight_gradients("pattern"):
        y = noalias.linear(x, w)
    if w.layout in ACCUMULATED:
        y.sum().backward(retain_graph=True)
        y.sum().backward()
        assert w.grad.layout is w.layout
        total = w.grad.coalesce() if w.layout is torch.sparse_coo else w.grad
        assert set(total.values().tolist()) == {12.0}
        return
    with pytest.raises(RuntimeError, match="cannot be accumulated into"):
        y.sum().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="cannot be accumulated into"):
        y.sum().backward(inputs=[w], retain_graph=True)
    (found,) = torch.autograd.grad(y.sum(), [w])
    assert set(found.values().flatten().tolist()) == {6.0}


def test_the_choice_is_made_by_the_call_and_ends_with_the_block() -> None:
    w = some_entries().to_sparse_csr().requires_grad_()
    with sparse_weight_gradients("pattern"):
        inside = noalias.linear(torch.ones(3, 4), w)
        with sparse_weight_gradients("dense"):
            nested = noalias.linear(torch.ones(3, 4), w)
    outside = noalias.linear(torch.ones(3, 4), w)
    layouts = [torch.autograd.grad(y.sum(), [w])[0].layout for y in (inside, nested, outside)]
    assert layouts == [torch.sparse_csr, torch.strided, torch.strided]
    with (
        pytest.raises(ValueError, match="'dense' or 'pattern', not 'sparse'"),
        sparse_weight_gradients("sparse"),
    ):
        pass


def test_an_empty_pattern() -> None:
    w = torch.zeros(6, 4).to_sparse_csr().requires_grad_()
    with sparse_weight_gradients("pattern"):
        y = noalias.linear(torch.ones(3, 4), w)
    assert torch.equal(y, torch.zeros(3, 6))
    assert torch.autograd.grad(y.sum(), [w])[0]._nnz() == 0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_double_backward_and_forward_mode(layout: str) -> None:
    w = some_entries(torch.float64)
    sparse = LAYOUTS[layout](w)
    x = torch.randn(2, 3, 4, dtype=torch.float64)

    def second(linear, weight):
        a, v = x.detach().requires_grad_(), weight.detach().requires_grad_()
        grads = torch.autograd.grad(linear(a, v).sin().sum(), [a, v], create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in grads), [a, v])

    for left, right in zip(second(noalias.linear, sparse), second(F.linear, w), strict=True):
        torch.testing.assert_close(dense(left), right)
    # torch.func has no wrapper for compressed tensors, whatever the operator.
    with fwAD.dual_level():
        found = noalias.linear(fwAD.make_dual(x, x.cos()), sparse)
        torch.testing.assert_close(fwAD.unpack_dual(found).tangent, F.linear(x.cos(), w))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_vmap_over_the_input(layout: str) -> None:
    w, x = some_entries(), torch.randn(5, 2, 3, 4)
    sparse = LAYOUTS[layout](w)
    found = torch.func.vmap(lambda a: noalias.linear(a, sparse))(x)
    torch.testing.assert_close(found, F.linear(x, w))


def test_a_bias_that_broadcasts() -> None:
    w, x = some_entries(), torch.randn(2, 3, 4)
    for shape in [(), (1,), (1, 1, 6), (2, 1, 6), (6, 6), (3, 1)]:
        b = torch.randn(shape)
        flat = shape == (6, 6)
        expected = (F.linear(x, w).reshape(6, 6) + b).view(2, 3, 6) if flat else F.linear(x, w) + b
        torch.testing.assert_close(noalias.linear(x, w.to_sparse_csr(), b), expected)


def test_errors_name_shapes_and_dtypes() -> None:
    w = some_entries().to_sparse_csr()
    with pytest.raises(RuntimeError, match=r"\[2, 5\].*\[6, 4\]"):
        noalias.linear(torch.randn(2, 5), w)
    with pytest.raises(RuntimeError, match="same dtype"):
        noalias.linear(torch.randn(2, 4).double(), w)


def test_a_dispatch_mode_sees_one_node_for_a_sparse_weight() -> None:
    w = some_entries().to_sparse_csr().requires_grad_()
    x = torch.randn(2, 3, 4, requires_grad=True)
    with dispatched() as names:
        y = noalias.linear(x, w)
        y.backward(torch.ones_like(y))
    assert [name for name in names if "linear" in name] == [
        "noalias.linear.default",
        "noalias.linear_backward.default",
    ]


def test_hybrid_and_batched_sparse_weights_are_left_to_stock() -> None:
    rows = torch.randn(6, 4).to_sparse(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for linear in (F.linear, noalias.linear):
            with pytest.raises((RuntimeError, NotImplementedError)):
                linear(torch.randn(2, 4), rows, torch.randn(6))
