#include "hidden_base.h"

#include "counters.h"
#include "slice_update.h"

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/variable.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <string_view>
#include <type_traits>
#include <unordered_set>

namespace noalias {

namespace {

using torch::autograd::AutogradMeta;
using torch::autograd::CreationMeta;
using torch::autograd::Edge;
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
// subclass, a mode, a tracer, a functorch level. They get stock PyTorch.
bool is_observed_below(c10::DispatchKeySet keys) {
  using c10::DispatchKey;
  constexpr c10::DispatchKeySet observers({
      DispatchKey::Python,
      DispatchKey::Functionalize,
      DispatchKey::FuncTorchBatched,
      DispatchKey::FuncTorchGradWrapper,
      DispatchKey::FuncTorchDynamicLayerBackMode,
  });
  return keys.has_any(observers);
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

// Reading the history of a view whose base was written to regenerates it, and
// stock refuses that for views that were not made by one plain operator.
bool history_is_readable(
    const Tensor& view,
    const DifferentiableViewMeta& meta) {
  const auto creation = meta.get_creation_meta();
  if (creation == CreationMeta::DEFAULT) {
    return true;
  }
  const Tensor& base = meta.get_backward_view().base_;
  if (creation == CreationMeta::NO_GRAD_MODE && base.requires_grad()) {
    // Made under no_grad from something that has history: whether gradients
    // should pass is for the user to say, so stock's error stands.
    return false;
  }
  return meta.get_attr_version() == view._version();
}

// Tensors have a gradient dtype of their own from 2.10 or 2.11 on.
template <typename Meta, typename = void>
struct GradDtype {
  static void carry(const Meta& /*from*/, Meta& /*to*/) {}
};
template <typename Meta>
struct GradDtype<
    Meta,
    std::void_t<decltype(std::declval<Meta&>().grad_dtype_)>> {
  static void carry(const Meta& from, Meta& to) {
    to.grad_dtype_ = from.grad_dtype_;
    to.allow_grad_dtype_mismatch_ = from.allow_grad_dtype_mismatch_;
  }
};

// Which cures want to hear of in-place calls.
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
    if (written.isTensor()) {
      look_at(written.toTensor(), keys, *stack, count);
      if (slice_updates_on.load(std::memory_order_relaxed) &&
          is_recorded_view(written.toTensor(), keys)) {
        const Tensor view = written.toTensor();
        SliceUpdateWatch watch(view);
        call_stock(op, keys, stack);
        watch.finish();
        return;
      }
    } else {
      for (const Tensor& tensor : written.toTensorVector()) {
        look_at(tensor, keys, *stack, count);
      }
    }
    call_stock(op, keys, stack);
  }

 private:
  // A differentiable view, written while history is recorded.
  static bool is_recorded_view(
      const Tensor& written,
      c10::DispatchKeySet keys) {
    if (!written.defined()) {
      return false;
    }
    const DifferentiableViewMeta* meta = impl::get_view_autograd_meta(written);
    return meta != nullptr && meta->has_bw_view() &&
        c10::GradMode::is_enabled() && !is_observed_below(keys);
  }

  static void look_at(
      const Tensor& written,
      c10::DispatchKeySet keys,
      const Stack& stack,
      size_t count) {
    if (!hidden_bases_on.load(std::memory_order_relaxed) ||
        !is_recorded_view(written, keys) ||
        !any_requires_grad(
            c10::ArrayRef<c10::IValue>(stack).slice(stack.size() - count))) {
      return;
    }
    noalias::count(counters().seen);
    const DifferentiableViewMeta* meta = impl::get_view_autograd_meta(written);
    const Verdict verdict = verdict_on(written, *meta);
    if (verdict == Verdict::kHidden) {
      drop_view(written);
      noalias::count(counters().cured);
    } else {
      noalias::count(counters().kept[static_cast<size_t>(verdict)]);
    }
  }
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

Verdict verdict_on(const Tensor& view, const DifferentiableViewMeta& meta) {
  const Verdict verdict = prove_hidden(view, meta);
  return verdict == Verdict::kHidden && !history_is_readable(view, meta)
      ? Verdict::kStale
      : verdict;
}

// Note [Dropping the view relationship]
//
// What PyTorch itself does with _unsafe_view, less its two dangers: the version
// counter stays the one that base and view share, so whatever saved the view
// still notices the write; and nothing is assumed about the producer of the base,
// it has been looked at. History, hooks, retain_grad and tangent move along: to
// everybody who holds the view it is the same tensor, with no base.
void drop_view(const Tensor& view) {
  auto* before = impl::get_view_autograd_meta(view);
  TORCH_INTERNAL_ASSERT(before != nullptr && before->has_bw_view());
  // Through the accessor: it brings a history up to date that an in-place
  // operator on the base has left behind.
  const Edge history = before->requires_grad()
      ? Edge(view.grad_fn(), before->output_nr_)
      : Edge();
  auto after = std::make_unique<AutogradMeta>(
      view.unsafeGetTensorImpl(), /*requires_grad=*/false, history);
  after->name_ = std::move(before->name_);
  after->grad_ = std::move(before->grad_);
  after->fw_grad_ = std::move(before->fw_grad_);
  after->hooks_ = std::move(before->hooks_);
  after->cpp_hooks_list_ = std::move(before->cpp_hooks_list_);
  after->retains_grad_ = before->retains_grad_;
  GradDtype<AutogradMeta>::carry(*before, *after);
  view.unsafeGetTensorImpl()->set_autograd_meta(std::move(after));
}

namespace {

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
  return overrides;
}

// One set of guards for all cures that want them, there while one does.
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

} // namespace

std::unique_ptr<Cure> cure_hidden_bases() {
  return std::make_unique<InPlaceCure>(hidden_bases_on);
}

std::unique_ptr<Cure> cure_slice_updates() {
  return std::make_unique<InPlaceCure>(slice_updates_on);
}

} // namespace noalias
