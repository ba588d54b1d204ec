#include "in_place.h"

#include "counters.h"
#include "events.h"
#include "hidden_base.h"
#include "sibling_parts.h"
#include "slice_update.h"
#include "trail.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/variable.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_set>

namespace noalias {

namespace {

namespace impl = torch::autograd::impl;

// Writes to metadata (shape, storage, history), not to values.
const std::unordered_set<std::string_view>& metadata_operators() {
  static const std::unordered_set<std::string_view> names = {
      "aten::_coalesced_",      "aten::as_strided_",
      "aten::detach_",          "aten::rename_",
      "aten::requires_grad_",   "aten::resize_",
      "aten::resize_as_",       "aten::resize_as_sparse_",
      "aten::retain_grad",      "aten::set_",
      "aten::set_data",         "aten::sparse_resize_",
      "aten::squeeze_",         "aten::swapaxes_",
      "aten::swapdims_",        "aten::t_",
      "aten::transpose_",       "aten::unsqueeze_",
      "aten::sparse_resize_and_clear_",
  };
  return names;
}

// Somebody between autograd and the backend still has to see the call: a
// subclass, a mode, a tracer. They get stock PyTorch.
bool is_observed_below(c10::DispatchKeySet keys) {
  return keys.has_any(c10::DispatchKeySet(
      {c10::DispatchKey::Python, c10::DispatchKey::Functionalize}));
}

// A functorch level has still to see the call. The proof knows its wrappers.
bool is_functorch_below(c10::DispatchKeySet keys) {
  return keys.has_any(c10::DispatchKeySet(
      {c10::DispatchKey::FuncTorchBatched,
       c10::DispatchKey::FuncTorchGradWrapper,
       c10::DispatchKey::FuncTorchDynamicLayerBackMode}));
}

bool requires_grad(const c10::IValue& value) {
  if (value.isTensor()) {
    return value.toTensor().defined() && value.toTensor().requires_grad();
  }
  if (value.isTensorList()) {
    for (const Tensor& tensor : value.toTensorVector()) {
      if (tensor.requires_grad()) {
        return true;
      }
    }
  }
  if (value.isList() && !value.isTensorList()) {
    for (const c10::IValue& item : value.toListRef()) {
      if (requires_grad(item)) {
        return true;
      }
    }
  }
  return false;
}

bool any_requires_grad(c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& argument : arguments) {
    if (requires_grad(argument)) {
      return true;
    }
  }
  return false;
}

// Who wants to hear of in-place calls.
std::atomic<bool> hidden_bases_on{false};
std::atomic<bool> slice_updates_on{false};

// The in-place operators' kernel.
class InPlaceGuard final : public Guard {
 public:
  using Guard::Guard;

  void operator()(
      const c10::OperatorHandle& op,
      c10::DispatchKeySet keys,
      Stack* stack) override {
    const size_t count = op.schema().arguments().size();
    const c10::IValue& written = (*stack)[stack->size() - count];
    if (listening()) {
      call_and_tell(op, keys, stack, written);
      return;
    }
    if (written.isTensor()) {
      call_on(written.toTensor(), op, keys, stack);
      return;
    }
    for (const Tensor& tensor : written.toTensorVector()) {
      cure(tensor, keys, arguments(op, *stack));
    }
    call_stock(op, keys, stack);
  }

 private:
  static c10::ArrayRef<c10::IValue> arguments(
      const c10::OperatorHandle& op,
      const Stack& stack) {
    const size_t count = op.schema().arguments().size();
    return c10::ArrayRef<c10::IValue>(stack).slice(stack.size() - count);
  }

  // The metadata of a differentiable view that is written while history is
  // recorded, nullptr for everything else.
  static const DifferentiableViewMeta* recorded_view(
      const Tensor& written,
      c10::DispatchKeySet keys) {
    if (!written.defined()) {
      return nullptr;
    }
    const DifferentiableViewMeta* meta = impl::get_view_autograd_meta(written);
    const bool recorded = meta != nullptr && meta->has_bw_view() &&
        c10::GradMode::is_enabled() && !is_observed_below(keys);
    return recorded ? meta : nullptr;
  }

