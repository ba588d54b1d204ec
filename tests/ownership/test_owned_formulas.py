"""The formulas that the cure ``owned_gradient`` knows are those of the installed PyTorch."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torchgen

DERIVATIVES = Path(torchgen.__file__).parent / "packaged" / "autograd" / "derivatives.yaml"

# What csrc/owned_formulas.h relies on: operator, argument that wants a gradient, formula. In each
# the gradient is read for the last time by the call that the cure stands in front of.
FORMULAS = [
    ("relu", "self", "threshold_backward(grad, result, 0)"),
    ("threshold", "self", "threshold_backward(grad, self, threshold)"),
    ("threshold_", "self", "threshold_backward(grad, self, threshold)"),
    ("leaky_relu", "self", "leaky_relu_backward(grad, self, negative_slope, false)"),
    ("leaky_relu_", "self", "leaky_relu_backward(grad, result, negative_slope, true)"),
    ("hardtanh", "self", "hardtanh_backward(grad, self, min_val, max_val)"),
    ("elu", "self", "elu_backward(grad, alpha, scale, input_scale, false, self)"),
    ("elu_", "self", "elu_backward(grad, alpha, scale, input_scale, true, result)"),
    ("celu", "self", "elu_backward(grad, alpha, 1, 1.0/alpha.toFloat(), false, self)"),
    ("celu_", "self", "elu_backward(grad, alpha, 1, 1.0/alpha.toFloat(), true, result)"),
    ("gelu", "self", "gelu_backward(grad, self, approximate)"),
    (
        "silu",
        "self",
        "GradMode::is_enabled() ? infinitely_differentiable_silu_backward(grad, self)"
        " : silu_backward(grad, self)",
    ),
    ("tanh", "self", "tanh_backward(grad, result)"),
    ("sigmoid", "self", "sigmoid_backward(grad, result)"),
    ("softplus", "self", "softplus_backward(grad, self, beta, threshold)"),
    ("softshrink", "self", "softshrink_backward(grad, self, lambd)"),
    ("hardshrink", "self", "hardshrink_backward(grad, self, lambd)"),
    ("hardsigmoid", "self", "hardsigmoid_backward(grad, self)"),
    ("log_sigmoid_forward", "self", "log_sigmoid_backward(grad, self, buffer)"),
    ("_softmax", "self", "_softmax_backward_data(grad, result, dim, self.scalar_type())"),
    ("_log_softmax", "self", "_log_softmax_backward_data(grad, result, dim, self.scalar_type())"),
    ("mul.Tensor", "self", "mul_tensor_backward(grad, other, self.scalar_type())"),
    ("mul.Tensor", "other", "mul_tensor_backward(grad, self, other.scalar_type())"),
    ("div.Tensor", "self", "div_tensor_self_backward(grad, other, self.scalar_type())"),
    ("exp", "self", "grad * result.conj()"),
    ("sin", "self", "grad * self.cos().conj()"),
    ("cos", "self", "grad * -self.sin().conj()"),
    ("abs", "self", "grad * self.sgn()"),
    ("log", "self", "grad.div(self.conj())"),
    ("sqrt", "self", "grad / (2 * result.conj())"),
    ("neg", "self", "grad.neg()"),
    (
        "rsub.Scalar",
        "self",
        "handle_r_to_c(self.scalar_type(), maybe_multiply(-grad, alpha.conj()))",
    ),
    (
        "sub.Tensor",
        "other",
        "handle_r_to_c(other.scalar_type(), maybe_multiply(-grad, alpha.conj()))",
    ),
    ("masked_fill.Scalar", "self", "grad.masked_fill(mask, 0)"),
]


def formulas() -> dict[tuple[str, str], str]:
    """All of PyTorch's, by operator and argument, without comments and quotes."""
    found = {}
    for entry in re.split(r"^- name: ", DERIVATIVES.read_text(), flags=re.MULTILINE)[1:]:
        head, *lines = entry.splitlines()
        for line in lines:
            if match := re.fullmatch(r"  (\w+): (.*)", line):
                text = re.sub(r"/\*.*?\*/", "", match[2]).strip('"')
                found[head.partition("(")[0], match[1]] = re.sub(r"\s+", " ", text)
    return found


@pytest.mark.parametrize(("operator", "argument", "formula"), FORMULAS)
def test_the_formula_is_the_one_that_was_read(operator: str, argument: str, formula: str) -> None:
    assert formulas()[operator, argument] == formula
