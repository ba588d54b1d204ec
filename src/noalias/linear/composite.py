"""The same operator from PyTorch's own operators.

Answers on machines where the core cannot be built, and takes the operator apart for whoever
captured it whole (:func:`noalias.linear.capture.decompositions`).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from noalias.linear import sparse
from noalias.linear.shapes import check, output_shape, rows_of


def is_ours(input: Tensor, weight: Tensor) -> bool:
    """Whether the operator answers itself; every other call is handed to ``F.linear``."""
    return (
        input.dim() >= 1
        and weight.dim() == 2
        and input.layout is torch.strided
        and not (input.is_nested or weight.is_nested or input.is_quantized or weight.is_quantized)
        and (weight.layout is torch.strided or sparse.is_matrix(weight))
    )


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``[*, in]``, ``[out, in]``, ``[out]`` -> ``[*, out]``, no differentiable view.

    Raises:
        RuntimeError: as :func:`torch.nn.functional.linear`.
    """
    if not is_ours(input, weight):
        return F.linear(input, weight, bias)
    form = check(input, weight, bias)
    if weight.layout is not torch.strided:
        weight = sparse.densify(weight)
    rows = rows_of(input)
    if bias is not None and form == "rows":
        product = torch.addmm(bias, rows, weight.t())
    else:
        product = torch.mm(rows, weight.t())
    if input.dim() != 2:
        product = torch.ops.aten._unsafe_view(product, output_shape(input, weight))
    return product + bias if bias is not None and form == "broadcast" else product


def linear_backward(
    input: Tensor | None, grad_output: Tensor, weight: Tensor | None, output_mask: list[bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """``grad_output`` ``[*, out]`` -> gradients ``[*, in]``, ``[out, in]`` and ``[out]``.

    What ``output_mask`` does not ask for is ``None`` and is not computed. A product is taken
    transposed where the operand that is differentiated lies transposed, as PyTorch's derivative
    of ``addmm`` does it (torch/csrc/autograd/FunctionsManual.cpp): the bits depend on it.

    Raises:
        RuntimeError: the operand that a requested gradient needs is ``None``.
    """
    rows = rows_of(grad_output)
    grad_input = grad_weight = grad_bias = None
    if output_mask[0]:
        if weight is None:
            raise RuntimeError("noalias.linear_backward: the gradient of input needs weight")
        dense = weight.to_dense() if weight.layout is not torch.strided else weight
        if input is not None and _input_lies_transposed(input):
            grad_input = (dense.conj().t() @ rows.t()).t()
        else:
            grad_input = rows @ dense.conj()
        if grad_output.dim() != 2:
            shape = [*grad_output.shape[:-1], weight.shape[1]]
            grad_input = torch.ops.aten._unsafe_view(grad_input, shape)
    if output_mask[1]:
        if input is None:
            raise RuntimeError("noalias.linear_backward: the gradient of weight needs self")
        columns = rows_of(input).conj()
        if weight is not None and _weight_lies_transposed(weight):
            grad_weight = (columns.t() @ rows).t()
        else:
            grad_weight = rows.t() @ columns
    if output_mask[2]:
        grad_bias = rows.sum(0)
    return grad_input, grad_weight, grad_bias


def _lies_transposed(matrix: Tensor) -> bool:
    return matrix.stride(0) == 1 and matrix.stride(1) == matrix.shape[0]


def _input_lies_transposed(input: Tensor) -> bool:
    if input.dim() == 2:
        return _lies_transposed(input)
    if input.is_contiguous():
        return False
    rows = 1
    for size, stride in zip(reversed(input.shape[:-1]), reversed(input.stride()[:-1]), strict=True):
        if size != 1 and stride != rows:
            return False
        rows *= size
    return input.stride(-1) == rows


def _weight_lies_transposed(weight: Tensor) -> bool:
    if weight.layout is not torch.strided or weight.is_contiguous():
        return False
    return not _lies_transposed(weight.t())
