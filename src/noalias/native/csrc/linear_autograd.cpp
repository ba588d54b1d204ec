#include "linear.h"
#include "linear_history.h"
#include "linear_tangents.h"
#include "whole_types.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/linear.h>
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
  const auto history = history_of_linear(input, weight, b);
  Tensor result;
  {
    at::AutoDispatchBelowADInplaceOrView guard;
    result = below == Below::kBackend
        ? linear_kernel(input, weight, bias)
        : linear_op().redispatch(
              keys & c10::after_autograd_keyset, input, weight, bias);
  }
  if (history != nullptr) {
    torch::autograd::set_history(result, history);
  }
  set_linear_tangent(result, input, weight, b);
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
  const Tensor none;
  const auto history_of = [&](LinearGradient of,
                              const Tensor& x_used,
                              const Tensor& w_used) {
    return output_mask[static_cast<size_t>(of)]
        ? history_of_gradient(of, x_used, grad_output, w_used)
        : NodeOf<LinearBackwardBackward>();
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
  const auto& [dx, dw, db] = result;
  const auto record = [](const Tensor& gradient,
                         const NodeOf<LinearBackwardBackward>& node) {
    if (node != nullptr) {
      torch::autograd::set_history(gradient, node);
    }
  };
  record(dx, of_input);
  record(dw, of_weight);
  record(db, of_bias);
  set_linear_backward_tangents(result, x, grad_output, w, output_mask);
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
