// retain_grad on a later output of a node, across an in-place operator.
//
// Note [retain_grad on a later output]
//
// An in-place operator makes a new node for the tensor, of which the tensor is
// output 0, and moves the hook of retain_grad there. PyTorch looks for that hook
// in the old node under the new number, so on a tensor that was output 1 or later
// (`minimum, maximum = torch.aminmax(x)`, a part of split that is no view any
// more, the gradient of a weight) it fails with an internal assertion
// (update_tensor_hooks_on_new_gradfn in torch/csrc/autograd/variable.cpp, 2.9 to
// 2.15). The hook itself knows its number as well. So we take it off before the
// call and put it, renumbered, where the tensor then is: the retained gradient is
// that of the written tensor, as for output 0.
#pragma once

#include "compat.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <memory>

namespace noalias {

// Cheap: it is part of the price of every in-place call.
inline bool retains_gradient_of_later_output(const at::Tensor& tensor) {
  const auto* meta = tensor.defined()
      ? torch::autograd::impl::get_autograd_meta(tensor)
      : nullptr;
  return meta != nullptr && meta->output_nr_ != 0 && meta->retains_grad_;
}

// Holds the hook while an in-place operator runs on a tensor that is no view.
class RetainedGradient {
 public:
  explicit RetainedGradient(const at::Tensor& written);
  ~RetainedGradient();
  RetainedGradient(const RetainedGradient&) = delete;
  RetainedGradient& operator=(const RetainedGradient&) = delete;

 private:
  const at::Tensor written_;
  std::unique_ptr<torch::autograd::FunctionPreHook> hook_;
};

} // namespace noalias
