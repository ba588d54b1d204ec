"""``linear`` as one whole operator with an explicit derivative and no hidden view."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from noalias import native
from noalias.linear import capture, composite, tools
from noalias.linear.subclasses import has_own_rule, is_distributed
from noalias.native.dispatch_cache import forget_resolved_kernels

if TYPE_CHECKING:
    from noalias.native.core import Core

LinearFunction = Callable[[Tensor, Tensor, Tensor | None], Tensor]
Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]

# The schemas live as long as the process and belong to Python, so that
# torch.ops.noalias.linear exists before the core is built. The kernels are the
# core's; until it is loaded, and where it cannot be built, `_stand_in` answers.
_schemas = torch.library.Library("noalias", "DEF")
_schemas.define("linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor")
_schemas.define(
    "linear_backward(Tensor? self, Tensor grad_output, Tensor? weight, bool[3] output_mask)"
    " -> (Tensor, Tensor, Tensor)"
)
_tools: torch.library.Library | None = None
_core: Core | None = None
_lock = threading.RLock()


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Apply ``y = x W^T + b``; the result is never a differentiable view.

    Values, dtypes under autocast and the classes of errors are those of
    :func:`torch.nn.functional.linear`; values and gradients are bit-identical to flattening the
    input by hand, whatever the weight's strides. An in-place operator on the result rewrites no
    history: there is no base.

    A large input whose leading dimensions are permuted or cut (``y.transpose(0, 1)``, ``y[:, 1:]``)
    is read as it lies, where flattening it would copy it. The sum over ``in`` may then be taken in
    another order than the flattened product takes it, and the last bits differ.

    Args:
        input: ``[*, in_features]``, any number of leading dimensions, contiguous or not. Any dtype
            a matrix product of the device takes: float16, bfloat16, float32, float64, complex.
        weight: ``[out_features, in_features]``, of the dtype of ``input``, with any strides, or
            sparse: COO, CSR, CSC, BSR or BSC. A sparse weight gets a dense gradient unless
            :func:`noalias.linear.sparse.sparse_weight_gradients` says otherwise.
        bias: ``[out_features]``, or any shape that broadcasts to ``[*, out_features]`` or to
            ``[rows, out_features]``, ``rows`` counting all leading dimensions.

    Returns:
        ``[*, out_features]``, contiguous, with one node of history (``LinearBackward0``).

    Raises:
        RuntimeError: shapes that cannot be multiplied or added, named; dtypes or devices that
            differ; an input without dimensions.
        TypeError: an argument that is no tensor.

    The derivative, one contraction over all leading dimensions, is that of the proposal in
    PyTorch PR 162411: ``dx = g conj(W)``, ``dW = g^T conj(x)``, ``db = sum(g)``.
    """
    if not torch.jit.is_scripting():
        if torch.compiler.is_compiling():
            return captured(input, weight, bias)
        return _entry(input, weight, bias)
    scripted: Tensor = torch.ops.noalias.linear(input, weight, bias)
    return scripted


def captured(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """What a compiler is shown: ``F.linear``, which it can fuse; the operator under whole capture.

    ``input`` ``[*, in]``, ``weight`` ``[out, in]``, ``bias`` ``[out]`` -> ``[*, out]``.
    """
    if capture.capturing_whole() or is_distributed(type(input)):
        return _operator(input, weight, bias)
    return F.linear(input, weight, bias)


def _general(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Calls that the core's fast entry leaves to Python: subclasses, modes, tracing, no tensors.

    A function mode (``torch.set_default_device`` is one) is handed the operator, which it calls. A
    subclass is handed ``F.linear``, unless it knows the operator.
    """
    given = (input, weight) if bias is None else (input, weight, bias)
    if torch.jit.is_tracing() or not all(map(_takes_operator, given)):
        return F.linear(input, weight, bias)
    return _operator(input, weight, bias)


def _operator(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    result: Tensor = torch.ops.noalias.linear(input, weight, bias)
    return result


def _takes_operator(value: object) -> bool:
    cls = type(value)
    if cls is Tensor or cls is torch.nn.Parameter:
        return True
    return isinstance(value, Tensor) and (capture.capturing_whole() or has_own_rule(cls))


def _load_then_call(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    load_kernels()
    return _entry(input, weight, bias)


_entry: LinearFunction = _load_then_call


def require_core() -> Core:
    """The core, with its kernels behind the operators.

    Raises:
        noalias.native.NativeUnavailable: it cannot be built.
    """
    global _core, _entry, _stand_in, _tools
    core = native.load()
    with _lock:
        if _core is None:
            core.register_linear(_general)
            core.set_own_rule_question(has_own_rule)
            # Dropping the library takes its kernels back; PyTorch refuses fake kernels and
            # batching rules next to a composite.
            _stand_in = None
            forget_resolved_kernels()  # tracing may have resolved the operators to it
            _tools = tools.register()
            _entry = core.linear
            _core = core
    return core


def load_kernels() -> bool:
    """Put the core behind the operators, building it if need be; say whether it is there.

    Where it cannot be built, one warning says why and what to do, and the composite in
    Python answers from then on with the same results.
    """
    global _entry
    try:
        require_core()
    except native.NativeUnavailable as error:
        if _entry is not _general:
            _entry = _general
            warnings.warn(
                f"noalias.linear runs its Python composite, same results, slower: {error}",
                RuntimeWarning,
                stacklevel=3,
            )
        return False
    return True


def _stand_in_linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if load_kernels():
        return _operator(input, weight, bias)
    return composite.linear(input, weight, bias)


def _stand_in_linear_backward(
    self: Tensor | None, grad_output: Tensor, weight: Tensor | None, output_mask: list[bool]
) -> Gradients:
    if load_kernels():
        found: Gradients = torch.ops.noalias.linear_backward(self, grad_output, weight, output_mask)
        return found
    return composite.linear_backward(self, grad_output, weight, output_mask)


def _answer_until_the_core_is_loaded() -> torch.library.Library:
    library = torch.library.Library("noalias", "IMPL")
    library.impl("linear", _stand_in_linear, "CompositeImplicitAutograd")
    library.impl("linear_backward", _stand_in_linear_backward, "CompositeImplicitAutograd")
    return library


_stand_in: torch.library.Library | None = _answer_until_the_core_is_loaded()
tools.register_flops()
