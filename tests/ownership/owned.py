"""Run a program with PyTorch alone and with the cure ``owned_gradient``, and compare every bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

import noalias
from noalias import native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Operator: TypeAlias = "Callable[[Tensor], Tensor]"

BACKWARD_OPERATORS: dict[str, Operator] = {
    "relu": F.relu,
    "relu_": lambda x: F.relu_(x * 1),
    "relu6": F.relu6,
    "threshold": lambda x: F.threshold(x, 0.1, 0.2),
    "threshold_": lambda x: F.threshold_(x * 1, 0.1, 0.2),
    "leaky_relu": F.leaky_relu,
    "leaky_relu_": lambda x: F.leaky_relu_(x * 1),
    "hardtanh": F.hardtanh,
    "elu": F.elu,
    "elu_": lambda x: F.elu_(x * 1),
    "celu": F.celu,
    "selu": F.selu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
    "softshrink": F.softshrink,
    "hardshrink": F.hardshrink,
    "hardsigmoid": F.hardsigmoid,
    "logsigmoid": F.logsigmoid,
}

ARITHMETIC: dict[str, Operator] = {
    "dropout": lambda x: F.dropout(x, 0.3),
    "times_number": lambda x: x * 2.5,
    "times_mask": lambda x: x * (torch.rand_like(x) > 0.5),
    "times_row": lambda x: x * torch.arange(1.0, x.shape[-1] + 1).to(x.dtype),
    "over_number": lambda x: x / 3,
    "minus": lambda x: -x,
    "number_minus": lambda x: 1 - x,
    "constant_minus": lambda x: torch.ones_like(x) - x,
    "exp": torch.exp,
    "sin": torch.sin,
    "cos": torch.cos,
    "abs": torch.abs,
    "sqrt": lambda x: x.abs().sqrt(),
    "log": lambda x: (x.abs() + 1).log(),
    "masked_fill": lambda x: x.masked_fill(x.detach().abs() > 0.5, 3.0),
    "gate": lambda x: x * x.detach().sigmoid(),
    "square": lambda x: x * x,
    "swiglu": lambda x: F.silu(x) * (x + 1),
}

ROW_OPERATORS: dict[str, Operator] = {
    "softmax": lambda x: x.softmax(-1),
    "softmax_first": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(-1),
    "log_softmax_first": lambda x: x.log_softmax(0),
}

OPERATORS = BACKWARD_OPERATORS | ARITHMETIC | ROW_OPERATORS


def facts(tensor: Tensor | None) -> object:
    """What a user can see of a gradient: values to the bit, layout, memory, history."""
    if tensor is None:
        return None
    values = bytes(tensor.detach().clone(memory_format=torch.contiguous_format).untyped_storage())
    memory = tensor.untyped_storage().nbytes() if tensor.layout == torch.strided else None
    return (
        values,
        tensor.dtype,
        tuple(tensor.shape),
        tensor.stride(),
        tensor.storage_offset(),
        memory,
        tensor._version,
        tensor._is_view(),
        tensor.requires_grad,
    )


def reused() -> int:
    """How many gradients have been written over so far."""
    return native.load().counters()["gradients_reused"]


def same_as_stock(program: Callable[[], Iterable[Tensor | None]]) -> int:
    """Check that ``program`` returns stock's tensors, and say how many gradients it reused.

    ``program`` makes its inputs itself; both runs start from one seed.
    """
    torch.manual_seed(0)
    expected = [facts(tensor) for tensor in program()]
    before = reused()
    torch.manual_seed(0)
    with noalias.enabled("owned_gradient"):
        actual = [facts(tensor) for tensor in program()]
    assert actual == expected
    return reused() - before


def allocated(run: Callable[[], object]) -> int:
    """The bytes that the CPU allocator handed out while ``run`` ran, freed ones included."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(
        activities=activities, profile_memory=True, acc_events=True
    ) as profile:
        run()
    events = profile.profiler.kineto_results.events()
    return sum(max(0, event.nbytes()) for event in events if event.name() == "[memory]")


def leaf(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A random leaf."""
    return torch.randn(*shape, dtype=dtype, requires_grad=True)
