#include "gradient_proof.h"
#include "linear.h"
#include "linear_nodes.h"
#include "linear_products.h"
#include "whole_types.h"

#include <ATen/SavedTensorHooks.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/add.h>
#include <ATen/ops/linear.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <atomic>

namespace noalias {

namespace {

std::atomic<bool> whole_capture_on{false};

using LinearSignature =
    Tensor(const Tensor&, const Tensor&, const OptionalTensor&);
using LinearBackwardSignature = LinearGradients(
    const OptionalTensor&,
    const Tensor&,
    const OptionalTensor&,
    Mask);

const c10::TypedOperatorHandle<LinearSignature>& linear_op() {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("noalias::linear", "")
                             .typed<LinearSignature>();
  return op;
}

const c10::TypedOperatorHandle<LinearBackwardSignature>& linear_backward_op() {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("noalias::linear_backward", "")
                             .typed<LinearBackwardSignature>();
  return op;
}

// Who has still to see the call once autograd is done with it.
enum class Below { kBackend, kFunctorch, kPython };

Below what_is_below(c10::DispatchKeySet keys) {
  using c10::DispatchKey;
  const auto below = keys & c10::after_ADInplaceOrView_keyset;
  if (below.has(DispatchKey::FuncTorchDynamicLayerBackMode)) {
    return Below::kFunctorch;
  }
  constexpr c10::DispatchKeySet python(
      {DispatchKey::Python, DispatchKey::Functionalize});
  return below.has_any(python) ? Below::kPython : Below::kBackend;
}

// See Note [Where linear stays whole].
bool stays_whole(std::initializer_list<const Tensor*> tensors) {
  return whole_capture() || all_have_own_rule(tensors);
}

const Tensor& value_or_none(const OptionalTensor& tensor) {
  static const Tensor none;
  return tensor.has_value() ? *tensor : none;
}

bool wants_history(const Tensor& tensor) {
  return tensor.defined() && tensor.requires_grad();
}

bool carries_tangent(const Tensor& tensor) {
  return tensor.defined() && tensor._fw_grad(/*level=*/0).defined();
}

// Only what has a tangent is taken apart: a sparse tensor has no view of itself.
OptionalTensor primal_of(const Tensor& tensor) {
  return carries_tangent(tensor)
      ? OptionalTensor(tensor._fw_primal(/*level=*/0))
      : given(tensor);
}

OptionalTensor tangent_of(const Tensor& tensor) {
  return carries_tangent(tensor) ? OptionalTensor(tensor._fw_grad(/*level=*/0))
                             : std::nullopt;
}

void set_tangent(const Tensor& result, const Tensor& tangent) {
  if (result.defined() && tangent.defined()) {
    result._set_fw_grad(tangent, /*level=*/0, /*is_inplace_op=*/false);
  }
}

Tensor sum_of(const Tensor& left, const Tensor& right) {
  if (!left.defined() || !right.defined()) {
    return left.defined() ? left : right;
  }
  return at::add(left, right);
}

// Product rule, for real and complex values alike:
//   dy = dx W^T + db + x dW^T
// in the order of PyTorch's formula for addmm, or last bits would differ from it.
Tensor linear_tangent(
    const Tensor& input,
    const Tensor& weight,
    const Tensor& bias,
    const Tensor& result) {
  Tensor sum;
  if (carries_tangent(input)) {
    sum = call_linear(*tangent_of(input), *primal_of(weight), std::nullopt);
  }
  if (carries_tangent(bias)) {
    const Tensor db = *tangent_of(bias);
    // [rows, out] and its like are added to the flattened output.
    const bool flat = bias.dim() == 2 && result.dim() != 2 &&
        check_linear(input, weight, bias) == BiasForm::kRows;
    sum = sum_of(
        sum,
        flat ? restore(
                   db.expand_symint(rows_of(result).sym_sizes()).contiguous(),
                   result,
                   result.sym_size(-1))
             : db.expand_symint(result.sym_sizes()));
  }
  if (carries_tangent(weight)) {
    sum = sum_of(
        sum, call_linear(*primal_of(input), *tangent_of(weight), std::nullopt));
  }
  return sum;
}

LinearGradients linear_backward_tangent(
    const Tensor& input,
    const Tensor& grad_output,
    const Tensor& weight,
    Mask mask) {
  Tensor dx, dw, db;
  const auto add = [&](const LinearGradients& terms) {
    dx = sum_of(dx, std::get<0>(terms));
    dw = sum_of(dw, std::get<1>(terms));
    db = sum_of(db, std::get<2>(terms));
  };
  if (carries_tangent(grad_output)) {
    add(call_linear_backward(
        primal_of(input), *tangent_of(grad_output), primal_of(weight), mask));
  }
  const Mask rest = {
      mask[0] && carries_tangent(weight), mask[1] && carries_tangent(input), false};
  if (rest[0] || rest[1]) {
    add(call_linear_backward(
        tangent_of(input),
        *primal_of(grad_output),
        tangent_of(weight),
        rest));
  }
  return {dx, dw, db};
}

SavedVariable saved_operand(const Tensor& tensor) {
  return SavedVariable(tensor, /*is_output=*/false);
}

// Whether PyTorch's composite would save a folded input and a transposed weight.
bool has_composite_form(const Tensor& input, const Tensor& weight) {
  return has_ordinary_memory(input) && has_ordinary_memory(weight) &&
      (input.dim() == 2 || (input.dim() > 2 && input.is_contiguous()));
}

NodeOf<LinearBackward> make_history(
    const Tensor& input,
    const Tensor& weight,
    const Tensor& bias) {
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

} // namespace

Tensor call_linear(
    const Tensor& input,
    const Tensor& weight,
    const OptionalTensor& bias) {
  return linear_op().call(input, weight, bias);
}

LinearGradients call_linear_backward(
    const OptionalTensor& input,
    const Tensor& grad_output,
    const OptionalTensor& weight,
    Mask output_mask) {
  return linear_backward_op().call(input, grad_output, weight, output_mask);
}

bool whole_capture() {
  return whole_capture_on.load(std::memory_order_relaxed);
}

void set_whole_capture(bool on) {
  whole_capture_on.store(on, std::memory_order_relaxed);
}

// Note [Where linear stays whole]
//
// Between autograd and the backend a call may still pass
//   1. Python: a tensor subclass, a TorchDispatchMode, functionalization. They
//      know aten and not us. A subclass gets aten::linear, to the letter what
//      F.linear gives it; a mode that watches plain tensors gets our composite,
//      whose result is no view. Autograd then records the composite's own
//      operators, so nothing is recorded here. Whole capture turns both off; a
//      subclass with a rule for linear (DTensor, whole_types.h) is always handed
//      the operator, with our node above it. A sparse weight stays whole for a
//      mode: aten has no composite with a derivative for its layouts.
//   2. functorch: the level below unwraps the tensors and calls linear again.
//      The node of this level is ours, as in any generated kernel.
//   3. nothing: the products are computed at once.
// In inference mode autograd is not asked, and a mode would be handed the
// operator: linear_from_python gives it aten::linear, which is what F.linear does.
Tensor linear_autograd(
    c10::DispatchKeySet keys,
    const Tensor& input,
    const Tensor& weight,
    const OptionalTensor& bias) {
  if (!is_ours(input, weight)) {
    return at::linear(input, weight, bias);
  }
  const Tensor& b = value_or_none(bias);
  const Below below = what_is_below(keys);
  if (below == Below::kPython && !stays_whole({&input, &weight, &b})) {
    if (any_subclass({&input, &weight, &b})) {
      return at::linear(input, weight, bias);
    }
    if (weight.layout() == c10::kStrided) {
      return linear_product(input, weight, bias);
    }
  }
  const bool history = c10::GradMode::is_enabled() &&
      (wants_history(input) || wants_history(weight) || wants_history(b));
  NodeOf<LinearBackward> node;
  if (history) {
    node = make_history(input, weight, b);
  }
  Tensor result;
  {
    at::AutoDispatchBelowADInplaceOrView guard;
    result = below == Below::kBackend
        ? linear_kernel(input, weight, bias)
        : linear_op().redispatch(
              keys & c10::after_autograd_keyset, input, weight, bias);
  }
  if (history) {
    torch::autograd::set_history(result, node);
  }
  if (carries_tangent(input) || carries_tangent(weight) || carries_tangent(b)) {
    set_tangent(result, linear_tangent(input, weight, b, result));
  }
  return result;
}

LinearGradients linear_backward_autograd(
    c10::DispatchKeySet keys,
    const OptionalTensor& input,
    const Tensor& grad_output,
    const OptionalTensor& weight,
    Mask output_mask) {
  const Tensor& x = value_or_none(input);
  const Tensor& w = value_or_none(weight);
  const Below below = what_is_below(keys);
  const bool sparse = w.defined() && w.layout() != c10::kStrided;
  if (below == Below::kPython && !sparse &&
      !stays_whole({&x, &grad_output, &w})) {
    return linear_backward_product(input, grad_output, weight, output_mask);
  }
  // Each gradient depends on two operands, the bias's on one; what depends on nothing
  // that requires grad has no history, as in PyTorch's composite.
  const Tensor none;
  const auto history_of = [&](LinearGradient of,
                              const Tensor& x_used,
                              const Tensor& w_used) {
    NodeOf<LinearBackwardBackward> node;
    if (!output_mask[static_cast<size_t>(of)] || !c10::GradMode::is_enabled() ||
        !(wants_history(x_used) || wants_history(grad_output) ||
          wants_history(w_used))) {
      return node;
    }
    node = make_node<LinearBackwardBackward>();
    node->of_ = of;
    node->set_next_edges(
        torch::autograd::collect_next_edges(x_used, grad_output, w_used));
    if (node->should_compute_output(0) || node->should_compute_output(2)) {
      node->grad_output_ = saved_operand(grad_output);
    }
    if (node->should_compute_output(1)) {
      node->input_ = saved_operand(x_used);
      node->weight_ = saved_operand(w_used);
      if (of == LinearGradient::kBias) {
        node->grad_output_sizes_ = grad_output.sym_sizes().vec();
      }
    }
    return node;
  };
  // In this order, which is that of their sequence numbers.
  const auto of_input = history_of(LinearGradient::kInput, none, w);
  const auto of_weight = history_of(LinearGradient::kWeight, x, none);
  const auto of_bias = history_of(LinearGradient::kBias, none, none);
  LinearGradients result;
  {
    at::AutoDispatchBelowADInplaceOrView guard;
    result = below == Below::kBackend
        ? linear_backward_kernel(input, grad_output, weight, output_mask)
        : linear_backward_op().redispatch(
              keys & c10::after_autograd_keyset,
              input,
              grad_output,
              weight,
              output_mask);
  }
  auto& [dx, dw, db] = result;
  const auto record = [](const Tensor& gradient,
                         const NodeOf<LinearBackwardBackward>& node) {
    if (node != nullptr) {
      torch::autograd::set_history(gradient, node);
    }
  };
  record(dx, of_input);
  record(dw, of_weight);
  record(db, of_bias);
  if (carries_tangent(x) || carries_tangent(grad_output) || carries_tangent(w)) {
    const auto [tx, tw, tb] =
        linear_backward_tangent(x, grad_output, w, output_mask);
    set_tangent(dx, tx);
    set_tangent(dw, tw);
    set_tangent(db, tb);
  }
  return result;
}

Tensor linear_from_python(
    const Tensor& input,
    const Tensor& weight,
    const OptionalTensor& bias) {
  if (c10::InferenceMode::is_enabled() && !whole_capture() &&
      c10::impl::TorchDispatchModeTLS::any_modes_set() &&
      weight.layout() == c10::kStrided) {
    return at::linear(input, weight, bias);
  }
  return call_linear(input, weight, bias);
}

} // namespace noalias
