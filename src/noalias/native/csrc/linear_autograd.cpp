#include "linear.h"

#include "compat.h"
#include "whole_types.h"

#include <ATen/TracerMode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ExpandUtils.h>
#include <ATen/ops/add.h>
#include <ATen/ops/linear.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <atomic>

namespace noalias {

using torch::autograd::SavedVariable;

namespace {

std::atomic<bool> whole_capture_on{false};

using LinearSignature =
    Tensor(const Tensor&, const Tensor&, const OptionalTensor&);
using LinearBackwardSignature = LinearGradients(
    const OptionalTensor&,
    const Tensor&,
    const OptionalTensor&,
    std::array<bool, 3>);

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
  constexpr c10::DispatchKeySet functorch({
      DispatchKey::FuncTorchBatched,
      DispatchKey::FuncTorchGradWrapper,
      DispatchKey::FuncTorchDynamicLayerBackMode,
  });
  constexpr c10::DispatchKeySet python({
      DispatchKey::Python,
      DispatchKey::Functionalize,
  });
  if (below.has_any(functorch)) {
    return Below::kFunctorch;
  }
  return below.has_any(python) ? Below::kPython : Below::kBackend;
}

bool is_ordinary(const Tensor& input, const Tensor& weight) {
  return weight.dim() == 2 && input.dim() >= 1 &&
      input.layout() == c10::kStrided && weight.layout() == c10::kStrided &&
      !input.is_nested() && !weight.is_nested() && !weight.is_quantized();
}

bool any_subclass(
    const Tensor& input,
    const Tensor& weight,
    const OptionalTensor& bias) {
  constexpr c10::DispatchKeySet subclass(
      {c10::DispatchKey::Python, c10::DispatchKey::Functionalize});
  return input.key_set().has_any(subclass) ||
      weight.key_set().has_any(subclass) ||
      (bias.has_value() && bias->key_set().has_any(subclass));
}

// See Note [Where linear stays whole].
bool stays_whole(std::initializer_list<const Tensor*> tensors) {
  return whole_capture() || all_have_own_rule(tensors);
}

OptionalTensor given(const Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
}

bool wants_history(const Tensor& tensor) {
  return tensor.defined() && tensor.requires_grad();
}

bool has_tangent(const Tensor& tensor) {
  return tensor.defined() && tensor._fw_grad(/*level=*/0).defined();
}

// Product rule, for real and complex values alike:
//   dy = dx W^T + x dW^T + db
Tensor linear_tangent(
    const Tensor& input,
    const Tensor& weight,
    const Tensor& bias,
    const Tensor& result) {
  Tensor tangent;
  auto add = [&tangent](const Tensor& term) {
    tangent = tangent.defined() ? at::add(tangent, term) : term;
  };
  if (has_tangent(input)) {
    add(call_linear(
        input._fw_grad(/*level=*/0), weight._fw_primal(0), std::nullopt));
  }
  if (has_tangent(weight)) {
    add(call_linear(
        input._fw_primal(0), weight._fw_grad(/*level=*/0), std::nullopt));
  }
  if (has_tangent(bias)) {
    add(bias._fw_grad(/*level=*/0).expand_symint(result.sym_sizes()));
  }
  return tangent;
}

struct LinearBackward final : public Node {
  variable_list apply(variable_list&& grads) override;
  std::string name() const override {
    return "LinearBackward0";
  }
  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    input_.reset_data();
    weight_.reset_data();
  }

  SavedVariable input_;
  SavedVariable weight_;
  c10::SmallVector<c10::SymInt, 2> bias_shape_;
};

