"""What PyTorch's tools are told about the two operators: fake kernels, vmap rules, FLOPs."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from noalias.linear import batching, composite, shapes

Shape = Sequence[int]


def register() -> torch.library.Library:
    """Register all of it. The registrations last as long as the library that is returned."""
    library = torch.library.Library("noalias", "IMPL")
    torch.library.register_fake("noalias::linear", fake_linear, lib=library)
    torch.library.register_fake("noalias::linear_backward", fake_linear_backward, lib=library)
    torch.library.register_vmap("noalias::linear", batching.linear, lib=library)
    torch.library.register_vmap("noalias::linear_backward", batching.linear_backward, lib=library)
    return library


def fake_linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``[*, in]``, ``[out, in]``, ``[out]`` -> ``[*, out]``, contiguous.

    Raises:
        RuntimeError: as the operator.
    """
    shapes.check(input, weight, bias)
    return input.new_empty(shapes.output_shape(input, weight))


def fake_linear_backward(
    self: Tensor | None, grad_output: Tensor, weight: Tensor | None, output_mask: list[bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The shapes and strides of the products: ``[*, in]``, ``[out, in]``, ``[out]``.

    Raises:
        RuntimeError: as the operator.
    """
    return composite.linear_backward(self, grad_output, weight, output_mask)


def register_flops() -> None:
    """Let ``torch.utils.flop_counter`` count the operators as it counts their products."""
    from torch.utils.flop_counter import register_flop_formula

    register_flop_formula(torch.ops.noalias.linear)(linear_flops)
    register_flop_formula(torch.ops.noalias.linear_backward)(linear_backward_flops)


def linear_flops(
    input: Shape, weight: Shape, bias: Shape | None = None, *, out_shape: object = None
) -> int:
    """A multiplication and an addition for each of ``rows * in * out``, as for ``aten.mm``."""
    return 2 * prod(input) * weight[0]


def linear_backward_flops(
    self: Shape | None,
    grad_output: Shape,
    weight: Shape | None,
    output_mask: Sequence[bool],
    *,
    out_shape: object = None,
) -> int:
    """The same for each of the two products that are asked for."""
    known = weight if weight is not None else self
    features = known[-1] if known is not None else 0
    return 2 * prod(grad_output) * features * (bool(output_mask[0]) + bool(output_mask[1]))
