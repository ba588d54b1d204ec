#include "linear_nodes.h"

#include "compiled_call.h"
#include "linear_products.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/add.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include <array>
#include <mutex>

namespace noalias {

namespace {

using torch::dynamo::autograd::CompiledNodeArgs;
using torch::dynamo::autograd::PackedArgs;
using torch::dynamo::autograd::SwapSavedVariables;

// What a node has saved, unpacked, and what is asked of it.
struct FirstOrder {
  Tensor input;
  Tensor weight;
  bool as_composite;
  Mask mask;
  LinearEdges edges;
  bool input_transposed;
  bool weight_transposed;
  bool on_pattern;
  bool plain_bias;
  bool flat_bias;
  std::vector<c10::SymInt> bias_shape;
};

Mask asked_of(const Node& node, const LinearEdges& edges) {
  return {
      node.task_should_compute_output(edges.input()),
      node.task_should_compute_output(edges.weight()),
      node.task_should_compute_output(LinearEdges::bias)};
}

// PyTorch accumulates COO and CSR into .grad and fails on other sparse layouts
// with a message about contiguity (torch/csrc/autograd/functions/
// accumulate_grad.h, 2.9 to 2.15). torch.autograd.grad does not accumulate.
void check_can_accumulate(const Edge& edge, const Tensor& weight) {
  if (weight.layout() == c10::kSparse || weight.layout() == c10::kSparseCsr ||
      dynamic_cast<torch::autograd::AccumulateGrad*>(edge.function.get()) ==
          nullptr) {
    return;
  }
  // Empty: everything runs. Else: what is needed, and not only captured.
  const auto* plan = torch::autograd::get_current_graph_task_exec_info();
  const bool all = plan == nullptr || plan->empty();
  const auto needed = [&] {
    const auto found = plan->find(edge.function.get());
    return found != plan->end() && found->second.needed_;
  };
  TORCH_CHECK(
      !all && !needed(),
      "noalias.linear: a gradient of layout ",
      weight.layout(),
      " cannot be accumulated into .grad, PyTorch has no sum for it; ask "
      "torch.autograd.grad for it, or use "
      "noalias.linear.sparse.sparse_weight_gradients('dense')");
}

// From the composite's form; see Note [What hooks on saved tensors are given].
void leave_composite_form(FirstOrder& saved, const Tensor& grad) {
  if (saved.input.defined()) {
    saved.input = restore(saved.input, grad, saved.input.sym_size(-1));
  }
  if (saved.weight.defined()) {
    saved.weight = saved.weight.t();
  }
}

// Of input, weight and bias.
std::array<Tensor, 3> gradients_of(const Tensor& grad, const FirstOrder& saved) {
  std::array<Tensor, 3> result;
  Mask mask = {
      saved.mask[0], saved.mask[1], saved.mask[2] && saved.plain_bias};
  // linear_backward sees how its operands lie. Where it is not given the one
  // that decides, and that one lay transposed, the product is taken here.
  if (mask[0] && saved.input_transposed && !saved.input.defined()) {
    result[0] = restore(
        grad_input_rows(rows_of(grad), saved.weight, true),
        grad,
        saved.weight.sym_size(1));
    mask[0] = false;
  }
  if (mask[1] && saved.on_pattern) {
    result[1] = pattern_gradient(grad, saved.input, saved.weight);
    mask[1] = false;
  } else if (mask[1] && saved.weight_transposed && !saved.weight.defined()) {
    result[1] = grad_weight_product(rows_of(grad), rows_of(saved.input), true);
    mask[1] = false;
  }
  if (mask[0] || mask[1] || mask[2]) {
    auto [input, weight, bias] = call_linear_backward(
        given(saved.input), grad, given(saved.weight), mask);
    result[0] = mask[0] ? std::move(input) : std::move(result[0]);
    result[1] = mask[1] ? std::move(weight) : std::move(result[1]);
    result[2] = std::move(bias);
  }
  if (saved.mask[2] && !saved.plain_bias) {
    result[2] = at::sum_to(
        saved.flat_bias ? rows_of(grad) : grad, saved.bias_shape);
  }
  return result;
}

// In the order of the edges.
variable_list gradients(const variable_list& grads, FirstOrder&& saved) {
  variable_list result(3);
  if (grads[0].defined()) {
    if (saved.as_composite) {
      leave_composite_form(saved, grads[0]);
    }
    auto [input, weight, bias] = gradients_of(grads[0], saved);
    result[saved.edges.input()] = std::move(input);
    result[saved.edges.weight()] = std::move(weight);
    result[LinearEdges::bias] = std::move(bias);
  }
  return result;
}

PackedArgs pack(const FirstOrder& saved) {
  PackedArgs args;
  args.pack(saved.input);
  args.pack(saved.weight);
  args.pack(saved.as_composite);
  args.pack(std::vector<bool>(saved.mask.begin(), saved.mask.end()));
  args.pack(saved.edges.weight_first);
  args.pack(saved.input_transposed);
  args.pack(saved.weight_transposed);
  args.pack(saved.on_pattern);
  args.pack(saved.plain_bias);
  args.pack(saved.flat_bias);
  args.pack(saved.bias_shape);
  return args;
}

FirstOrder unpack_first(PackedArgs args) {
  FirstOrder saved;
  saved.input = args.unpack<Tensor>();
  saved.weight = args.unpack<Tensor>();
  saved.as_composite = args.unpack<bool>();
  saved.mask = unpack_mask(args);
  saved.edges.weight_first = args.unpack<bool>();
  saved.input_transposed = args.unpack<bool>();
  saved.weight_transposed = args.unpack<bool>();
  saved.on_pattern = args.unpack<bool>();
  saved.plain_bias = args.unpack<bool>();
  saved.flat_bias = args.unpack<bool>();
  saved.bias_shape = args.unpack<std::vector<c10::SymInt>>();
  return saved;
}

} // namespace

std::string LinearBackward::name() const {
  return "LinearBackward0";
}

void LinearBackward::release_variables() {
  std::lock_guard<std::mutex> lock(mutex_);
  input_.reset_data();
  weight_.reset_data();
  input_memory_.reset();
  weight_memory_.reset();
}

variable_list LinearBackward::apply(variable_list&& grads) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (on_pattern_ && task_should_compute_output(edges_.weight())) {
    check_can_accumulate(next_edge(edges_.weight()), weight_.unpack());
  }
  return gradients(
      grads,
      FirstOrder{
          under_held(input_.unpack(), input_memory_),
          under_held(weight_.unpack(), weight_memory_),
          saved_as_composite_,
          asked_of(*this, edges_),
          edges_,
          input_transposed_,
          weight_transposed_,
          on_pattern_,
          plain_bias_,
          flat_bias_,
          bias_shape_});
}

