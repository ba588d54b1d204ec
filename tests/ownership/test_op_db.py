"""Every operator of PyTorch's database whose result is a view of a temporary, written in place.

Stock is the oracle: gradients bit for bit, and the same errors. Only the error that refuses a view
may go away, and only where nobody can see the base.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import noalias
from noalias.ownership.cures import reset

pytestmark = pytest.mark.filterwarnings("ignore")  # the samples' own: deprecations, beta features

CONSUMERS: dict[str, Callable[[Tensor], object]] = {
    "relu_": lambda y: y.relu_() if not y.is_complex() else y.mul_(3),
    "mul_": lambda y: y.mul_(3),
    "slice": lambda y: y[..., :1].mul_(3) if y.dim() else y.mul_(3),
    "copy_": lambda y: y.copy_(y.detach() * 2),
}
SAMPLES = 3
REFUSED = "is a view and is being modified inplace"


def leaves_of(tree: object) -> list[Tensor]:
    found = [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]
    return [leaf for leaf in found if leaf.requires_grad]


def fresh(tree: object) -> Any:
    def copy(leaf: object) -> object:
        if isinstance(leaf, Tensor) and leaf.layout is torch.strided:
            return leaf.detach().clone().requires_grad_(leaf.requires_grad)
        return leaf

    return pytree.tree_map(copy, tree)


def call(op: Any, arguments: Any) -> list[Tensor]:
    torch.manual_seed(0)
    sample, args, kwargs = arguments
    return [
        out for out in pytree.tree_leaves(op(sample, *args, **kwargs)) if isinstance(out, Tensor)
    ]


def hidden_outputs(op: Any, arguments: Any) -> list[int]:
    """Which outputs are views of a memory that no input has."""
    inputs = {
        leaf.untyped_storage()._cdata
        for leaf in pytree.tree_leaves(arguments)
        if isinstance(leaf, Tensor) and leaf.layout is torch.strided
    }
    return [
        i
        for i, out in enumerate(call(op, arguments))
        if out.layout is torch.strided
        and out._is_view()
        and out.requires_grad
        and out.untyped_storage()._cdata not in inputs
    ]


def step(op: Any, arguments: Any, index: int, consumer: str) -> list[Tensor | None] | str:
    """Gradients of the inputs, or the error."""
    arguments = fresh(arguments)
    output = call(op, arguments)[index]
    try:
        CONSUMERS[consumer](output)
        output.abs().sum().backward()
    except RuntimeError as error:
        return str(error).split("\n")[0]
    return [leaf.grad for leaf in leaves_of(arguments)]


def cases() -> Iterator[tuple[str, Any, Any, int]]:
    for op in op_db:
        if not op.supports_autograd or torch.float32 not in op.supported_dtypes("cpu"):
            continue
        samples = op.sample_inputs("cpu", torch.float32, requires_grad=True)
        for sample, _ in zip(samples, range(SAMPLES), strict=False):
            arguments = fresh((sample.input, sample.args, sample.kwargs))
            try:
                hidden = hidden_outputs(op, arguments)
            except (RuntimeError, NotImplementedError, TypeError):
                continue  # an operator this build of PyTorch cannot run
            for index in hidden:
                yield op.name, op, arguments, index


def same(left: list[Tensor | None], right: list[Tensor | None]) -> bool:
    return all(
        (a is None and b is None)
        or (a is not None and b is not None and torch.equal(a.nan_to_num(), b.nan_to_num()))
        for a, b in zip(left, right, strict=True)
    )


def test_every_hidden_view_written_to_in_place_has_stocks_gradients_and_errors() -> None:
    wrong: list[str] = []
    operators: set[str] = set()
    reset()
    for name, op, arguments, index in cases():
        operators.add(name)
        for consumer in CONSUMERS:
            stock = step(op, arguments, index, consumer)
            with noalias.enabled():
                cured = step(op, arguments, index, consumer)
            if isinstance(stock, str) or isinstance(cured, str):
                if cured != stock and not (isinstance(stock, str) and REFUSED in stock):
                    wrong.append(f"{name}, {consumer}: stock {stock!s:.60}, cured {cured!s:.60}")
            elif not same(stock, cured):
                wrong.append(f"{name}, {consumer}: gradients differ")

    assert not wrong, "\n".join(wrong)
    assert len(operators) > 20  # 46 with all samples of PyTorch 2.15
    assert noalias.status().cured > 2 * len(operators)
