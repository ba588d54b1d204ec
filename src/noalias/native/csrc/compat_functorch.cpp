// In a file of its own, and with a name that sorts early: BatchedTensorImpl.h does
// not compile after ATen/LegacyBatchedTensorImpl.h, which other headers of
// PyTorch's include (2.9 to 2.15), and the files of the core are compiled together
// in the order of their names.
#include "compat_functorch.h"

#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/TensorWrapper.h>

#include <algorithm>

namespace noalias {

const at::Tensor* below_wrapper(const at::Tensor& tensor) {
  if (const auto* wrapper = at::functorch::maybeGetTensorWrapper(tensor)) {
    return wrapper->is_alive() ? &wrapper->value() : nullptr;
  }
  if (const auto* batched = at::functorch::maybeGetBatchedImpl(tensor)) {
    return &batched->value();
  }
  return nullptr;
}

uint64_t vmap_levels(const at::Tensor& tensor) {
  uint64_t levels = 0;
  for (const auto* t = &tensor; t != nullptr; t = below_wrapper(*t)) {
    if (const auto* batched = at::functorch::maybeGetBatchedImpl(*t)) {
      levels |= uint64_t{1} << (batched->level() % 64);
    }
  }
  return levels;
}

bool is_functionalizing() {
  const auto& levels = at::functorch::getDynamicLayerStack();
  return std::any_of(levels.begin(), levels.end(), [](const auto& level) {
    return level.key() == at::functorch::TransformType::Functionalize;
  });
}

} // namespace noalias
