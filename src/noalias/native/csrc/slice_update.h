// The cure "slice update": an in-place operator on a view of a visible base keeps
// its history, in a node that updates the gradient it receives where nobody else
// holds it, instead of copying all of it for every slice.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/functions/tensor.h>

namespace noalias {

// Puts our node where a write to `written` has just put `fresh` behind its base.
void update_slices_of_gradient(
    torch::autograd::CopySlices& fresh,
    const at::Tensor& written);

} // namespace noalias
