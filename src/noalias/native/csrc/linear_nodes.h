// The history of noalias.linear and of its derivative.
#pragma once

#include "compat.h"
#include "held_memory.h"
#include "linear.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <mutex>
#include <optional>
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

// Note [What hooks on saved tensors are given]
//
// While saved tensors have hooks, linear saves what PyTorch's composite does: the
// transposed weight and the folded input, in the same order. A checkpoint that is
// not reentrant recomputes them in backward, tells them apart by their number, and
// checks no more than shapes; if the cures have been switched off (or on) in
// between, the one form would be taken for the other.

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
  // See Note [What hooks on saved tensors are given].
  bool saved_as_composite_ = false;
  // See Note [What a view holds on to].
  std::optional<HeldMemory> input_memory_;
  std::optional<HeldMemory> weight_memory_;
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

// grad_x = g conj(W),  grad_W = g^T conj(x),  grad_b = sum of g: which of the three
// a node is the history of. One for each, as PyTorch has: a common node would wait
// for the gradients of all three before it passes any on, and the sums that they
// are part of would be taken in another order; and it would have edges to operands
// that the one which is asked for does not depend on, along which no gradient
// comes, of which a custom Function makes zeros.
enum class LinearGradient : int64_t { kInput, kWeight, kBias };

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

  LinearGradient of_ = LinearGradient::kInput;
  SavedVariable input_;
  SavedVariable grad_output_;
  SavedVariable weight_;
  // Kept of the bias's.
  std::vector<c10::SymInt> grad_output_sizes_;
};

} // namespace noalias
