"""What shapes, dtypes and devices ``linear`` takes: the core's checks, for Python's kernels."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Literal

import torch
from torch import Tensor

BiasForm = Literal["none", "rows", "broadcast"]


def output_shape(input: Tensor, weight: Tensor) -> list[int]:
    """``[*, in]`` and ``[out, in]`` -> ``[*, out]``."""
    return [*input.shape[:-1], weight.shape[0]]


def rows_of(tensor: Tensor) -> Tensor:
    """``[*, features]`` -> ``[rows, features]``; the row count of an empty tensor is kept."""
    if tensor.dim() == 2:
        return tensor
    return tensor.reshape(prod(tensor.shape[:-1]), tensor.shape[-1])


def check(input: Tensor, weight: Tensor, bias: Tensor | None) -> BiasForm:
    """How the bias is added: it expands to ``[rows, out]``, or to ``[*, out]`` only.

    Raises:
        RuntimeError: shapes that cannot be multiplied or added, dtypes or devices that differ.
    """
    if input.dim() < 1 or weight.dim() != 2:
        raise RuntimeError(
            "noalias.linear: input must have at least 1 dimension and weight 2, but input has "
            f"shape {list(input.shape)} and weight has shape {list(weight.shape)}"
        )
    if input.shape[-1] != weight.shape[1]:
        raise RuntimeError(
            f"noalias.linear: input of shape {list(input.shape)} and weight of shape "
            f"{list(weight.shape)} cannot be multiplied: the last dimension of input "
            f"({input.shape[-1]}) must equal the last dimension of weight ({weight.shape[1]})"
        )
    _check_kind("weight", weight, input)
    if bias is None:
        return "none"
    _check_kind("bias", bias, input)
    output = output_shape(input, weight)
    if _expands_to(bias.shape, (prod(input.shape[:-1]), weight.shape[0])):
        return "rows"
    if not _expands_to(bias.shape, output):
        raise RuntimeError(
            f"noalias.linear: bias of shape {list(bias.shape)} cannot be added to an output of "
            f"shape {output}; give it shape [{weight.shape[0]}]"
        )
    return "broadcast"


def _check_kind(name: str, tensor: Tensor, input: Tensor) -> None:
    # Under autocast the products cast their operands.
    if tensor.dtype != input.dtype and not torch.is_autocast_enabled(input.device.type):
        raise RuntimeError(
            f"noalias.linear: input and {name} must have the same dtype, but input is "
            f"{input.dtype} and {name} is {tensor.dtype}"
        )
    if tensor.device != input.device:
        raise RuntimeError(
            f"noalias.linear: input and {name} must be on the same device, but input is on "
            f"{input.device} and {name} is on {tensor.device}"
        )


def _expands_to(shape: Sequence[int], target: Sequence[int]) -> bool:
    if len(shape) > len(target):
        return False
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return all(size in (1, wanted) for size, wanted in pairs)
