// functorch's wrappers, seen from outside.
#pragma once

#include <ATen/core/Tensor.h>

namespace noalias {

// The tensor of the level below, if `tensor` is a live functorch wrapper (grad,
// jvp, vmap), else nullptr. It lives as long as the wrapper does.
const at::Tensor* below_wrapper(const at::Tensor& tensor);

// Whether torch.func.functionalize runs, at whatever level, on this thread.
bool is_functionalizing();

} // namespace noalias
