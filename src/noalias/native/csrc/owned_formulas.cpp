#include "owned_formulas.h"

#include <torch/csrc/autograd/graph_task.h>

#include <utility>

namespace noalias::owned {

namespace {

namespace formulas = torch::autograd::generated;
using torch::autograd::SavedVariable;

template <typename... Saved>
bool runs_only_its_formula(const Node& node, const Saved&... saved) {
  // The accessors of tensor hooks are not const.
  auto& hooks = const_cast<Node&>(node);
  return node.pre_hooks().empty() && node.post_hooks().empty() &&
      hooks.tensor_pre_hooks().empty() && hooks.retains_grad_hooks().empty() &&
      !(saved.has_hooks() || ...);
}

// The node as its own type, or null.
template <typename T>
const T* as(const Node& node) {
  return typeid(node) == typeid(T) ? static_cast<const T*>(&node) : nullptr;
}

// A product whose factors both want a gradient multiplies the incoming one twice.
// Which factor comes first is the generated code's business, so calls are counted.
// A node runs once in a backward call, and nothing but its formula does (see
// Note [The last use of a gradient]), so the second call is the last.
bool is_second_call(const Node& node, const at::Tensor& gradient) {
  struct Call {
    int backward = -1;
    const Node* node = nullptr;
    const at::Tensor* gradient = nullptr;
    bool operator==(const Call& other) const {
      return backward == other.backward && node == other.node &&
          gradient == other.gradient;
    }
  };
  static thread_local Call first;
  const Call call{
      torch::autograd::get_current_graph_task_id(), &node, &gradient};
  if (call == first) {
    first = Call();
    return true;
  }
  first = call;
  return false;
}

} // namespace

bool InMultiplication::last_use(const Node& node, const at::Tensor& gradient) {
  if (const auto* mul = as<formulas::MulBackward0>(node)) {
    if (!runs_only_its_formula(node, mul->self_, mul->other_)) {
      return false;
    }
    return !(node.task_should_compute_output(0) &&
             node.task_should_compute_output(1)) ||
        is_second_call(node, gradient);
  }
  if (const auto* exp = as<formulas::ExpBackward0>(node)) {
    return runs_only_its_formula(node, exp->result_);
  }
  if (const auto* abs = as<formulas::AbsBackward0>(node)) {
    return runs_only_its_formula(node, abs->self_);
  }
  if (const auto* sin = as<formulas::SinBackward0>(node)) {
    return runs_only_its_formula(node, sin->self_);
  }
  if (const auto* cos = as<formulas::CosBackward0>(node)) {
    return runs_only_its_formula(node, cos->self_);
  }
  return false;
}

bool InDivision::last_use(const Node& node, const at::Tensor& /*gradient*/) {
  if (const auto* div = as<formulas::DivBackward0>(node)) {
    return !node.task_should_compute_output(1) &&
        runs_only_its_formula(node, div->self_, div->other_);
  }
  if (const auto* log = as<formulas::LogBackward0>(node)) {
    return runs_only_its_formula(node, log->self_);
  }
  if (const auto* sqrt = as<formulas::SqrtBackward0>(node)) {
    return runs_only_its_formula(node, sqrt->result_);
  }
  return false;
}

bool InNegation::last_use(const Node& node, const at::Tensor& /*gradient*/) {
  if (as<formulas::SubBackward0>(node) != nullptr) {
    return !node.task_should_compute_output(0) && runs_only_its_formula(node);
  }
  return (as<formulas::NegBackward0>(node) != nullptr ||
          as<formulas::RsubBackward1>(node) != nullptr) &&
      runs_only_its_formula(node);
}

bool InMaskedFill::last_use(const Node& node, const at::Tensor& /*gradient*/) {
  const auto* fill = as<formulas::MaskedFillBackward0>(node);
  return fill != nullptr && runs_only_its_formula(node, fill->mask_);
}

} // namespace noalias::owned
