#include "retained_gradient.h"

#include "compat_engine.h"

#include <utility>

namespace noalias {

namespace {

namespace impl = torch::autograd::impl;

// Writes to a view go through its base's history, which has no such hook.
bool loses_its_hook(const at::Tensor& written) {
  if (!retains_gradient_of_later_output(written)) {
    return false;
  }
  const auto* view = impl::get_view_autograd_meta(written);
  return view == nullptr || !view->has_bw_view();
}

} // namespace

RetainedGradient::RetainedGradient(const at::Tensor& written)
    : written_(written) {
  if (!loses_its_hook(written_)) {
    return;
  }
  auto& meta = *impl::get_autograd_meta(written_);
  auto hook = meta.grad_fn_->pop_retains_grad_hook(meta.output_nr_);
  if (hook == nullptr || !has_output_number(*hook)) {
    if (hook != nullptr) {
      meta.grad_fn_->add_retains_grad_hook(std::move(hook), meta.output_nr_);
    }
    return;
  }
  hook_ = std::move(hook);
  meta.retains_grad_ = false;
}

RetainedGradient::~RetainedGradient() {
  if (hook_ == nullptr) {
    return;
  }
  // The old node where the operator raised.
  auto& meta = *impl::get_autograd_meta(written_);
  set_output_number(*hook_, meta.output_nr_);
  meta.grad_fn_->add_retains_grad_hook(std::move(hook_), meta.output_nr_);
  meta.retains_grad_ = true;
}

} // namespace noalias
