#include "linear.h"
#include "linear_products.h"

#include <c10/core/Layout.h>
#include <c10/util/Exception.h>

namespace noalias {

namespace {

bool expands_to(c10::SymIntArrayRef from, c10::SymIntArrayRef to) {
  if (from.size() > to.size()) {
    return false;
  }
  for (size_t back = 1; back <= from.size(); ++back) {
    const auto& size = from[from.size() - back];
    if (size != 1 && size != to[to.size() - back]) {
      return false;
    }
  }
  return true;
}

BiasForm check_linear_bias(
    const Tensor& input,
    const Tensor& weight,
    const Tensor& bias) {
  const auto shape = bias.sym_sizes();
  const auto out = weight.sym_size(0);
  if (shape.size() == 1 && shape[0] == out) {
    return BiasForm::kRows;
  }
  c10::SmallVector<c10::SymInt, 6> output(
      input.sym_sizes().begin(), input.sym_sizes().end());
  output.back() = out;
  c10::SymInt rows = 1;
  for (size_t i = 0; i + 1 < output.size(); ++i) {
    rows = rows * output[i];
  }
  // Up to 2.12 a bias of shape [rows, out] was taken for a contiguous input of
  // any rank, since 2.13 [rows, 1] still is.
  if (expands_to(shape, {rows, out})) {
    return BiasForm::kRows;
  }
  TORCH_CHECK(
      expands_to(shape, output),
      "noalias.linear: bias of shape ",
      shape,
      " cannot be added to an output of shape ",
      c10::SymIntArrayRef(output),
      "; give it shape [",
      out,
      "]");
  return BiasForm::kBroadcast;
}

void check_linear_kind(
    const char* name,
    const Tensor& tensor,
    const Tensor& input) {
  TORCH_CHECK(
      tensor.scalar_type() == input.scalar_type(),
      "noalias.linear: input and ",
      name,
      " must have the same dtype, but input is ",
      input.scalar_type(),
      " and ",
      name,
      " is ",
      tensor.scalar_type());
  TORCH_CHECK(
      tensor.device() == input.device(),
      "noalias.linear: input and ",
      name,
      " must be on the same device, but input is on ",
      input.device(),
      " and ",
      name,
      " is on ",
      tensor.device());
}

} // namespace

bool is_ours(const Tensor& input, const Tensor& weight) {
  return weight.dim() == 2 && input.dim() >= 1 &&
      input.layout() == c10::kStrided &&
      (weight.layout() == c10::kStrided || is_sparse_matrix(weight)) &&
      !input.is_nested() && !weight.is_nested() && !weight.is_quantized() &&
      !input.is_quantized();
}

BiasForm check_linear(
    const Tensor& input,
    const Tensor& weight,
    const OptionalTensor& bias) {
  TORCH_CHECK(
      input.dim() >= 1 && weight.dim() == 2,
      "noalias.linear: input must have at least 1 dimension and weight 2, but "
      "input has shape ",
      input.sym_sizes(),
      " and weight has shape ",
      weight.sym_sizes());
  TORCH_CHECK(
      input.sym_size(-1) == weight.sym_size(1),
      "noalias.linear: input of shape ",
      input.sym_sizes(),
      " and weight of shape ",
      weight.sym_sizes(),
      " cannot be multiplied: the last dimension of input (",
      input.sym_size(-1),
      ") must equal the last dimension of weight (",
      weight.sym_size(1),
      ")");
  check_linear_kind("weight", weight, input);
  if (!is_given(bias)) {
    return BiasForm::kNone;
  }
  check_linear_kind("bias", *bias, input);
  return check_linear_bias(input, weight, *bias);
}

void check_linear_backward(
    const OptionalTensor& input,
    const Tensor& grad_output,
    const OptionalTensor& weight,
    Mask output_mask) {
  TORCH_CHECK(
      grad_output.dim() >= 1,
      "noalias.linear_backward: grad_output must have at least 1 dimension, "
      "but it has shape ",
      grad_output.sym_sizes());
  TORCH_CHECK(
      !output_mask[0] || is_given(weight),
      "noalias.linear_backward: output_mask asks for the gradient of input, "
      "which needs weight, but weight is None");
  TORCH_CHECK(
      !output_mask[1] || is_given(input),
      "noalias.linear_backward: output_mask asks for the gradient of weight, "
      "which needs self (the input), but self is None");
}

} // namespace noalias
