#include "linear.h"

#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

#include <c10/util/SmallVector.h>

namespace noalias {

namespace {

using SymShape = c10::SmallVector<c10::SymInt, 6>;

c10::SymInt leading_rows(const Tensor& tensor) {
  c10::SymInt rows = 1;
  const auto sizes = tensor.sym_sizes();
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    rows = rows * sizes[i];
  }
  return rows;
}

// [*, features] -> [rows, features]. reshape and not flatten: flatten in a
// backward breaks batched gradient checks. The row count is spelled out
// because -1 is refused where a dimension is zero.
Tensor rows_of(const Tensor& tensor) {
  if (tensor.dim() == 2) {
    return tensor;
  }
  return tensor.reshape_symint({leading_rows(tensor), tensor.sym_size(-1)});
}

// A matrix whose columns follow each other in memory.
bool lies_transposed(const Tensor& matrix) {
  return matrix.sym_stride(0) == 1 && matrix.sym_stride(1) == matrix.sym_size(0);
}

// [rows, features] -> [*, features] with the leading dimensions of `like`.
Tensor restore(const Tensor& rows, const Tensor& like, c10::SymInt features) {
  if (like.dim() == 2) {
    return rows;
  }
  SymShape shape(like.sym_sizes().begin(), like.sym_sizes().end());
  shape.back() = std::move(features);
  return at::_unsafe_view_symint(rows, shape);
}

void check_backward_arguments(
    const OptionalTensor& input,
    const Tensor& grad_output,
    const OptionalTensor& weight,
    std::array<bool, 3> output_mask) {
  TORCH_CHECK(
      grad_output.dim() >= 1,
      "noalias.linear_backward: grad_output must have at least 1 dimension, "
      "but it has shape ",
      grad_output.sym_sizes());
  TORCH_CHECK(
      !output_mask[0] || (weight.has_value() && weight->defined()),
      "noalias.linear_backward: output_mask asks for the gradient of input, "
      "which needs weight, but weight is None");
  TORCH_CHECK(
      !output_mask[1] || (input.has_value() && input->defined()),
      "noalias.linear_backward: output_mask asks for the gradient of weight, "
      "which needs self (the input), but self is None");
}

} // namespace

void check_linear_shapes(
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
  if (bias.has_value() && bias->defined()) {
    const auto shape = bias->sym_sizes();
    const bool one_for_each_feature =
        shape.size() == 1 && shape[0] == weight.sym_size(0);
    TORCH_CHECK(
        one_for_each_feature || shape.size() <= static_cast<size_t>(input.dim()),
        "noalias.linear: bias of shape ",
        shape,
        " cannot be added to an output with ",
        input.dim(),
        " dimensions; give it shape [",
        weight.sym_size(0),
        "]");
  }
}

Tensor linear_product(
    const Tensor& input,
    const Tensor& weight,
    const OptionalTensor& bias) {
  check_linear_shapes(input, weight, bias);
  const Tensor rows = rows_of(input);
  if (!bias.has_value() || !bias->defined()) {
    return restore(at::mm(rows, weight.t()), input, weight.sym_size(0));
  }
  if (bias->dim() == 1 || input.dim() == 2) {
    return restore(
        at::addmm(*bias, rows, weight.t()), input, weight.sym_size(0));
  }
  return at::add(
      restore(at::mm(rows, weight.t()), input, weight.sym_size(0)), *bias);
}

LinearGradients linear_backward_products(
    const OptionalTensor& input,
    const Tensor& grad_output,
    const OptionalTensor& weight,
    std::array<bool, 3> output_mask) {
  check_backward_arguments(input, grad_output, weight, output_mask);
  // y = x W^T + b, so that for complex values too
  //   grad_x = g conj(W),  grad_W = g^T conj(x),  grad_b = sum of g over rows,
  // each one contraction over all leading dimensions together. Where an operand
  // lies transposed the product is taken transposed, as the derivative of addmm
  // does it (torch/csrc/autograd/FunctionsManual.cpp, mm_mat1_grad and
  // mm_mat2_grad), so that the bits are the same.
  Tensor grad_input, grad_weight, grad_bias;
  const Tensor grad_rows = rows_of(grad_output);
  if (output_mask[0]) {
    const Tensor w = weight->conj();
    const bool transposed = input.has_value() && input->defined() &&
        input->dim() == 2 && lies_transposed(*input);
    grad_input = transposed ? at::mm(w.t(), grad_rows.t()).t()
                            : at::mm(grad_rows, w);
    grad_input = restore(grad_input, grad_output, weight->sym_size(1));
  }
  if (output_mask[1]) {
    const Tensor x = rows_of(*input).conj();
    const bool straight = !weight.has_value() || !weight->defined() ||
        lies_transposed(weight->t());
    grad_weight =
        straight ? at::mm(grad_rows.t(), x) : at::mm(x.t(), grad_rows).t();
  }
  if (output_mask[2]) {
    grad_bias = grad_rows.sum(0);
  }
  return {grad_input, grad_weight, grad_bias};
}

} // namespace noalias
