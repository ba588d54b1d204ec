#include "view_history.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/generated/Functions.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <typeinfo>

namespace noalias {

ViewHistory view_history(const at::Tensor& tensor) {
  namespace autograd = torch::autograd;
  ViewHistory found;
  const auto* meta = autograd::impl::get_view_autograd_meta(tensor);
  if (meta == nullptr || !meta->has_bw_view()) {
    return found;
  }
  const at::Tensor& base = meta->get_backward_view().base_;
  found.is_view = true;
  found.base = reinterpret_cast<int64_t>(base.unsafeGetTensorImpl());
  if (base.has_storage()) {
    found.storage =
        reinterpret_cast<int64_t>(base.storage().unsafeGetStorageImpl());
  }
  if (!base.unsafeGetTensorImpl()->has_symbolic_sizes_strides() &&
      !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) {
    found.base_bytes = base.numel() * static_cast<int64_t>(base.element_size());
    found.share = static_cast<double>(tensor.numel()) /
        static_cast<double>(std::max<int64_t>(base.numel(), 1));
  }
  found.hooks = static_cast<int64_t>(meta->hooks_.size()) +
      (meta->cpp_hooks_list_ != nullptr ? 1 : 0);
  if (const auto& node = meta->grad_fn_) {
    const autograd::Node& made_by = *node;
    found.made = static_cast<int64_t>(made_by.sequence_nr());
    found.thread = made_by.thread_id();
    found.node = made_by.name();
    found.rewritten =
        typeid(made_by) == typeid(autograd::generated::AsStridedBackward0);
    found.hooks += static_cast<int64_t>(
        node->pre_hooks().size() + node->post_hooks().size());
  }
  return found;
}

} // namespace noalias
