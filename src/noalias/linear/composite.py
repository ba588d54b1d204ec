"""The same operator from PyTorch's own operators, for machines where the core cannot be built."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``[*, in]``, ``[out, in]``, ``[out]`` -> ``[*, out]``, no differentiable view.

    Raises:
        RuntimeError: as :func:`torch.nn.functional.linear`.
    """
    if input.dim() in (0, 2) or weight.dim() != 2 or input.layout is not torch.strided:
        return F.linear(input, weight, bias)
    rows = input.reshape(input.shape[:-1].numel(), input.shape[-1])
    flat_bias = bias if bias is None or bias.dim() == 1 else None
    product = F.linear(rows, weight, flat_bias)
    result = torch.ops.aten._unsafe_view(product, [*input.shape[:-1], weight.shape[0]])
    return result if bias is None or bias.dim() == 1 else result + bias


def linear_backward(
    input: Tensor | None, grad_output: Tensor, weight: Tensor | None, output_mask: list[bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """``grad_output`` ``[*, out]`` -> gradients of input ``[*, in]``, weight ``[out, in]``, bias ``[out]``.

    What ``output_mask`` does not ask for is ``None`` and is not computed.

    Raises:
        RuntimeError: the operand that a requested gradient needs is ``None``.
    """
    rows = grad_output.reshape(grad_output.shape[:-1].numel(), grad_output.shape[-1])
    grad_input = grad_weight = grad_bias = None
    if output_mask[0]:
        if weight is None:
            raise RuntimeError("noalias.linear_backward: the gradient of input needs weight")
        shape = [*grad_output.shape[:-1], weight.shape[1]]
        grad_input = torch.ops.aten._unsafe_view(rows @ weight.conj(), shape)
    if output_mask[1]:
        if input is None:
            raise RuntimeError("noalias.linear_backward: the gradient of weight needs self")
        grad_weight = rows.t() @ input.reshape(rows.shape[0], input.shape[-1]).conj()
    if output_mask[2]:
        grad_bias = rows.sum(0)
    return grad_input, grad_weight, grad_bias
