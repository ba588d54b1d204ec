#include "sibling_views.h"

#include "compat_engine.h"
#include "counters.h"
#include "gradient_proof.h"
#include "zero_signs.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/select.h>
#include <ATen/ops/slice.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/generated/Functions.h>

#include <optional>
#include <typeinfo>
#include <utility>

namespace noalias {

namespace {

using at::Tensor;
using torch::autograd::AnomalyMode;
using torch::autograd::GraphTask;
namespace generated = torch::autograd::generated;

// What the three view operators differ in: their node, and where in the base's
// gradient a part lies. `arguments` are those of the backward operator.
struct Select {
  using BackwardNode = generated::SelectBackward0;
  static constexpr const char* name = "aten::select_backward";
  static Tensor part(
      const Tensor& sum,
      c10::ArrayRef<c10::IValue> arguments) {
    return sum.select(arguments[2].toInt(), arguments[3].toInt());
  }
};

struct Slice {
  using BackwardNode = generated::SliceBackward0;
  static constexpr const char* name = "aten::slice_backward";
  static Tensor part(
      const Tensor& sum,
      c10::ArrayRef<c10::IValue> arguments) {
    return sum.slice(
        arguments[2].toInt(),
        arguments[3].toInt(),
        arguments[4].toInt(),
        arguments[5].toInt());
  }
};

struct Diagonal {
  using BackwardNode = generated::DiagonalBackward0;
  static constexpr const char* name = "aten::diagonal_backward";
  static Tensor part(
      const Tensor& sum,
      c10::ArrayRef<c10::IValue> arguments) {
    return sum.diagonal(
        arguments[2].toInt(), arguments[3].toInt(), arguments[4].toInt());
  }
};

bool has_hooks(Node& node) {
  return !node.pre_hooks().empty() || !node.post_hooks().empty() ||
      !node.tensor_pre_hooks().empty() || !node.retains_grad_hooks().empty();
}

bool all_integers(c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& argument : arguments) {
    if (!argument.isInt()) {
      return false;
    }
  }
  return true;
}

// A subclass, mode, tracer or functorch level takes part, or gradients are
// recorded: stock's business.
bool is_plain_backward(c10::DispatchKeySet keys) {
  using c10::DispatchKey;
  constexpr c10::DispatchKeySet observers({
      DispatchKey::Python,
      DispatchKey::Functionalize,
      DispatchKey::FuncTorchBatched,
      DispatchKey::FuncTorchGradWrapper,
      DispatchKey::FuncTorchDynamicLayerBackMode,
  });
  return !c10::GradMode::is_enabled() && !AnomalyMode::is_enabled() &&
      !keys.has_any(observers) &&
      !c10::impl::tls_is_dispatch_key_included(
          DispatchKey::FuncTorchDynamicLayerFrontMode);
}

// Note [A part of a gradient sum]
//
// Reading T slices of one base makes T zero-filled gradients of the base's size
// in backward, which the engine adds up: O(T * T). The sum they are added to
// waits in the engine all the while. So the first part to arrive starts it, as in
// stock PyTorch, and the backward of every further one adds its slice there and
// returns no gradient. The graph, the nodes and the order in which they run are
// stock's, and so is every addition except those of zeros; see Note [Negative
// zeros] for what these do.
//
// This is the backward operator's kernel, so it must be sure that what it returns
// goes to the sum it wrote to: it is the running node that called it, of the type
// that calls it once and hands on its result, and no hook of that node could have
// called it instead.
template <typename View>
class PartGuard final : public Guard {
 public:
  using Guard::Guard;

  void operator()(
      const c10::OperatorHandle& op,
      c10::DispatchKeySet keys,
      Stack* stack) override {
    const size_t count = op.schema().arguments().size();
    const auto arguments =
        c10::ArrayRef<c10::IValue>(*stack).slice(stack->size() - count);
    if (is_plain_backward(keys) && add_to_sum(arguments)) {
      stack->erase(stack->end() - static_cast<int64_t>(count), stack->end());
      stack->emplace_back(Tensor());
      return;
    }
    call_stock(op, keys, stack);
  }

 private:
  static bool add_to_sum(c10::ArrayRef<c10::IValue> arguments) {
    const Tensor& part = arguments[0].toTensor();
    GraphTask* task = running_graph_task();
    if (task == nullptr || !part.defined()) {
      return false;
    }
    const auto node = torch::autograd::get_current_node();
    if (node == nullptr ||
        typeid(*node) != typeid(typename View::BackwardNode) ||
        has_hooks(*node)) {
      return false;
    }
    const Edge& edge = node->next_edge(0);
    if (!edge.is_valid()) {
      return false;
    }
    const WaitingGradient waiting(*task, *node, edge);
    if (waiting.sum() == nullptr) {
      return false;
    }
    const Tensor& sum = *waiting.sum();
    if (!fits(sum, part, arguments)) {
      return false;
    }
    const at::AutoDispatchBelowADInplaceOrView below;
    clear_negative_zeros(
        {task->id_, edge.function.get(), edge.input_nr}, sum);
    View::part(sum, arguments).add_(part);
    count(counters().parts_added);
    return true;
  }

  static bool fits(
      const Tensor& sum,
      const Tensor& part,
      c10::ArrayRef<c10::IValue> arguments) {
    return is_plain(sum) && sum.scalar_type() == part.scalar_type() &&
        sum.device() == part.device() && is_ordinary_gradient(part) &&
        arguments[1].isIntList() &&
        sum.sizes() == arguments[1].toDimVector() &&
        all_integers(arguments.slice(2)) && is_ours_beyond_python(sum);
  }
};

template <typename View>
void guard(Overrides& overrides) {
  const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow(View::name, "");
  overrides.add<PartGuard<View>>(op);
}

} // namespace

std::unique_ptr<Cure> cure_sibling_views() {
  auto overrides = std::make_unique<Overrides>();
  guard<Select>(*overrides);
  guard<Slice>(*overrides);
  guard<Diagonal>(*overrides);
  return overrides;
}

} // namespace noalias
