#include "held_memory.h"

#include "gradient_proof.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace noalias {

HeldMemory::HeldMemory(const at::Tensor& operand)
    : storage_(operand.storage()),
      keys_(operand.key_set()),
      dtype_(operand.dtype()),
      sizes_(operand.sizes()),
      strides_(operand.strides()),
      offset_(operand.storage_offset()) {}

std::optional<HeldMemory> HeldMemory::of(const at::Tensor& operand) {
  if (!has_ordinary_memory(operand) ||
      operand.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) {
    return std::nullopt;
  }
  return HeldMemory(operand);
}

bool HeldMemory::is_of(const at::Tensor& tensor) const {
  return tensor.layout() == at::kStrided && tensor.has_storage() &&
      tensor.storage().unsafeGetStorageImpl() ==
      storage_.unsafeGetStorageImpl() &&
      tensor.dtype() == dtype_ && tensor.storage_offset() == offset_ &&
      tensor.sizes().equals(sizes_) && tensor.strides().equals(strides_);
}

at::Tensor HeldMemory::under(const at::Tensor& saved) const {
  if (is_of(saved)) {
    return saved;
  }
  at::Tensor before = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(storage_), keys_, dtype_);
  before.unsafeGetTensorImpl()->set_sizes_and_strides(
      sizes_, strides_, offset_);
  if (c10::GradMode::is_enabled() && saved.requires_grad()) {
    torch::autograd::impl::set_gradient_edge(
        before, torch::autograd::impl::gradient_edge(saved));
  }
  return before;
}

at::Tensor under_held(
    const at::Tensor& saved,
    const std::optional<HeldMemory>& memory) {
  return memory.has_value() && saved.defined() ? memory->under(saved) : saved;
}

} // namespace noalias