void LinearBackward::compiled_args(CompiledNodeArgs& args) const {
  args.collect(input_, /*is_output=*/false);
  args.collect(weight_, /*is_output=*/false);
  args.collect(saved_as_composite_);
  args.collect(edges_.weight_first);
  args.collect(input_transposed_);
  args.collect(weight_transposed_);
  args.collect(on_pattern_);
  args.collect(plain_bias_);
  args.collect(flat_bias_);
  args.collect(bias_shape_);
}

variable_list LinearBackward::apply_with_saved(
    const variable_list& grads,
    SwapSavedVariables& saved) {
  saved.before(input_);
  saved.before(weight_);
  saved.before(bias_shape_);
  const FirstOrder unpacked{
      input_.unpack(),
      weight_.unpack(),
      saved_as_composite_,
      asked_of(*this, edges_),
      edges_,
      input_transposed_,
      weight_transposed_,
      on_pattern_,
      plain_bias_,
      flat_bias_,
      bias_shape_};
  auto result = compiled_call(
      *this,
      grads,
      saved,
      pack(unpacked),
      [](const variable_list& inputs, const std::vector<c10::IValue>& args) {
        return gradients(inputs, unpack_first(PackedArgs(args)));
      });
  saved.after(input_);
  saved.after(weight_);
  saved.after(bias_shape_);
  return result;
}

} // namespace noalias
