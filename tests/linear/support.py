"""The manual workaround, and how results are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

Linear = Callable[..., Tensor]


def workaround(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """What people write by hand: flatten, ``F.linear``, restore at the end."""
    rows = input.reshape(input.shape[:-1].numel(), input.shape[-1])
    return F.linear(rows, weight, bias).view(*input.shape[:-1], weight.shape[0])


def leaves(
    *tensors: Tensor | None, wanted: Sequence[bool] = (True, True, True)
) -> list[Tensor | None]:
    """Fresh leaves over the same memory, strides and all; those not wanted need no gradient."""
    return [
        None if tensor is None else tensor.detach().requires_grad_(want)
        for tensor, want in zip(tensors, wanted, strict=False)
    ]


def values_and_gradients(
    linear: Linear, *tensors: Tensor | None, wanted: Sequence[bool] = (True, True, True)
) -> list[Tensor]:
    """The output, and the gradients of the operands wanted for one fixed gradient."""
    arguments = leaves(*tensors, wanted=wanted)
    output = linear(*arguments)
    generator = torch.Generator().manual_seed(1)
    grad = torch.randn(output.shape, dtype=output.dtype, generator=generator)
    roots = [leaf for leaf in arguments if leaf is not None and leaf.requires_grad]
    return [output.detach(), *torch.autograd.grad(output, roots, grad)]


def assert_same_bits(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    assert len(actual) == len(expected)
    for left, right in zip(actual, expected, strict=True):
        assert left.shape == right.shape
        assert torch.equal(left, right)


def assert_close(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    assert len(actual) == len(expected)
    for left, right in zip(actual, expected, strict=True):
        torch.testing.assert_close(left, right)


class _Recorder(TorchDispatchMode):
    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.names = names

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@contextmanager
def dispatched() -> Iterator[list[str]]:
    """The names of the operators that a ``TorchDispatchMode`` sees inside the block."""
    names: list[str] = []
    with _Recorder(names):
        yield names
