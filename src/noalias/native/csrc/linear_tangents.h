// Forward mode of linear and of its derivative.
#pragma once

#include "linear.h"

namespace noalias {

// Gives `result` its tangent where an operand has one; `bias` may be undefined.
void set_linear_tangent(
    const Tensor& result,
    const Tensor& input,
    const Tensor& weight,
    const Tensor& bias);

// The same for the gradients; `input` and `weight` may be undefined.
void set_linear_backward_tangents(
    const LinearGradients& gradients,
    const Tensor& input,
    const Tensor& grad_output,
    const Tensor& weight,
    Mask mask);

} // namespace noalias
