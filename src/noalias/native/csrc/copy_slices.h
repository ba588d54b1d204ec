// The CopySlices that an in-place operator on a view puts behind the view's base.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/tensor.h>

#include <cstdint>

namespace noalias {

// Watches one in-place call: made before stock's kernel runs, asked afterwards.
class CopySlicesWatch {
 public:
  // `written` is the differentiable view that is about to be written, and outlives
  // the watch.
  explicit CopySlicesWatch(const at::Tensor& written);

  const at::Tensor& written() const {
    return *written_;
  }

  bool has_base_of(const CopySlicesWatch& other) const;

  // The node that is behind the base since then, or the one so many below it.
  // nullptr where there is none, or where its geometry is not known in numbers.
  torch::autograd::CopySlices* fresh(int64_t below = 0) const;

 private:
  const at::Tensor* written_;
  const torch::autograd::Node* before_;
};

} // namespace noalias
