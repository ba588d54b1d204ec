"""Values, gradients and errors for dense operands."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

import noalias
from noalias import graph
from noalias.linear import composite
from tests.linear.support import (
    Linear,
    assert_close,
    assert_same_bits,
    leaves,
    values_and_gradients,
    workaround,
)

SHAPES = [(4,), (3, 4), (2, 3, 4), (2, 2, 3, 4), (0, 4), (0, 3, 4), (2, 0, 4), (1, 1, 4)]
DTYPES = [torch.float32, torch.float64, torch.complex64, torch.bfloat16, torch.float16]
WANTED = [wanted for wanted in itertools.product([True, False], repeat=3) if any(wanted)]


def transposed(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*reversed(shape), dtype=dtype).t()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("with_bias", [True, False])
def test_bits_are_those_of_flattening_by_hand(
    linear: Linear, shape: tuple[int, ...], dtype: torch.dtype, with_bias: bool
) -> None:
    x, w = torch.randn(shape, dtype=dtype), torch.randn(5, 4, dtype=dtype)
    b = torch.randn(5, dtype=dtype) if with_bias else None
    assert_same_bits(
        values_and_gradients(linear, x, w, b), values_and_gradients(workaround, x, w, b)
    )


@pytest.mark.parametrize("wanted", WANTED)
@pytest.mark.parametrize("weight_strides", ["contiguous", "transposed", "sliced"])
@pytest.mark.parametrize(
    "input_strides", ["3d", "2d", "2d transposed", "2d sliced", "3d transposed"]
)
def test_bits_do_not_depend_on_strides_or_on_what_is_frozen(
    linear: Linear, input_strides: str, weight_strides: str, wanted: tuple[bool, bool, bool]
) -> None:
    x = {
        "3d": torch.randn(2, 30, 40),
        "2d": torch.randn(30, 40),
        "2d transposed": transposed(30, 40),
        "2d sliced": torch.randn(60, 80)[::2, :40],
        "3d transposed": transposed(30, 40)[None],
    }[input_strides]
    w = {
        "contiguous": torch.randn(50, 40),
        "transposed": transposed(50, 40),
        "sliced": torch.randn(50, 80)[:, :40],
    }[weight_strides]
    b = torch.randn(50)
    assert_same_bits(
        values_and_gradients(linear, x, w, b, wanted=wanted),
        values_and_gradients(workaround, x, w, b, wanted=wanted),
    )


@pytest.mark.parametrize("features", [(0, 5), (4, 0), (1, 5), (4, 1)])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_degenerate_feature_counts(
    linear: Linear, shape: tuple[int, ...], features: tuple[int, int]
) -> None:
    x, w, b = (
        torch.randn(*shape, features[0]),
        torch.randn(*reversed(features)),
        torch.randn(features[1]),
    )
    assert_same_bits(
        values_and_gradients(linear, x, w, b), values_and_gradients(workaround, x, w, b)
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("with_bias", [True, False])
def test_result_is_contiguous_and_no_view(
    linear: Linear, shape: tuple[int, ...], with_bias: bool
) -> None:
    x, w, b = leaves(torch.randn(shape), torch.randn(5, 4), torch.randn(5) if with_bias else None)
    y = linear(x, w, b)
    assert y.is_contiguous()
    assert not y._is_view()


@pytest.mark.parametrize(
    "inplace", [torch.relu_, lambda y: y.mul_(2), lambda y: y[..., :2].zero_()]
)
@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4), (2, 2, 3, 4)])
def test_history_of_an_in_place_consumer(shape, inplace) -> None:
    x, w, b = leaves(torch.randn(shape), torch.randn(5, 4), torch.randn(5))
    y = noalias.linear(x, w, b)
    assert graph.names(y) == {"LinearBackward0": 1, "AccumulateGrad": 3}
    whole = inplace(y).shape == y.shape
    assert not graph.has_copy_slices(y) or not whole
    assert not graph.has_as_strided(y)


def test_gradients_behind_an_in_place_consumer_have_the_bits_of_the_workaround(
    linear: Linear,
) -> None:
    def by_hand(x, w, b):
        return F.linear(x.reshape(-1, 4), w, b).relu_().view(2, 3, 5)

    operands = torch.randn(2, 3, 4), torch.randn(5, 4), torch.randn(5)
    assert_same_bits(
        values_and_gradients(lambda *a: linear(*a).relu_(), *operands),
        values_and_gradients(by_hand, *operands),
    )


def test_only_what_the_gradients_need_is_kept_alive() -> None:
    x, w, b = leaves(
        torch.randn(2, 3, 4), torch.randn(5, 4), torch.randn(5), wanted=(True, False, True)
    )
    node = noalias.linear(x, w, b).grad_fn
    assert node._saved_self is None
    assert node._saved_weight is w
    x, w, b = leaves(x, w, b, wanted=(False, True, True))
    node = noalias.linear(x, w, b).grad_fn
    assert node._saved_self is x
    assert node._saved_weight is None


def test_node_has_the_type_and_the_name_of_one_of_pytorchs_own() -> None:
    x, w, b = leaves(torch.randn(2, 4), torch.randn(5, 4), torch.randn(5))
    node = noalias.linear(x, w, b).grad_fn
    assert type(node).__name__ == node.name() == "LinearBackward0"


def test_backward_a_second_time_raises_what_pytorch_raises() -> None:
    x, w, b = leaves(torch.randn(2, 3, 4), torch.randn(5, 4), torch.randn(5))
    y = noalias.linear(x, w, b).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()


def test_writing_to_a_saved_operand_raises_what_pytorch_raises() -> None:
    x, w, b = leaves(torch.randn(2, 3, 4), torch.randn(5, 4), torch.randn(5))
    y = noalias.linear(x, w, b)
    with torch.no_grad():
        w.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("with_bias", [True, False])
def test_saved_tensor_hooks_see_what_those_of_f_linear_see(with_bias: bool) -> None:
    x, w, b = leaves(torch.randn(2, 3, 4), torch.randn(5, 4), torch.randn(5))

    def packed(linear: Linear) -> list[torch.Size]:
        seen: list[torch.Size] = []

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            seen.append(tensor.shape)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            linear(x, w, b if with_bias else None).sum().backward()
        return seen

    assert packed(noalias.linear) == packed(F.linear)
    assert sorted(packed(noalias.linear)) == [w.t().shape, (6, 4)]
    assert x.grad is not None


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4), (2, 2, 3, 4)])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("contiguous", [True, False])
@pytest.mark.parametrize("input_is_leaf", [True, False])
def test_hooks_on_leaves_are_called_in_stocks_order(
    shape: tuple[int, ...], with_bias: bool, contiguous: bool, input_is_leaf: bool
) -> None:
    def order(linear: Linear) -> list[str]:
        x = torch.randn(shape) if contiguous else torch.randn(*shape, 2)[..., 0]
        operands = leaves(x, torch.randn(5, 4), torch.randn(5) if with_bias else None)
        called: list[str] = []
        for name, leaf in zip(("input", "weight", "bias"), operands, strict=True):
            if leaf is not None:
                leaf.register_hook(lambda _, name=name: called.append(name))
                leaf.register_post_accumulate_grad_hook(lambda _, name=name: called.append(name))
        x, w, b = operands
        linear(x if input_is_leaf else x * 1, w, b).sum().backward()
        return called

    assert order(noalias.linear) == order(F.linear)


BIASES = [
    (5,),
    (1,),
    (),
    (1, 5),
    (1, 1, 5),
    (3, 5),
    (2, 1, 5),
    (2, 3, 5),
    (2, 3, 1),
    (6, 5),
    (6, 1),
]


@pytest.mark.parametrize("shape", BIASES)
@pytest.mark.parametrize("strides", ["contiguous", "permuted"])
def test_a_bias_that_broadcasts_does_so_whatever_the_strides(
    linear: Linear, shape: tuple[int, ...], strides: str
) -> None:
    def by_hand(x, w, b):
        flat = b.dim() == 2 and b.shape[0] == 6
        y = F.linear(x, w)
        return (y.reshape(6, 5) + b).view(2, 3, 5) if flat else y + b

    x = torch.randn(2, 3, 4) if strides == "contiguous" else torch.randn(3, 2, 4).transpose(0, 1)
    w, b = torch.randn(5, 4), torch.randn(shape)
    assert_close(values_and_gradients(linear, x, w, b), values_and_gradients(by_hand, x, w, b))


@pytest.mark.parametrize("shape", [(4,), (4, 5), (1, 1, 1, 5), (6, 5, 1), (5, 1)])
@pytest.mark.parametrize("strides", ["contiguous", "permuted"])
def test_a_bias_that_does_not_broadcast_raises_naming_its_shape(
    linear: Linear, shape: tuple[int, ...], strides: str
) -> None:
    x = torch.randn(2, 3, 4) if strides == "contiguous" else torch.randn(3, 2, 4).transpose(0, 1)
    with pytest.raises(RuntimeError, match=f"bias of shape \\[{', '.join(map(str, shape))}\\]"):
        linear(x, torch.randn(5, 4), torch.randn(shape))


def same_class(linear: Linear, *arguments: object) -> str:
    """The message, once ``F.linear`` is known to raise the same class."""
    with pytest.raises((RuntimeError, TypeError)) as stock:
        F.linear(*arguments)
    with pytest.raises(stock.type) as ours:
        linear(*arguments)
    assert ours.type is stock.type
    return str(ours.value)


def test_shapes_that_cannot_be_multiplied(linear: Linear) -> None:
    message = same_class(linear, torch.randn(2, 3, 4), torch.randn(5, 7), torch.randn(5))
    assert "[2, 3, 4]" in message
    assert "[5, 7]" in message


@pytest.mark.parametrize("with_bias", [True, False])
def test_mixed_dtypes_name_both(linear: Linear, with_bias: bool) -> None:
    b = torch.randn(5) if with_bias else None
    message = same_class(linear, torch.randn(2, 3, 4).double(), torch.randn(5, 4), b).lower()
    assert "double" in message or "float64" in message
    assert "float" in message.replace("float64", "")


def test_dtype_of_the_bias_is_named(linear: Linear) -> None:
    message = same_class(linear, torch.randn(2, 3, 4), torch.randn(5, 4), torch.randn(5).double())
    assert "bias" in message


def test_mixed_devices_name_both(linear: Linear) -> None:
    # Stock multiplies a CPU input with a meta weight and returns uninitialized memory.
    with pytest.raises(RuntimeError, match="input is on cpu and weight is on meta"):
        linear(torch.randn(2, 3, 4), torch.randn(5, 4, device="meta"))
    message = same_class(
        linear, torch.randn(3, 4), torch.randn(5, 4), torch.randn(5, device="meta")
    )
    assert "cpu" in message
    assert "meta" in message


@pytest.mark.parametrize(
    ("input", "weight"), [((), (5, 4)), ((2, 3, 4), ()), ((2, 3, 4), (2, 5, 4)), ((4,), (5, 4, 1))]
)
def test_wrong_ranks(linear: Linear, input, weight) -> None:
    same_class(linear, torch.randn(input), torch.randn(weight))


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4)])
def test_a_weight_of_one_dimension_is_a_dot_product_as_in_stock(
    linear: Linear, shape: tuple[int, ...]
) -> None:
    x, w = torch.randn(shape), torch.randn(4)
    assert_same_bits(values_and_gradients(linear, x, w), values_and_gradients(F.linear, x, w))


@pytest.mark.parametrize(
    "arguments",
    [
        ([1.0], torch.ones(5, 4)),
        (torch.ones(2, 4), None),
        (torch.ones(2, 4), torch.ones(5, 4), 3.0),
    ],
)
def test_no_tensor_raises_type_error(arguments: tuple[object, ...]) -> None:
    message = same_class(noalias.linear, *arguments)
    assert "must be Tensor" in message


def test_wrong_number_of_arguments_raises_type_error() -> None:
    with pytest.raises(TypeError):
        noalias.linear(torch.ones(2, 4))
    with pytest.raises(TypeError):
        noalias.linear(torch.ones(2, 4), torch.ones(5, 4), None, None)


def test_keywords_are_those_of_stock() -> None:
    x, w, b = torch.randn(2, 3, 4), torch.randn(5, 4), torch.randn(5)
    assert torch.equal(
        noalias.linear(bias=b, weight=w, input=x), F.linear(input=x, weight=w, bias=b)
    )


def test_an_error_leaves_nothing_behind() -> None:
    x, w = leaves(torch.randn(2, 3, 4), torch.randn(5, 4))
    with pytest.raises(RuntimeError):
        noalias.linear(x, w, torch.randn(7))
    noalias.linear(x, w).sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("mask", [[True, False, False], [False, True, False], [False, False, True]])
def test_linear_backward_computes_only_what_is_asked_for(core, mask: list[bool]) -> None:
    x, w, g = torch.randn(2, 3, 4), torch.randn(5, 4), torch.randn(2, 3, 5)
    found = torch.ops.noalias.linear_backward(x, g, w, mask)
    wanted = composite.linear_backward(x, g, w, mask)
    assert [grad is not None for grad in found] == mask
    for left, right in zip(found, wanted, strict=True):
        assert (left is None and right is None) or torch.equal(left, right)


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        ((None, "g", "w", [False, True, False]), "self"),
        (("x", "g", None, [True, False, False]), "weight"),
    ],
)
def test_linear_backward_names_the_operand_it_lacks(core, arguments, missing: str) -> None:
    operands = {"x": torch.randn(2, 4), "w": torch.randn(5, 4), "g": torch.randn(2, 5)}
    values = [operands.get(a, a) if isinstance(a, str) else a for a in arguments]
    with pytest.raises(RuntimeError, match=missing):
        torch.ops.noalias.linear_backward(*values)
    with pytest.raises(RuntimeError, match=missing):
        composite.linear_backward(*values)


WITHOUT_COMPILER = """
import warnings, torch, noalias
from noalias import native
from noalias.linear import op

