// functorch's wrappers, seen from outside.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace noalias {

// The tensor of the level below, if `tensor` is a live functorch wrapper (grad,
// jvp, vmap), else nullptr. It lives as long as the wrapper does.
const at::Tensor* below_wrapper(const at::Tensor& tensor);

// The levels of torch.func.vmap that `tensor` is batched for, a bit each.
uint64_t vmap_levels(const at::Tensor& tensor);

// Whether torch.func.functionalize runs, at whatever level, on this thread.
bool is_functionalizing();

} // namespace noalias
