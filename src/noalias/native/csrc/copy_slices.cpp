#include "copy_slices.h"

#include <torch/csrc/autograd/variable.h>

#include <typeinfo>

namespace noalias {

namespace {

using torch::autograd::CopySlices;
using torch::autograd::Node;
namespace impl = torch::autograd::impl;

bool has_symbolic_geometry(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
}

// nullptr where it is no view any more.
const at::Tensor* base_of(const at::Tensor& tensor) {
  const auto* meta = impl::get_view_autograd_meta(tensor);
  return meta != nullptr && meta->has_bw_view()
      ? &meta->get_backward_view().base_
      : nullptr;
}

} // namespace

// Looked at as it is, without bringing a history up to date.
CopySlicesWatch::CopySlicesWatch(const at::Tensor& written)
    : written_(&written), before_(impl::grad_fn_unsafe(*base_of(written))) {}

bool CopySlicesWatch::has_base_of(const CopySlicesWatch& other) const {
  const at::Tensor* ours = base_of(*written_);
  const at::Tensor* theirs = base_of(*other.written_);
  return ours != nullptr && theirs != nullptr && ours->is_same(*theirs);
}

CopySlices* CopySlicesWatch::fresh(int64_t below) const {
  const at::Tensor* base = base_of(*written_);
  if (base == nullptr || has_symbolic_geometry(*base) ||
      has_symbolic_geometry(*written_)) {
    return nullptr;
  }
  for (Node* node = impl::grad_fn_unsafe(*base);
       node != nullptr && node != before_;
       node = node->next_edge(0).function.get()) {
    const Node& known = *node;
    if (typeid(known) != typeid(CopySlices)) {
      return nullptr;
    }
    if (below-- == 0) {
      return static_cast<CopySlices*>(node);
    }
  }
  return nullptr;
}

} // namespace noalias
