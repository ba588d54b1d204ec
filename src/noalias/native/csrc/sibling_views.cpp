#include "sibling_views.h"

#include "compat_engine.h"
#include "counters.h"
#include "gradient_proof.h"
#include "override.h"
#include "region.h"
#include "stock_kernel.h"
#include "zero_signs.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/diagonal_backward_ops.h>
#include <ATen/ops/select_backward_ops.h>
#include <ATen/ops/slice_backward_ops.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/generated/Functions.h>

#include <optional>
#include <string>
#include <typeinfo>
#include <utility>

namespace noalias {

namespace {

using at::Tensor;
using torch::autograd::AnomalyMode;
using torch::autograd::GraphTask;
namespace generated = torch::autograd::generated;

// Note [A part of a gradient sum]
//
// Reading T slices of one base makes T zero-filled gradients of the base's size
// in backward, which the engine adds up: O(T * T). The sum they are added to
// waits in the engine all the while (Note [Gradients that wait]). So the first
// part to arrive starts the sum, as in stock PyTorch, and the backward of every
// further one adds its slice there and returns no gradient. The graph, its nodes
// and the order in which they run are stock's, and so is every addition except
// those of zeros; see Note [Negative zeros] for what these do.
//
// All of it happens in the kernel of the backward operator, which must be sure
// that what it returns goes to the sum it wrote to. It knows when the running
// node is of the type that calls the operator once and returns its result, and no
// hook of that node can be the caller instead.

// No subclass, mode, tracer or functorch level takes part, and nothing is
// recorded: what stock's kernel would do is to call the one below.
bool is_plain_backward(c10::DispatchKeySet keys, const Tensor& part) {
  using c10::DispatchKey;
  constexpr c10::DispatchKeySet observers({
      DispatchKey::Python,
      DispatchKey::Functionalize,
      DispatchKey::FuncTorchBatched,
      DispatchKey::FuncTorchGradWrapper,
      DispatchKey::FuncTorchDynamicLayerBackMode,
  });
  return !c10::GradMode::is_enabled() && !keys.has_any(observers) &&
      !c10::impl::tls_is_dispatch_key_included(
          DispatchKey::FuncTorchDynamicLayerFrontMode) &&
      is_ordinary_gradient(part) &&
      part.unsafeGetTensorImpl()->autograd_meta() == nullptr;
}

// Where the running node's result goes; null if the caller may be another.
template <typename BackwardNode>
const Edge* edge_of_caller(Node* node) {
  if (node == nullptr || typeid(*node) != typeid(BackwardNode) ||
      node->num_outputs() != 1 || !node->next_edge(0).is_valid() ||
      has_hooks(*node) || AnomalyMode::is_enabled()) {
    return nullptr;
  }
  return &node->next_edge(0);
}

// Makes the waiting sum one that may be written.
bool take_over(Tensor& sum) {
  if (!is_plain(sum)) {
    return false;
  }
  if (!is_ours_beyond_python(sum)) {
    // Somebody else holds it: stock would add into a new tensor, too.
    sum = sum.clone(at::MemoryFormat::Preserve);
  }
  return true;
}

// View is one of the structs below.
template <typename View>
bool add_to_sum(
    const WaitingGradient& waiting,
    const SumKey& key,
    const Tensor& part,
    c10::SymIntArrayRef sizes,
    const View& view) {
  Tensor* sum = waiting.sum();
  if (sum == nullptr || sum->scalar_type() != part.scalar_type() ||
      sum->device() != part.device() || sum->sym_sizes() != sizes ||
      !take_over(*sum)) {
    return false;
  }
  add_zero_filled(key, *sum, view.region(*sum), part);
  count(counters().parts_added);
  return true;
}

// The kernel's work where is_plain_backward.
template <typename View>
Tensor plain_backward(
    c10::DispatchKeySet keys,
    const Tensor& part,
    c10::SymIntArrayRef sizes,
    const View& view) {
  const at::AutoDispatchBelowADInplaceOrView below;
  GraphTask* task = running_graph_task();
  const auto node = torch::autograd::get_current_node();
  const Edge* edge = task == nullptr
      ? nullptr
      : edge_of_caller<typename View::BackwardNode>(node.get());
  if (edge == nullptr) {
    return view.zero_filled(keys & c10::after_autograd_keyset, part, sizes);
  }
  const SumKey key{task->id_, edge->function.get(), edge->input_nr};
  if (add_to_sum(WaitingGradient(*task, *node, *edge), key, part, sizes, view)) {
    return {};
  }
  Tensor gradient =
      view.zero_filled(keys & c10::after_autograd_keyset, part, sizes);
  remember_zero_filled(key, gradient, view.region(gradient));
  return gradient;
}

struct Select {
  using BackwardNode = generated::SelectBackward0;
  using Operator = at::_ops::select_backward;
  int64_t dim;
  c10::SymInt index;

  Region region(const Tensor& whole) const {
    return select_region(whole, dim, index.expect_int());
  }
  Tensor zero_filled(
      c10::DispatchKeySet keys,
      const Tensor& part,
      c10::SymIntArrayRef sizes) const {
    return Operator::redispatch(keys, part, sizes, dim, index);
  }
};

struct Slice {
  using BackwardNode = generated::SliceBackward0;
  using Operator = at::_ops::slice_backward;
  int64_t dim;
  c10::SymInt start;
  c10::SymInt end;
  c10::SymInt step;

  Region region(const Tensor& whole) const {
    return slice_region(
        whole,
        dim,
        start.expect_int(),
        end.expect_int(),
        step.expect_int());
  }
  Tensor zero_filled(
      c10::DispatchKeySet keys,
      const Tensor& part,
      c10::SymIntArrayRef sizes) const {
    return Operator::redispatch(keys, part, sizes, dim, start, end, step);
  }
};

struct Diagonal {
  using BackwardNode = generated::DiagonalBackward0;
  using Operator = at::_ops::diagonal_backward;
  int64_t offset;
  int64_t dim1;
  int64_t dim2;

  Region region(const Tensor& whole) const {
    return diagonal_region(whole, offset, dim1, dim2);
  }
  Tensor zero_filled(
      c10::DispatchKeySet keys,
      const Tensor& part,
      c10::SymIntArrayRef sizes) const {
    return Operator::redispatch(keys, part, sizes, offset, dim1, dim2);
  }
};

template <typename View, typename... Arguments>
Tensor backward(
    c10::DispatchKeySet keys,
    const Tensor& part,
    c10::SymIntArrayRef sizes,
    Arguments... arguments) {
  if (is_plain_backward(keys, part)) {
    return plain_backward(keys, part, sizes, View{arguments...});
  }
  return StockKernel<typename View::Operator>::call(
      keys, part, sizes, arguments...);
}

class SiblingViews final : public Cure {
 public:
  SiblingViews() {
    guard<Select, int64_t, c10::SymInt>();
    guard<Slice, int64_t, c10::SymInt, c10::SymInt, c10::SymInt>();
    guard<Diagonal, int64_t, int64_t, int64_t>();
  }

 private:
  // Unboxed: the call is as cheap as PyTorch's own.
  template <typename View, typename... Arguments>
  void guard() {
    using Stock = StockKernel<typename View::Operator>;
    const auto op = Stock::handle();
    if (Stock::is_reachable(op)) {
      overrides_.add_function(op, TORCH_FN((backward<View, Arguments...>)));
    }
  }

  Overrides overrides_;
};

} // namespace

std::unique_ptr<Cure> cure_sibling_views() {
  return std::make_unique<SiblingViews>();
}

} // namespace noalias
