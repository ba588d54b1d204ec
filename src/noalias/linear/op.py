"""``linear`` as one whole operator with an explicit derivative and no hidden view."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from noalias import native
from noalias.linear import composite
from noalias.linear.subclasses import has_own_rule

LinearFunction = Callable[[Tensor, Tensor, Tensor | None], Tensor]

# The schemas live as long as the process and belong to Python, so that
# torch.ops.noalias.linear exists before the core is built. The kernels are the
# core's; until it is loaded, and where it cannot be built, `_stand_in` answers.
_schemas = torch.library.Library("noalias", "DEF")
_schemas.define("linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor")
_schemas.define(
    "linear_backward(Tensor? self, Tensor grad_output, Tensor? weight, bool[3] output_mask)"
    " -> (Tensor, Tensor, Tensor)"
)
_stand_in: torch.library.Library | None = torch.library.Library("noalias", "IMPL")


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Apply ``y = x W^T + b``; the result is never a differentiable view.

    Values, dtypes under autocast and errors are those of
    :func:`torch.nn.functional.linear`; the gradients are bit-identical to flattening the
    input by hand. An in-place operator on the result rewrites no history: there is no base.

    Args:
        input: ``[*, in_features]``, any number of leading dimensions, contiguous or not.
        weight: ``[out_features, in_features]``, of the dtype of ``input``.
        bias: ``[out_features]``, or any shape that broadcasts to the output.

    Returns:
        ``[*, out_features]``, contiguous, with one node of history (``LinearBackward0``).

    Raises:
        RuntimeError: shapes that cannot be multiplied, named; dtypes or devices that differ;
            an input without dimensions.
        TypeError: an argument that is no tensor.

    The derivative, one contraction over all leading dimensions, is that of the proposal in
    PyTorch PR 162411: ``dx = g conj(W)``, ``dW = g^T conj(x)``, ``db = sum(g)``.
    """
    if torch.compiler.is_compiling():
        return captured(input, weight, bias)
    return _entry(input, weight, bias)


def captured(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """What a compiler is shown: ``F.linear``, which it can fuse, or under whole capture the operator.

    ``input`` ``[*, in]``, ``weight`` ``[out, in]``, ``bias`` ``[out]`` -> ``[*, out]``.
    """
    from noalias.linear.capture import capturing_whole

    if capturing_whole() or has_own_rule(type(input)):
        return torch.ops.noalias.linear(input, weight, bias)
    return F.linear(input, weight, bias)


def _general(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Calls that the core's fast entry leaves to Python: subclasses, modes, tracing, no tensors."""
    overloaded = torch.overrides.has_torch_function((input, weight, bias))
    no_tensor = not all(isinstance(value, Tensor) for value in (input, weight))
    if overloaded or no_tensor or torch.jit.is_tracing():
        return F.linear(input, weight, bias)
    return torch.ops.noalias.linear(input, weight, bias)


def _load_then_call(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    load_kernels()
    return _entry(input, weight, bias)


_entry: LinearFunction = _load_then_call


def load_kernels() -> bool:
    """Put the core behind the operators, building it if need be; say whether it is there.

    Where it cannot be built, one warning says why and what to do, and the composite in
    Python answers from then on with the same results.
    """
    global _entry, _stand_in
    try:
        core = native.load()
    except native.NativeUnavailable as error:
        if _entry is not _general:
            warnings.warn(
                f"noalias.linear runs its Python composite, same results, slower: {error}",
                RuntimeWarning,
                stacklevel=3,
            )
            _entry = _general
        return False
    core.register_linear(_general)
    core.set_own_rule_question(has_own_rule)
    if _stand_in is not None:
        _stand_in._destroy()
        _stand_in = None
    _entry = core.linear
    return True


def _stand_in_linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if load_kernels():
        return torch.ops.noalias.linear(input, weight, bias)
    return composite.linear(input, weight, bias)


def _stand_in_linear_backward(
    self: Tensor | None, grad_output: Tensor, weight: Tensor | None, output_mask: list[bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    if load_kernels():
        return torch.ops.noalias.linear_backward(self, grad_output, weight, output_mask)
    return composite.linear_backward(self, grad_output, weight, output_mask)


_stand_in.impl("linear", _stand_in_linear, "CompositeImplicitAutograd")
_stand_in.impl("linear_backward", _stand_in_linear_backward, "CompositeImplicitAutograd")