def unavailable():
    raise native.NativeUnavailable("no compiler", fix="install one")

native.load = unavailable
x = torch.randn(2, 3, 4, requires_grad=True)
w = torch.randn(5, 4, requires_grad=True)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    y = noalias.linear(x, w).relu_()
    noalias.linear(x, w)
    torch.ops.noalias.linear(x, w)
assert ["no compiler" in str(c.message) for c in caught] == [True], caught
assert not y._is_view()
y.sum().backward()
grads = torch.ops.noalias.linear_backward(x, torch.ones_like(y), w, [True, True, True])
assert grads[2].tolist() == [6.0] * 5
vmapped = torch.func.vmap(noalias.linear, in_dims=(0, None))(x, w)
assert torch.equal(vmapped, torch.nn.functional.linear(x, w))
print("composite")
"""

FIRST_CALL = """
import threading, torch
{first}
assert x.grad is not None
import noalias
assert noalias.linear(x, w).grad_fn.name() == "LinearBackward0"
print("loaded")
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_without_a_core_the_composite_answers_and_says_so_once() -> None:
    assert run(WITHOUT_COMPILER) == "composite"


@pytest.mark.parametrize(
    "first",
    [
        "noalias.linear(x, w).sum().backward()",
        "torch.ops.noalias.linear(x, w).sum().backward()",
        "noalias.Linear(4, 5)(x).sum().backward()",
        "step = lambda: noalias.linear(x, w).sum().backward()\n"
        "ts = [threading.Thread(target=step) for _ in range(4)]\n"
        "[t.start() for t in ts]; [t.join() for t in ts]",
    ],
)
def test_whichever_call_comes_first_loads_the_core(core, first: str) -> None:
    setup = (
        "import noalias, noalias.linear.op\n"
        "x = torch.randn(2, 3, 4, requires_grad=True); w = torch.randn(5, 4, requires_grad=True)\n"
    )
    assert run(FIRST_CALL.format(first=setup + first)) == "loaded"


