"""``vmap`` of ``noalias.linear`` and of its derivative.

Where the weight is not batched, the batch joins the leading dimensions and one call does it all.
Where nothing but the weight is, the weights are stacked to one of ``batch * out`` features. Both
batched are a batched product. No result is a view of a product that nobody else can see.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

BatchDim = int | None


class Info(Protocol):
    """What ``torch.library.register_vmap`` says of a call."""

    @property
    def batch_size(self) -> int: ...


def linear(
    info: Info,
    in_dims: Sequence[BatchDim],
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
) -> tuple[Tensor, int]:
    """``input`` ``[*, in]``, ``weight`` ``[out, in]``, ``bias`` ``[out]``, each as seen by one
    sample -> ``[*, out]`` and the batch's place in it.

    Raises:
        RuntimeError: what one sample's call raises.
    """
    input_dim, weight_dim, bias_dim = (*in_dims, None)[:3]
    x, w = _to_front(input, input_dim), _to_front(weight, weight_dim)
    features = w.shape[-2]
    one_bias = bias is not None and bias.dim() - (bias_dim is not None) == 1
    if weight_dim is None:
        if bias is None or (one_bias and bias_dim is None and input_dim is not None):
            return torch.ops.noalias.linear(x, w, bias), 0
        product = torch.ops.noalias.linear(x, w)
    elif input_dim is None:
        stacked = w.reshape(-1, w.shape[-1])
        shape = [*x.shape[:-1], info.batch_size, features]
        if bias is None or one_bias:
            if bias is not None:
                spread = _to_front(bias, bias_dim).expand(info.batch_size, features)
                bias = spread.reshape(-1)
            result = torch.ops.noalias.linear(x, stacked, bias)
            return torch.ops.aten._unsafe_view(result, shape), x.dim() - 1
        result = torch.ops.noalias.linear(x, stacked)
        product = torch.ops.aten._unsafe_view(result, shape).movedim(-2, 0)
    else:
        rows = x.reshape(info.batch_size, x.shape[1:-1].numel(), x.shape[-1])
        if bias is not None and one_bias:
            spread = _to_front(bias, bias_dim).unsqueeze(-2)
            result = torch.baddbmm(spread, rows, w.mT)
        else:
            result = torch.bmm(rows, w.mT)
        product = torch.ops.aten._unsafe_view(result, [*x.shape[:-1], features])
        if bias is None or one_bias:
            return product, 0
    lead = x.shape[1:-1] if input_dim is not None else x.shape[:-1]
    return product + _aligned(_to_front(bias, bias_dim), bias_dim is not None, lead, features), 0


def linear_backward(
    info: Info,
    in_dims: Sequence[BatchDim],
    self: Tensor | None,
    grad_output: Tensor,
    weight: Tensor | None,
    output_mask: list[bool],
) -> tuple[tuple[Tensor | None, ...], tuple[BatchDim, ...]]:
    """``grad_output`` ``[*, out]``, ``self`` ``[*, in]``, ``weight`` ``[out, in]``, each as seen by
    one sample -> the three gradients and the batch's place in each; ``None`` where
    nothing is asked for.
    """
    input_dim, grad_dim, weight_dim = in_dims[:3]
    g = _to_front(grad_output, grad_dim)
    lead = g.shape[1:-1] if grad_dim is not None else g.shape[:-1]
    batch = () if grad_dim is None else (info.batch_size,)
    rows = g.reshape(*batch, lead.numel(), g.shape[-1])
    grads: list[Tensor | None] = [None, None, None]
    dims: list[BatchDim] = [None, None, None]
    if output_mask[0] and weight is not None:
        dims[0] = None if grad_dim is None and weight_dim is None else 0
        if weight_dim is None:
            grads[0] = torch.ops.noalias.linear_backward(None, g, weight, [True, False, False])[0]
        else:
            product = torch.matmul(rows, _to_front(weight, weight_dim).conj())
            shape = [info.batch_size, *lead, product.shape[-1]]
            grads[0] = torch.ops.aten._unsafe_view(product, shape)
    if output_mask[1] and self is not None:
        dims[1] = None if grad_dim is None and input_dim is None else 0
        x = _to_front(self, input_dim)
        batch = () if input_dim is None else (info.batch_size,)
        columns = x.reshape(*batch, lead.numel(), x.shape[-1])
        grads[1] = torch.matmul(rows.mT, columns.conj())
    if output_mask[2]:
        dims[2] = None if grad_dim is None else 0
        grads[2] = rows.sum(-2)
    return tuple(grads), tuple(dims)


def _to_front(tensor: Tensor, dim: BatchDim) -> Tensor:
    return tensor if dim is None else tensor.movedim(dim, 0)


def _aligned(bias: Tensor, batched: bool, lead: torch.Size, features: int) -> Tensor:
    """A batched bias, or one of a rare shape, so that it broadcasts to ``[batch, *, out]``."""
    shape = bias.shape[1:] if batched else bias.shape
    batch = bias.shape[:1] if batched else torch.Size([1])
    if len(shape) == 2 and len(lead) != 1 and shape[0] == lead.numel():
        # [rows, out] and its like are added to the flattened output.
        return bias.reshape(*batch, *lead, shape[1])
    if len(shape) > len(lead) + 1:
        raise RuntimeError(
            f"noalias.linear: bias of shape {list(shape)} cannot be added to an output of shape "
            f"{[*lead, features]}; give it shape [{features}]"
        )
    return bias.reshape(*batch, *[1] * (len(lead) + 1 - len(shape)), *shape)
