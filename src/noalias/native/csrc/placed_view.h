// The slice of a gradient that belongs to a view which as_strided cannot say.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/functions/tensor.h>

namespace noalias {

// Whether stock will look for the slice of `written`, a view, at another place.
bool is_misplaced(const at::Tensor& written);

// Makes `node`, which a write to `written` has just put behind its base, find the
// slice of the gradient where stock would look at another place.
void place_view(
    torch::autograd::CopySlices& node,
    const at::Tensor& written);

} // namespace noalias
