"""Run PyTorch's own operator and module databases and look for views of a hidden memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree


class DatabaseUnavailable(RuntimeError):
    """PyTorch's databases cannot be imported; the message names what is missing."""


@dataclass(frozen=True)
class Case:
    """One operator (or module) on one sample, and which of its outputs are hidden views.

    Attributes:
        name: the operator's name in ``op_db``, or a module's class.
        kind: ``operator`` or ``module``.
        sample: the number of the sample.
        call: runs it on fresh inputs; returns (inputs that require grad, output tensors).
        outputs: indices into the outputs.
    """

    name: str
    kind: str
    sample: int
    call: Callable[[], tuple[list[Tensor], list[Tensor]]]
    outputs: list[int]


@dataclass(frozen=True)
class NotRun:
    """A sample that this build of PyTorch could not run, and why."""

    name: str
    reason: str


# What operators raise for samples that this build or device cannot run. Anything else is a bug
# in the sweep and is not caught.
_CANNOT_RUN = (RuntimeError, NotImplementedError, TypeError, ValueError, ImportError)


def databases(samples: int) -> tuple[int, Iterator[Case | NotRun | None]]:
    """How many entries there are, and for each its cases, followed by ``None``.

    Args:
        samples: how many samples of each operator and module to run, from the first.

    Raises:
        DatabaseUnavailable: a package that the databases need is not installed.
    """
    try:
        from torch.testing._internal.common_methods_invocations import op_db
        from torch.testing._internal.common_modules import module_db
    except ModuleNotFoundError as error:
        raise DatabaseUnavailable(
            f"PyTorch's operator database needs {error.name}: pip install numpy expecttest"
        ) from error
    operators = [
        op for op in op_db if op.supports_autograd and torch.float32 in op.supported_dtypes("cpu")
    ]

    def walk() -> Iterator[Case | NotRun | None]:
        for op in operators:
            yield from _operator(op, samples)
            yield None
        for info in module_db:
            yield from _module(info, samples)
            yield None

    return len(operators) + len(module_db), walk()


def _operator(op: Any, samples: int) -> Iterator[Case | NotRun]:
    try:
        drawn = list(_first(op.sample_inputs("cpu", torch.float32, requires_grad=True), samples))
    except _CANNOT_RUN as error:
        yield NotRun(op.name, _one_line(error))
        return
    for number, sample in enumerate(drawn):
        arguments = (sample.input, sample.args, sample.kwargs)

        def call(arguments: Any = arguments) -> tuple[list[Tensor], list[Tensor]]:
            torch.manual_seed(0)
            value, args, kwargs = _fresh(arguments)
            return _leaves((value, args, kwargs)), _tensors(op(value, *args, **kwargs))

        yield from _case(op.name, "operator", number, call)


def _module(info: Any, samples: int) -> Iterator[Case | NotRun]:
    name = info.module_cls.__name__
    try:
        drawn = info.module_inputs_func(
            info, device="cpu", dtype=torch.float32, requires_grad=True, training=True
        )
    except _CANNOT_RUN as error:
        yield NotRun(name, _one_line(error))
        return
    for number, sample in enumerate(drawn[:samples]):
        made, given = sample.constructor_input, sample.forward_input
        if given is None:
            continue

        def call(made: Any = made, given: Any = given) -> tuple[list[Tensor], list[Tensor]]:
            torch.manual_seed(0)
            module: nn.Module = info.module_cls(*made.args, **made.kwargs)
            args, kwargs = _fresh((given.args, given.kwargs))
            inputs = [*_leaves((args, kwargs)), *module.parameters()]
            return inputs, _tensors(module(*args, **kwargs))

        yield from _case(name, "module", number, call)


def _case(
    name: str,
    kind: str,
    number: int,
    call: Callable[[], tuple[list[Tensor], list[Tensor]]],
) -> Iterator[Case | NotRun]:
    try:
        inputs, outputs = call()
    except _CANNOT_RUN as error:
        yield NotRun(name, _one_line(error))
        return
    memories = {_memory(leaf) for leaf in inputs}
    hidden = [
        index
        for index, output in enumerate(outputs)
        if output.layout is torch.strided
        and output._is_view()
        and output.requires_grad
        and _memory(output) not in memories
    ]
    if hidden:
        yield Case(name, kind, number, call, hidden)


def _memory(tensor: Tensor) -> int | None:
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else None


def _fresh(tree: Any) -> Any:
    def copy(leaf: object) -> object:
        if isinstance(leaf, Tensor) and leaf.layout is torch.strided:
            return leaf.detach().clone().requires_grad_(leaf.requires_grad)
        return leaf

    return pytree.tree_map(copy, tree)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


def _leaves(tree: Any) -> list[Tensor]:
    return [leaf for leaf in _tensors(tree) if leaf.requires_grad]


def _first(samples: Iterator[Any], count: int) -> Iterator[Any]:
    for sample, _ in zip(samples, range(count), strict=False):
        yield sample


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:160]