def test_gradient_taken_with_create_graph_requires_grad_only_where_it_depends_on_a_leaf(
    linear: Linear,
) -> None:
    x = torch.randn(2, 3, 4, requires_grad=True)
    weight, bias = torch.randn(5, 4, requires_grad=True), torch.randn(5, requires_grad=True)

    def flags(function: Linear) -> list[bool]:
        y = function(x, weight, bias).sum()
        gradients = torch.autograd.grad(y, [x, weight, bias], create_graph=True)
        return [gradient.requires_grad for gradient in gradients]

    assert flags(linear) == flags(F.linear) == [True, True, False]


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("rows", [(6,), (2, 3), (2, 0), (33, 2)])
def test_gradients_of_gradients_have_the_bits_of_stock(
    linear: Linear, rows: tuple[int, ...], with_bias: bool
) -> None:
    x, weight = torch.randn(*rows, 4), torch.randn(5, 4)
    inputs = [x, weight, torch.randn(5)] if with_bias else [x, weight]
    # One gradient for each gradient: products in both directions, and the bias's.
    into = [torch.randn_like(tensor) for tensor in inputs]
    grad = torch.randn(*rows, 5, requires_grad=True)
    for tensor in inputs:
        tensor.requires_grad_()

    def second(function: Linear) -> tuple[torch.Tensor, ...]:
        first = torch.autograd.grad(function(*inputs), inputs, grad, create_graph=True)
        return torch.autograd.grad(first, [x, weight, grad], into)

    for actual, expected in zip(second(linear), second(F.linear), strict=True):
        assert torch.equal(actual, expected)
