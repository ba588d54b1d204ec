// What linear and its derivative record for backward.
#pragma once

#include "linear_nodes.h"

namespace noalias {

// Null where nothing is to be recorded; `bias` may be undefined.
NodeOf<LinearBackward> history_of_linear(
    const Tensor& input,
    const Tensor& weight,
    const Tensor& bias);

// The same for one of the gradients. Each depends on two operands, the bias's on one;
// the others are undefined. What depends on nothing that requires grad has no history,
// as in PyTorch's composite.
NodeOf<LinearBackwardBackward> history_of_gradient(
    LinearGradient of,
    const Tensor& input,
    const Tensor& grad_output,
    const Tensor& weight);

} // namespace noalias
