// The cure "slice update": an in-place operator on a view of a visible base keeps
// its history, in a node that updates the gradient it receives where nobody else
// holds it, instead of copying all of it for every slice.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

namespace noalias {

// Watches one in-place call: made before stock's kernel runs, told afterwards.
class SliceUpdateWatch {
 public:
  // `written` is the differentiable view that is about to be written.
  explicit SliceUpdateWatch(const at::Tensor& written);

  // Puts our node where stock has put a new CopySlices.
  void finish();

 private:
  const at::Tensor& written_;
  const torch::autograd::Node* before_;
};

} // namespace noalias
