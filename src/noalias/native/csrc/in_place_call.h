// One call of an in-place operator, with the cures and the listener around it.
#pragma once

#include "events.h"
#include "override.h"
#include "proof.h"
#include "retained_gradient.h"

#include <c10/core/GradMode.h>
#include <c10/util/FunctionRef.h>
#include <torch/csrc/autograd/variable.h>

#include <atomic>
#include <vector>

namespace noalias {

// The cures of in-place calls, on or off.
inline std::atomic<bool> hidden_bases_on{false};
inline std::atomic<bool> slice_updates_on{false};

// Note [Cures that a program cannot tell]
//
// Where a base is dropped, a hook that stock loses runs, and a call that stock refuses
// is carried out. Who switches cures on wants that; a program that is being measured
// did not ask, and would train with other gradients in the steps that happen to run
// with the cures. While this is on, those writes are stock's, hooks and errors
// included.
inline std::atomic<bool> effects_kept{false};

// Somebody between autograd and the backend still has to see the call: a
// subclass, a mode, a tracer. They get stock PyTorch.
inline bool is_observed_below(c10::DispatchKeySet keys) {
  constexpr c10::DispatchKeySet observers(
      {c10::DispatchKey::Python, c10::DispatchKey::Functionalize});
  return keys.has_any(observers);
}

// The metadata of a differentiable view that is written while history is
// recorded, nullptr for everything else.
inline const DifferentiableViewMeta* recorded_view(
    const Tensor& written,
    c10::DispatchKeySet keys) {
  if (!written.defined() ||
      written.unsafeGetTensorImpl()->autograd_meta() == nullptr) {
    return nullptr;
  }
  const DifferentiableViewMeta* meta =
      torch::autograd::impl::get_view_autograd_meta(written);
  const bool recorded = meta != nullptr && meta->has_bw_view() &&
      c10::GradMode::is_enabled() && !is_observed_below(keys);
  return recorded ? meta : nullptr;
}

// The view whose history is at stake, nullptr where none is.
template <typename RequiresGrad>
const DifferentiableViewMeta* view_at_stake(
    const Tensor& written,
    c10::DispatchKeySet keys,
    const RequiresGrad& any_requires_grad) {
  const auto* meta = recorded_view(written, keys);
  return meta != nullptr && any_requires_grad() ? meta : nullptr;
}

// Whether stock would lose sight of the hook of retain_grad.
inline bool must_carry_retained_gradient(
    const Tensor& written,
    c10::DispatchKeySet keys) {
  return retains_gradient_of_later_output(written) &&
      hidden_bases_on.load(std::memory_order_relaxed) &&
      c10::GradMode::is_enabled() && !is_observed_below(keys);
}

// A call of `op`. Everything is a reference to what the kernel was given.
struct InPlaceCall {
  const c10::OperatorHandle& op;
  c10::DispatchKeySet keys;
  // Whether any argument requires a gradient, the written tensors included.
  c10::function_ref<bool()> any_requires_grad;
  c10::function_ref<void()> stock;

  // Call stock once, the cures that apply around it. What is written must outlive
  // the call: a stack's own is consumed by it.
  void on(const Tensor& written, const DifferentiableViewMeta* at_stake) const;
  void on(const std::vector<Tensor>& written) const;
};

// Whether InPlaceCall has anything to add to stock.
inline bool may_matter(
    const Tensor& written,
    const DifferentiableViewMeta* at_stake,
    c10::DispatchKeySet keys) {
  return at_stake != nullptr || listening() ||
      must_carry_retained_gradient(written, keys);
}

} // namespace noalias
