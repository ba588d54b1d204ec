#include "linear_nodes.h"

#include "compiled_call.h"
#include "linear_products.h"

#include <torch/csrc/dynamo/compiled_autograd.h>

#include <mutex>

namespace noalias {

namespace {

using torch::dynamo::autograd::CompiledNodeArgs;
using torch::dynamo::autograd::PackedArgs;
using torch::dynamo::autograd::SwapSavedVariables;

// What a node has saved, unpacked, and what is asked of it.
struct SecondOrder {
  LinearGradient of;
  Tensor input;
  Tensor grad_output;
  Tensor weight;
  std::vector<c10::SymInt> grad_output_sizes;
  Mask mask;
};

Mask asked_of(const LinearBackwardBackward& node) {
  return {
      node.task_should_compute_output(0),
      node.task_should_compute_output(1),
      node.task_should_compute_output(2)};
}

// The derivative of linear_backward is made of linear and of itself: with v_x,
// v_W and v_b for the gradients that arrive at its three outputs,
//   of x:  g conj(v_W)   = linear_backward(.., g, v_W)[0]
//   of W:  g^T conj(v_x) = linear_backward(v_x, g, ..)[1]
//   of g:  v_x W^T = linear(v_x, W),  x v_W^T = linear(x, v_W)  and  v_b,
// which the engine adds up.
variable_list gradients(const variable_list& grads, const SecondOrder& saved) {
  const Tensor& v = grads[0];
  variable_list result(3);
  if (!v.defined()) {
    return result;
  }
  switch (saved.of) {
    case LinearGradient::kInput:
      if (saved.mask[2]) {
        result[2] = std::get<1>(call_linear_backward(
            v, saved.grad_output, std::nullopt, {false, true, false}));
      }
      if (saved.mask[1]) {
        result[1] = call_linear(v, saved.weight, std::nullopt);
      }
      break;
    case LinearGradient::kWeight:
      if (saved.mask[0]) {
        result[0] = std::get<0>(call_linear_backward(
            std::nullopt, saved.grad_output, v, {true, false, false}));
      }
      if (saved.mask[1]) {
        result[1] = call_linear(saved.input, v, std::nullopt);
      }
      break;
    case LinearGradient::kBias:
      result[1] = v.expand_symint(saved.grad_output_sizes);
      break;
  }
  return result;
}

PackedArgs pack(const SecondOrder& saved) {
  PackedArgs args;
  args.pack(static_cast<int64_t>(saved.of));
  args.pack(saved.input);
  args.pack(saved.grad_output);
  args.pack(saved.weight);
  args.pack(saved.grad_output_sizes);
  args.pack(std::vector<bool>(saved.mask.begin(), saved.mask.end()));
  return args;
}

SecondOrder unpack_second(PackedArgs args) {
  SecondOrder saved{};
  saved.of = static_cast<LinearGradient>(args.unpack<int64_t>());
  saved.input = args.unpack<Tensor>();
  saved.grad_output = args.unpack<Tensor>();
  saved.weight = args.unpack<Tensor>();
  saved.grad_output_sizes = args.unpack<std::vector<c10::SymInt>>();
  saved.mask = unpack_mask(args);
  return saved;
}

} // namespace

std::string LinearBackwardBackward::name() const {
  return "LinearBackwardBackward0";
}

void LinearBackwardBackward::release_variables() {
  std::lock_guard<std::mutex> lock(mutex_);
  input_.reset_data();
  grad_output_.reset_data();
  weight_.reset_data();
}

variable_list LinearBackwardBackward::apply(variable_list&& grads) {
  std::lock_guard<std::mutex> lock(mutex_);
  return gradients(
      grads,
      SecondOrder{
          of_,
          input_.unpack(),
          grad_output_.unpack(),
          weight_.unpack(),
          grad_output_sizes_,
          asked_of(*this)});
}

void LinearBackwardBackward::compiled_args(CompiledNodeArgs& args) const {
  args.collect(static_cast<int64_t>(of_));
  args.collect(input_, /*is_output=*/false);
  args.collect(grad_output_, /*is_output=*/false);
  args.collect(weight_, /*is_output=*/false);
  args.collect(grad_output_sizes_);
}

variable_list LinearBackwardBackward::apply_with_saved(
    const variable_list& grads,
    SwapSavedVariables& saved) {
  saved.before(input_);
  saved.before(grad_output_);
  saved.before(weight_);
  saved.before(grad_output_sizes_);
  const SecondOrder unpacked{
      of_,
      input_.unpack(),
      grad_output_.unpack(),
      weight_.unpack(),
      grad_output_sizes_,
      asked_of(*this)};
  auto result = compiled_call(
      *this,
      grads,
      saved,
      pack(unpacked),
      [](const variable_list& inputs, const std::vector<c10::IValue>& args) {
        return gradients(inputs, unpack_second(PackedArgs(args)));
      });
  saved.after(input_);
  saved.after(grad_output_);
  saved.after(weight_);
  saved.after(grad_output_sizes_);
  return result;
}

} // namespace noalias
