#include "linear_history.h"

#include "gradient_proof.h"
#include "linear_products.h"

#include <ATen/SavedTensorHooks.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

namespace noalias {

namespace {

bool wants_history(const Tensor& tensor) {
  return tensor.defined() && tensor.requires_grad();
}

SavedVariable saved_operand(const Tensor& tensor) {
  return SavedVariable(tensor, /*is_output=*/false);
}

// Whether PyTorch's composite would save a folded input and a transposed weight.
bool has_composite_form(const Tensor& input, const Tensor& weight) {
  return has_ordinary_memory(input) && has_ordinary_memory(weight) &&
      (input.dim() == 2 || (input.dim() > 2 && input.is_contiguous()));
}

} // namespace

NodeOf<LinearBackward> history_of_linear(
    const Tensor& input,
    const Tensor& weight,
    const Tensor& bias) {
  if (!c10::GradMode::is_enabled() ||
      !(wants_history(input) || wants_history(weight) || wants_history(bias))) {
    return {};
  }
  auto node = make_node<LinearBackward>();
  // A leaf comes before what lies behind a transpose, unless it lies behind a
  // reshape that was made later, as the input of a folded addmm does.
  const bool folded = bias.defined() && input.dim() != 2 &&
      input.is_contiguous_or_false();
  // And the product's first operand before the transposed second, if one tensor is
  // both.
  node->edges_.weight_first = (folded ||
                               !(input.requires_grad() && input.is_leaf())) &&
      !input.is_same(weight);
  node->set_next_edges(
      node->edges_.weight_first
          ? torch::autograd::collect_next_edges(bias, weight, input)
          : torch::autograd::collect_next_edges(bias, input, weight));
  const bool to_input = node->should_compute_output(node->edges_.input());
  const bool to_weight = node->should_compute_output(node->edges_.weight());
  const bool sparse = weight.layout() != c10::kStrided;
  node->on_pattern_ = sparse && to_weight && pattern_gradients();
  // Hooks decide themselves what is kept, so no memory is held beside what they pack.
  const bool hooked = at::SavedTensorDefaultHooks::get_hooks().has_value();
  node->saved_as_composite_ = hooked && has_composite_form(input, weight);
  const auto save_weight = [&] {
    if (to_input || node->on_pattern_) {
      node->weight_ =
          saved_operand(node->saved_as_composite_ ? weight.t() : weight);
      if (!hooked) {
        node->weight_memory_ = HeldMemory::of(weight);
      }
    }
  };
  // A product without a bias (mm) saves its second operand first.
  const bool second_first = node->saved_as_composite_ && !bias.defined();
  if (second_first) {
    save_weight();
  }
  if (to_weight) {
    node->input_ =
        saved_operand(node->saved_as_composite_ ? rows_of(input) : input);
    if (!hooked && input.dim() != 2 && !input.is_view()) {
      node->input_memory_ = HeldMemory::of(input);
    }
  }
  if (!second_first) {
    save_weight();
  }
  if (!sparse) {
    node->input_transposed_ =
        to_input && !to_weight && input_lies_transposed(input);
    node->weight_transposed_ =
        to_weight && !to_input && weight_lies_transposed(weight);
  }
  if (node->should_compute_output(LinearEdges::bias)) {
    node->plain_bias_ =
        bias.dim() == 1 && bias.sym_size(0) == weight.sym_size(0);
    if (!node->plain_bias_) {
      node->flat_bias_ =
          check_linear(input, weight, bias) == BiasForm::kRows;
      node->bias_shape_ = bias.sym_sizes().vec();
    }
  }
  return node;
}

NodeOf<LinearBackwardBackward> history_of_gradient(
    LinearGradient of,
    const Tensor& input,
    const Tensor& grad_output,
    const Tensor& weight) {
  if (!c10::GradMode::is_enabled() ||
      !(wants_history(input) || wants_history(grad_output) ||
        wants_history(weight))) {
    return {};
  }
  auto node = make_node<LinearBackwardBackward>();
  node->of_ = of;
  node->set_next_edges(
      torch::autograd::collect_next_edges(input, grad_output, weight));
  if (node->should_compute_output(0) || node->should_compute_output(2)) {
    node->grad_output_ = saved_operand(grad_output);
  }
  if (node->should_compute_output(1)) {
    node->input_ = saved_operand(input);
    node->weight_ = saved_operand(weight);
    if (of == LinearGradient::kBias) {
      node->grad_output_sizes_ = grad_output.sym_sizes().vec();
    }
  }
  return node;
}

} // namespace noalias