variable_list LinearBackward::apply(variable_list&& grads) {
  std::lock_guard<std::mutex> lock(mutex_);
  const std::array<bool, 3> mask = {
      task_should_compute_output(0),
      task_should_compute_output(1),
      task_should_compute_output(2)};
  variable_list result(3);
  const Tensor& grad = grads[0];
  if (!grad.defined()) {
    return result;
  }
  const Tensor input = input_.unpack();
  const Tensor weight = weight_.unpack();
  const bool plain_bias = bias_shape_.size() == 1;
  std::tie(result[0], result[1], result[2]) = call_linear_backward(
      given(input), grad, given(weight), {mask[0], mask[1], mask[2] && plain_bias});
  if (mask[2] && !plain_bias) {
    result[2] = at::sum_to(grad, bias_shape_);
  }
  return result;
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
    std::array<bool, 3> output_mask) {
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
//      the operator, with our node above it.
//   2. functorch: the level below unwraps the tensors and calls linear again.
//      The node of this level is ours, as in any generated kernel.
//   3. nothing: the products are computed at once.
Tensor linear_autograd(
    c10::DispatchKeySet keys,
    const Tensor& input,
    const Tensor& weight,
    const OptionalTensor& bias) {
  if (!is_ordinary(input, weight)) {
    return at::linear(input, weight, bias);
  }
  const Tensor no_bias;
  const Tensor& b = bias.has_value() ? *bias : no_bias;
  const Below below = what_is_below(keys);
  if (below == Below::kPython && !stays_whole({&input, &weight, &b})) {
    return any_subclass(input, weight, bias)
        ? at::linear(input, weight, bias)
        : linear_product(input, weight, bias);
  }
  const bool history = c10::GradMode::is_enabled() &&
      (wants_history(input) || wants_history(weight) || wants_history(b));

  NodeOf<LinearBackward> node;
  if (history) {
    node = make_node<LinearBackward>();
    node->set_next_edges(torch::autograd::collect_next_edges(input, weight, b));
    if (node->should_compute_output(1)) {
      node->input_ = SavedVariable(input, /*is_output=*/false);
    }
    if (node->should_compute_output(0)) {
      node->weight_ = SavedVariable(weight, /*is_output=*/false);
    }
    if (node->should_compute_output(2)) {
      node->bias_shape_.append(b.sym_sizes().begin(), b.sym_sizes().end());
    }
  }
  Tensor result;
  {
    at::AutoDispatchBelowADInplaceOrView guard;
    result = below == Below::kBackend
        ? linear_product(input, weight, bias)
        : linear_op().redispatch(
              keys & c10::after_autograd_keyset, input, weight, bias);
  }
  if (history) {
    torch::autograd::set_history(result, node);
  }
  if (has_tangent(input) || has_tangent(weight) || has_tangent(b)) {
    result._set_fw_grad(
        linear_tangent(input, weight, b, result),
        /*level=*/0,
        /*is_inplace_op=*/false);
  }
  return result;
}

LinearGradients linear_backward_autograd(
    c10::DispatchKeySet keys,
    const OptionalTensor& input,
    const Tensor& grad_output,
    const OptionalTensor& weight,
    std::array<bool, 3> output_mask) {
  const Tensor none;
  const Tensor& x = input.has_value() ? *input : none;
  const Tensor& w = weight.has_value() ? *weight : none;
  const Below below = what_is_below(keys);
  const bool history = c10::GradMode::is_enabled() &&
      (wants_history(x) || wants_history(grad_output) || wants_history(w));
  const bool tangent =
      has_tangent(x) || has_tangent(grad_output) || has_tangent(w);
  if (history || tangent ||
      (below == Below::kPython && !stays_whole({&x, &grad_output, &w}))) {
    // The products are differentiable as they stand.
    return linear_backward_products(input, grad_output, weight, output_mask);
  }
  at::AutoDispatchBelowADInplaceOrView guard;
  return below == Below::kBackend
      ? linear_backward_products(input, grad_output, weight, output_mask)
      : linear_backward_op().redispatch(
            keys & c10::after_autograd_keyset,
            input,
            grad_output,
            weight,
            output_mask);
}

} // namespace noalias
