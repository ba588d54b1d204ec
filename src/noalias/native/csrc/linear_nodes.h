// The history of noalias.linear and of its derivative.
#pragma once

#include "compat.h"
#include "linear.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <mutex>
#include <string>
#include <vector>

namespace noalias {

using torch::autograd::SavedVariable;

// Which edge of LinearBackward leads to what. Leaves are reached in the order of
// the edges, and hooks on them called; stock PyTorch comes to the bias first.
struct LinearEdges {
  static constexpr size_t bias = 0;
  bool weight_first = true;

  size_t weight() const {
    return weight_first ? 1 : 2;
  }
  size_t input() const {
    return weight_first ? 2 : 1;
  }
};

// y = x W^T + b.
struct LinearBackward final : public Node {
  variable_list apply(variable_list&& grads) override;
  std::string name() const override;
  void release_variables() override;
  std::mutex& mutex() {
    return mutex_;
  }
  void compiled_args(
      torch::dynamo::autograd::CompiledNodeArgs& args) const override;
  variable_list apply_with_saved(
      const variable_list& grads,
      torch::dynamo::autograd::SwapSavedVariables& saved) override;

  // The input is kept if the weight needs a gradient, the weight if the input
  // does. What the other one's layout decides is remembered by itself.
  SavedVariable input_;
  SavedVariable weight_;
  LinearEdges edges_;
  bool input_transposed_ = false;
  bool weight_transposed_ = false;
  // The gradient of a sparse weight has its layout.
  bool on_pattern_ = false;
  // Kept unless the bias has shape [out], of which linear_backward gives the
  // gradient itself.
  bool plain_bias_ = true;
  bool flat_bias_ = true;
  std::vector<c10::SymInt> bias_shape_;
};

// grad_x = g conj(W),  grad_W = g^T conj(x),  grad_b = sum of g.
// Edges: self (x), grad_output (g), weight (W).
struct LinearBackwardBackward final : public Node {
  variable_list apply(variable_list&& grads) override;
  std::string name() const override;
  void release_variables() override;
  std::mutex& mutex() {
    return mutex_;
  }
  void compiled_args(
      torch::dynamo::autograd::CompiledNodeArgs& args) const override;
  variable_list apply_with_saved(
      const variable_list& grads,
      torch::dynamo::autograd::SwapSavedVariables& saved) override;

  SavedVariable input_;
  SavedVariable grad_output_;
  SavedVariable weight_;
};

} // namespace noalias
