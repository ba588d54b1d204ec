#include "dropped_view.h"

#include "sibling_parts.h"

#include <c10/util/irange.h>

#include <memory>
#include <type_traits>
#include <utility>

namespace noalias {

namespace {

using torch::autograd::AutogradMeta;
using torch::autograd::Edge;
using torch::autograd::ViewInfo;
namespace impl = torch::autograd::impl;

// Tensors have a gradient dtype of their own from 2.10 or 2.11 on.
template <typename Meta, typename = void>
struct GradDtype {
  static void carry(const Meta& /*from*/, Meta& /*to*/) {}
};
template <typename Meta>
struct GradDtype<
    Meta,
    std::void_t<decltype(std::declval<Meta&>().grad_dtype_)>> {
  static void carry(const Meta& from, Meta& to) {
    to.grad_dtype_ = from.grad_dtype_;
    to.allow_grad_dtype_mismatch_ = from.allow_grad_dtype_mismatch_;
  }
};

// All that a tensor has besides its history and its view information.
void carry(AutogradMeta& from, AutogradMeta& to) {
  to.name_ = std::move(from.name_);
  to.grad_ = std::move(from.grad_);
  to.fw_grad_ = std::move(from.fw_grad_);
  to.hooks_ = std::move(from.hooks_);
  to.cpp_hooks_list_ = std::move(from.cpp_hooks_list_);
  to.retains_grad_ = from.retains_grad_;
  GradDtype<AutogradMeta>::carry(from, to);
}

// The metadata is about to be replaced, and how to redo a view can only be moved.
ViewInfo taken(const ViewInfo& info) {
  return std::move(const_cast<ViewInfo&>(info));
}

} // namespace

// Note [Dropping the view relationship]
//
// What PyTorch itself does with _unsafe_view, less its two dangers: the version
// counter stays the one that base and view share, so whatever saved the view
// still notices the write; and nothing is assumed about the producer of the base,
// it has been looked at. History, hooks, retain_grad and tangent move along: to
// everybody who holds the view it is the same tensor, with no base.
DroppedView::DroppedView(const Tensor& view)
    : tensor_(view), version_(static_cast<uint32_t>(view._version())) {
  auto* before = impl::get_view_autograd_meta(view);
  TORCH_INTERNAL_ASSERT(before != nullptr && before->has_bw_view());
  // Through the accessor: it brings a history up to date that an in-place
  // operator on the base has left behind.
  history_ = before->requires_grad() ? Edge(view.grad_fn(), before->output_nr_)
                                     : Edge();
  auto after = std::make_unique<AutogradMeta>(
      view.unsafeGetTensorImpl(), /*requires_grad=*/false, history_);
  leave_siblings(view);
  shared_view_info_ = before->shared_view_info();
  creation_meta_ = before->get_creation_meta();
  attr_version_ = before->get_attr_version();
  if (!shared_view_info_ && before->has_fw_view()) {
    forward_view_.emplace(taken(before->get_forward_view()));
  }
  backward_view_.emplace(taken(before->get_backward_view()));
  carry(*before, *after);
  metadata_ = after.get();
  view.unsafeGetTensorImpl()->set_autograd_meta(std::move(after));
}

bool DroppedView::has_its_history() const {
  const auto* now = impl::get_autograd_meta(tensor_);
  return now == metadata_ && now->grad_fn_ == history_.function &&
      now->output_nr_ == history_.input_nr;
}

// Note [A call that raises leaves a view]
//
// An operator can raise after the base was dropped: its shapes do not match, or a
// foreach operator reaches a tensor that it cannot write to. Then nothing has come
// into the view's history, and it becomes the view again that it was: what stock
// refuses for such a view, a custom Function that writes to it for one, it refuses
// after the failed call as before. Elements that were written by then stay
// written, as in stock; the version says so, and the history lags behind it.
//
// A history that has changed is left alone: the call got further than the kernel.
void DroppedView::give_back() {
  if (!has_its_history()) {
    return;
  }
  auto* impl = tensor_.unsafeGetTensorImpl();
  const auto written = static_cast<uint32_t>(tensor_._version()) - version_;
  const Tensor base = backward_view_->base_;
  // Gives the tensor the base's version counter, which a part had left.
  auto after = std::make_unique<DifferentiableViewMeta>(
      impl,
      std::move(backward_view_),
      std::move(forward_view_),
      shared_view_info_,
      creation_meta_);
  after->grad_fn_ = history_.function;
  after->output_nr_ = history_.input_nr;
  carry(*impl::get_autograd_meta(tensor_), *after);
  if (return_to_siblings(tensor_, base)) {
    for ([[maybe_unused]] const auto i : c10::irange(written)) {
      impl->bump_version();
    }
  }
  after->set_attr_version(attr_version_);
  impl->set_autograd_meta(std::move(after));
}

int64_t DroppedView::owners_of_base(const Tensor& base) const {
  const auto owns = [&](const std::optional<ViewInfo>& info) {
    return info.has_value() && info->base_.is_same(base) ? 1 : 0;
  };
  return owns(backward_view_) + owns(forward_view_);
}

} // namespace noalias
