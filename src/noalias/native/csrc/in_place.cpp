#include "in_place.h"

#include "in_place_call.h"
#include "in_place_unboxed.h"
#include "sibling_parts.h"

#include <atomic>
#include <mutex>
#include <string_view>
#include <unordered_set>

namespace noalias {

namespace {

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

// The kernel of an in-place operator of any schema.
class InPlaceGuard final : public Guard {
 public:
  using Guard::Guard;

  void operator()(
      const c10::OperatorHandle& op,
      c10::DispatchKeySet keys,
      Stack* stack) override {
    const size_t count = op.schema().arguments().size();
    const c10::IValue& written = (*stack)[stack->size() - count];
    const auto any_requires_grad = [&] {
      return noalias::any_requires_grad(
          c10::ArrayRef<c10::IValue>(*stack).slice(stack->size() - count));
    };
    const auto stock = [&] { call_stock(op, keys, stack); };
    const InPlaceCall call{op, keys, any_requires_grad, stock};
    if (!written.isTensor()) {
      call.on(written.toTensorVector());
      return;
    }
    const auto* at_stake =
        view_at_stake(written.toTensor(), keys, any_requires_grad);
    if (may_matter(written.toTensor(), at_stake, keys)) {
      const Tensor kept = written.toTensor();
      call.on(kept, at_stake);
    } else {
      stock();
    }
  }
};

std::unique_ptr<Overrides> guard_in_place_operators() {
  auto overrides = std::make_unique<Overrides>();
  const auto guarded = guard_without_boxing(*overrides);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (op.has_value() && op->hasSchema() &&
        op->schema().getNamespace() == "aten" &&
        writes_in_place(op->schema()) &&
        guarded.count(c10::toString(name)) == 0) {
      overrides->add<InPlaceGuard>(*op);
    }
  }
  watch_siblings(*overrides);
  return overrides;
}

// The guards of all in-place operators, there while somebody uses them. One lock
// for coming and going: guards that came while older ones were still there would
// take those for PyTorch's kernels, and call them after they are gone.
struct InPlaceGuards {
  std::mutex lock;
  std::unique_ptr<Overrides> overrides;
  size_t users = 0;
};

// Lives until the process ends: its users are destroyed after all statics.
InPlaceGuards& in_place_guards() {
  static auto& guards = *std::make_unique<InPlaceGuards>().release();
  return guards;
}

class InPlaceWatch : public Cure {
 public:
  InPlaceWatch() {
    InPlaceGuards& guards = in_place_guards();
    const std::lock_guard<std::mutex> lock(guards.lock);
    if (guards.users == 0) {
      guards.overrides = guard_in_place_operators();
    }
    ++guards.users;
  }
  ~InPlaceWatch() override {
    InPlaceGuards& guards = in_place_guards();
    const std::lock_guard<std::mutex> lock(guards.lock);
    if (--guards.users == 0) {
      guards.overrides.reset();
    }
  }
};

class InPlaceCure final : public InPlaceWatch {
 public:
  explicit InPlaceCure(std::atomic<bool>& on) : on_(on) {
    on_ = true;
  }
  ~InPlaceCure() override {
    on_ = false;
  }

 private:
  std::atomic<bool>& on_;
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

void keep_stock_effects(bool on) {
  effects_kept.store(on, std::memory_order_relaxed);
}

std::unique_ptr<Cure> watch_in_place_calls() {
  return std::make_unique<InPlaceWatch>();
}

} // namespace noalias