  // The verdict where history is at stake, after acting on it.
  static std::optional<Verdict> cure(
      const Tensor& written,
      c10::DispatchKeySet keys,
      c10::ArrayRef<c10::IValue> arguments) {
    const bool on = hidden_bases_on.load(std::memory_order_relaxed);
    const DifferentiableViewMeta* meta =
        on || listening() ? recorded_view(written, keys) : nullptr;
    if (meta == nullptr || !any_requires_grad(arguments)) {
      return std::nullopt;
    }
    const Verdict verdict = verdict_on(written, *meta);
    count(counters().seen);
    if (verdict != Verdict::kHidden) {
      count(counters().kept[static_cast<size_t>(verdict)]);
    } else if (on) {
      drop_view(written);
      count(counters().cured);
    }
    return verdict;
  }

  void call_on(
      const Tensor& written,
      const c10::OperatorHandle& op,
      c10::DispatchKeySet keys,
      Stack* stack) const {
    cure(written, keys, arguments(op, *stack));
    if (!slice_updates_on.load(std::memory_order_relaxed) ||
        is_functorch_below(keys) || recorded_view(written, keys) == nullptr) {
      call_stock(op, keys, stack);
      return;
    }
    const Tensor view = written; // the stack's own is consumed by the call
    SliceUpdateWatch watch(view);
    call_stock(op, keys, stack);
    watch.finish();
  }

  // The same for one tensor, with somebody listening.
  void call_and_tell(
      const c10::OperatorHandle& op,
      c10::DispatchKeySet keys,
      Stack* stack,
      const c10::IValue& written) const {
    const std::string name = c10::toString(op.operator_name());
    const std::vector<Tensor> tensors = written.isTensor()
        ? std::vector<Tensor>{written.toTensor()}
        : written.toTensorVector();
    const bool recording =
        c10::GradMode::is_enabled() && !is_observed_below(keys);
    for (const Tensor& tensor : tensors) {
      const auto verdict = cure(tensor, keys, arguments(op, *stack));
      const bool dropped = verdict == Verdict::kHidden &&
          hidden_bases_on.load(std::memory_order_relaxed);
      note_write(name, tensor);
      if (recording && tensor.defined() &&
          (verdict.has_value() || listening_to_all())) {
        tell(
            dropped ? "cured" : "write",
            name,
            tensor,
            verdict.has_value() ? name_of(*verdict) : "");
      }
    }
    try {
      if (tensors.size() == 1 && written.isTensor()) {
        call_on(tensors.front(), op, keys, stack);
      } else {
        call_stock(op, keys, stack);
      }
    } catch (const std::exception& error) {
      if (recording && !tensors.empty()) {
        tell("failed", name, tensors.front(), error.what());
      }
      throw;
    }
  }
};

std::unique_ptr<Overrides> guard_in_place_operators() {
  auto overrides = std::make_unique<Overrides>();
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (op.has_value() && op->hasSchema() &&
        op->schema().getNamespace() == "aten" &&
        writes_in_place(op->schema())) {
      overrides->add<InPlaceGuard>(*op);
    }
  }
  watch_siblings(*overrides);
  return overrides;
}

// There while somebody wants them.
std::shared_ptr<Overrides> in_place_guards() {
  static std::mutex lock;
  static std::weak_ptr<Overrides> shared;
  const std::lock_guard<std::mutex> guard(lock);
  std::shared_ptr<Overrides> guards = shared.lock();
  if (guards == nullptr) {
    guards = guard_in_place_operators();
    shared = guards;
  }
  return guards;
}

class InPlaceCure final : public Cure {
 public:
  explicit InPlaceCure(std::atomic<bool>& on)
      : guards_(in_place_guards()), on_(on) {
    on_ = true;
  }
  ~InPlaceCure() override {
    on_ = false;
  }

 private:
  std::shared_ptr<Overrides> guards_;
  std::atomic<bool>& on_;
};

class InPlaceWatch final : public Cure {
 public:
  InPlaceWatch() : guards_(in_place_guards()) {}

 private:
  std::shared_ptr<Overrides> guards_;
};

} // namespace

bool writes_in_place(const c10::FunctionSchema& schema) {
  const std::string& name = schema.name();
  if (schema.arguments().empty() || name.empty() || name.back() != '_' ||
      metadata_operators().count(name) != 0) {
    return false;
  }
  const c10::Argument& first = schema.arguments().front();
  return first.alias_info() != nullptr && first.alias_info()->isWrite();
}

std::unique_ptr<Cure> cure_hidden_bases() {
  return std::make_unique<InPlaceCure>(hidden_bases_on);
}

std::unique_ptr<Cure> cure_slice_updates() {
  return std::make_unique<InPlaceCure>(slice_updates_on);
}

std::unique_ptr<Cure> watch_in_place_calls() {
  return std::make_unique<InPlaceWatch>();
}

} // namespace noalias
