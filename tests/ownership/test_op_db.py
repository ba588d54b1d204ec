"""Every operator and module of PyTorch's databases whose result is a view of a temporary, written
in place.

Stock is the oracle: gradients bit for bit, and the same errors. Only the error that refuses a view
may go away, and only where nobody can see the base.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import noalias
from noalias.ownership.cures import reset
from noalias.sweep.operators import Case, databases

pytestmark = pytest.mark.filterwarnings("ignore")  # the samples' own: deprecations, beta features

CONSUMERS: dict[str, Callable[[Tensor], object]] = {
    "relu_": lambda y: y.relu_() if not y.is_complex() else y.mul_(3),
    "mul_": lambda y: y.mul_(3),
    "slice": lambda y: y[..., :1].mul_(3) if y.dim() else y.mul_(3),
    "copy_": lambda y: y.copy_(y.detach() * 2),
}
SAMPLES = 3
REFUSED = "is a view and is being modified inplace"


def step(case: Case, index: int, consumer: str) -> list[Tensor | None] | str:
    """Gradients of the inputs and parameters, or the error."""
    leaves, outputs = case.call()
    try:
        CONSUMERS[consumer](outputs[index])
        outputs[index].abs().sum().backward()
    except RuntimeError as error:
        return str(error).split("\n")[0]
    return [leaf.grad for leaf in leaves]


def same(left: list[Tensor | None], right: list[Tensor | None]) -> bool:
    return all(
        (a is None and b is None)
        or (a is not None and b is not None and torch.equal(a.nan_to_num(), b.nan_to_num()))
        for a, b in zip(left, right, strict=True)
    )


def test_every_hidden_view_written_to_in_place_has_stocks_gradients_and_errors() -> None:
    wrong: list[str] = []
    names: set[str] = set()
    reset()
    for case in databases(SAMPLES)[1]:
        if not isinstance(case, Case):
            continue  # the end of an operator, or one that this build of PyTorch cannot run
        names.add(case.name)
        for index in case.outputs:
            for consumer in CONSUMERS:
                stock = step(case, index, consumer)
                with noalias.enabled():
                    cured = step(case, index, consumer)
                if isinstance(stock, str) or isinstance(cured, str):
                    if cured != stock and not (isinstance(stock, str) and REFUSED in stock):
                        what = f"stock {stock!s:.60}, cured {cured!s:.60}"
                        wrong.append(f"{case.name}, {consumer}: {what}")
                elif not same(stock, cured):
                    wrong.append(f"{case.name}, {consumer}: gradients differ")

    assert not wrong, "\n".join(wrong)
    assert len(names) > 30  # of operators alone 46 with all samples of PyTorch 2.15
    assert noalias.status().cured > 2 * len(names)
