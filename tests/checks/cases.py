"""What PyTorch's own checks are run on: its operators' in-place variants, and its modules.

An in-place variant writes to what one of `TARGETS` makes of its input: PyTorch's own tests write to
a fresh tensor, in which no cure has a part. A module is checked as it is, and with its outputs
written to afterwards. Everything is in double precision on the CPU.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.lazy import LazyModuleMixin
from torch.utils import _pytree as pytree

# From the tensor an in-place variant is to write to: (what it writes to, what is then looked at).
TARGETS: dict[str, Callable[[Tensor], tuple[Tensor, Tensor]]] = {}


def target(make: Callable[[Tensor], tuple[Tensor, Tensor]]) -> None:
    TARGETS[make.__name__] = make


@target
def plain(x: Tensor) -> tuple[Tensor, Tensor]:
    written = x.clone()
    return written, written


@target
def hidden_base(x: Tensor) -> tuple[Tensor, Tensor]:
    written = (x * 1).view(x.shape)
    return written, written


@target
def slice_of_buffer(x: Tensor) -> tuple[Tensor, Tensor]:
    buffer = torch.stack([x, x * 2])
    return buffer[0], buffer


@dataclass(frozen=True)
class Case:
    """A function and inputs for `torch.autograd.gradcheck`.

    Attributes:
        name: of the operator (with its variant) or the module.
        kind: a key of `TARGETS`, ``module`` or ``module, written``.
        number: of the sample.
        function: of `inputs`, which require grad.
        batched, batched_second, forward, batched_forward, second: what PyTorch says is supported.
        nondeterminism: the tolerance that PyTorch's own tests grant.
    """

    name: str
    kind: str
    number: int
    function: Callable[..., object]
    inputs: tuple[Tensor, ...]
    batched: bool
    batched_second: bool
    forward: bool
    batched_forward: bool
    second: bool
    nondeterminism: float


Wanted = Callable[[str], bool]


def operators(samples: int | None = None, wanted: Wanted = bool) -> Iterator[Case]:
    """The first `samples` (all where None) of the in-place variants in ``op_db``."""
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        if op.get_inplace() is None or not op.supports_inplace_autograd or not wanted(op.name):
            continue
        if torch.float64 not in op.supported_dtypes("cpu"):
            continue
        torch.manual_seed(0)
        drawn = op.sample_inputs("cpu", torch.float64, requires_grad=True)
        for number, sample in enumerate(drawn):
            if number == samples:
                break
            # Writing in place cannot make the written tensor larger.
            if not sample.broadcasts_input and isinstance(sample.input, Tensor):
                for kind in TARGETS:
                    yield _operator(op, sample, number, kind)


def _operator(op: Any, sample: Any, number: int, kind: str) -> Case:
    variant = op.get_inplace()
    given = (sample.input, *sample.args)
    keywords = dict(sample.kwargs)
    tensors = [
        value
        for value in chain(given, keywords.values())
        if isinstance(value, Tensor) and value.requires_grad
    ]

    def function(*inputs: Tensor) -> object:
        replaced = dict(zip(map(id, tensors), inputs, strict=True))
        first, *rest = (replaced.get(id(value), value) for value in given)
        others = {name: replaced.get(id(value), value) for name, value in keywords.items()}

        def in_place(x: Tensor, *args: object, **kwargs: object) -> Tensor:
            written, looked_at = TARGETS[kind](x)
            variant(written, *args, **kwargs)
            return looked_at

        output = op.gradcheck_wrapper(in_place, first, *rest, **others)
        if sample.output_process_fn_grad is not None and kind != "slice_of_buffer":
            return sample.output_process_fn_grad(output)
        return output

    variant_name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
    return Case(
        name=f"{variant_name}_",
        kind=kind,
        number=number,
        function=function,
        inputs=tuple(tensors),
        batched=op.check_batched_grad,
        batched_second=op.check_batched_gradgrad,
        forward=op.supports_forward_ad,
        batched_forward=op.check_inplace_batched_forward_grad,
        second=op.supports_gradgrad,
        nondeterminism=op.gradcheck_nondet_tol,
    )


def modules(samples: int | None = None, wanted: Wanted = bool) -> Iterator[Case]:
    """The first `samples` (all where None) of the modules in ``module_db``, in training mode."""
    from torch.testing._internal.common_modules import module_db

    for info in module_db:
        if torch.float64 not in info.supported_dtypes("cpu") or not wanted(info.name):
            continue
        torch.manual_seed(0)
        drawn = info.module_inputs_func(
            info, device="cpu", dtype=torch.float64, requires_grad=True, training=True
        )
        for number, sample in enumerate(drawn[:samples]):
            if sample.forward_input is not None:
                for written in (False, True):
                    yield _module(info, sample, number, written=written)


def _module(info: Any, sample: Any, number: int, *, written: bool) -> Case:
    made, given = sample.constructor_input, sample.forward_input
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the samples' own: options that are without effect
        module = info.module_cls(*made.args, **made.kwargs).to(torch.float64).train()
        if isinstance(module, LazyModuleMixin):
            module(*given.args, **given.kwargs)  # makes its parameters
    leaves, shape = pytree.tree_flatten((given.args, given.kwargs))
    places = [i for i, leaf in enumerate(leaves) if _asks_for_gradient(leaf)]
    parameters = {n: p for n, p in module.named_parameters() if _asks_for_gradient(p)}

    def function(*inputs: Tensor) -> Sequence[Tensor]:
        replaced = [*leaves]
        for place, value in zip(places, inputs, strict=False):
            replaced[place] = value
        args, kwargs = pytree.tree_unflatten(replaced, shape)
        # Given to the module: in forward mode they carry the tangents.
        own = dict(zip(parameters, inputs[len(places) :], strict=True))
        torch.manual_seed(0)
        outputs = [
            out
            for out in pytree.tree_leaves(torch.func.functional_call(module, own, args, kwargs))
            if isinstance(out, Tensor) and (out.is_floating_point() or out.is_complex())
        ]
        return [out.mul_(3) for out in outputs] if written else outputs

    return Case(
        name=info.name,
        kind="module, written" if written else "module",
        number=number,
        function=function,
        inputs=(*(leaves[i] for i in places), *parameters.values()),
        batched=True,
        batched_second=False,
        forward=True,
        batched_forward=False,
        second=info.supports_gradgrad,
        nondeterminism=info.gradcheck_nondet_tol,
    )


def _asks_for_gradient(value: object) -> bool:
    return isinstance(value, Tensor) and value.requires_grad
