#include "linear_tangents.h"

#include "linear_products.h"

#include <ATen/ops/add.h>

namespace noalias {

namespace {

bool carries_tangent(const Tensor& tensor) {
  return tensor.defined() && tensor._fw_grad(/*level=*/0).defined();
}

// Only what has a tangent is taken apart: a sparse tensor has no view of itself.
OptionalTensor primal_of(const Tensor& tensor) {
  return carries_tangent(tensor)
      ? OptionalTensor(tensor._fw_primal(/*level=*/0))
      : given(tensor);
}

OptionalTensor tangent_of(const Tensor& tensor) {
  return carries_tangent(tensor) ? OptionalTensor(tensor._fw_grad(/*level=*/0))
                             : std::nullopt;
}

void set_tangent(const Tensor& result, const Tensor& tangent) {
  if (result.defined() && tangent.defined()) {
    result._set_fw_grad(tangent, /*level=*/0, /*is_inplace_op=*/false);
  }
}

Tensor sum_of(const Tensor& left, const Tensor& right) {
  if (!left.defined() || !right.defined()) {
    return left.defined() ? left : right;
  }
  return at::add(left, right);
}

// Product rule, for real and complex values alike:
//   dy = dx W^T + db + x dW^T
// in the order of PyTorch's formula for addmm, or last bits would differ from it.
Tensor linear_tangent(
    const Tensor& input,
    const Tensor& weight,
    const Tensor& bias,
    const Tensor& result) {
  Tensor sum;
  if (carries_tangent(input)) {
    sum = call_linear(*tangent_of(input), *primal_of(weight), std::nullopt);
  }
  if (carries_tangent(bias)) {
    const Tensor db = *tangent_of(bias);
    // [rows, out] and its like are added to the flattened output.
    const bool flat = bias.dim() == 2 && result.dim() != 2 &&
        check_linear(input, weight, bias) == BiasForm::kRows;
    sum = sum_of(
        sum,
        flat ? restore(
                   db.expand_symint(rows_of(result).sym_sizes()).contiguous(),
                   result,
                   result.sym_size(-1))
             : db.expand_symint(result.sym_sizes()));
  }
  if (carries_tangent(weight)) {
    sum = sum_of(
        sum, call_linear(*primal_of(input), *tangent_of(weight), std::nullopt));
  }
  return sum;
}

LinearGradients linear_backward_tangent(
    const Tensor& input,
    const Tensor& grad_output,
    const Tensor& weight,
    Mask mask) {
  Tensor dx, dw, db;
  const auto add = [&](const LinearGradients& terms) {
    dx = sum_of(dx, std::get<0>(terms));
    dw = sum_of(dw, std::get<1>(terms));
    db = sum_of(db, std::get<2>(terms));
  };
  if (carries_tangent(grad_output)) {
    add(call_linear_backward(
        primal_of(input), *tangent_of(grad_output), primal_of(weight), mask));
  }
  const Mask rest = {
      mask[0] && carries_tangent(weight), mask[1] && carries_tangent(input), false};
  if (rest[0] || rest[1]) {
    add(call_linear_backward(
        tangent_of(input),
        *primal_of(grad_output),
        tangent_of(weight),
        rest));
  }
  return {dx, dw, db};
}

} // namespace

void set_linear_tangent(
    const Tensor& result,
    const Tensor& input,
    const Tensor& weight,
    const Tensor& bias) {
  if (carries_tangent(input) || carries_tangent(weight) ||
      carries_tangent(bias)) {
    set_tangent(result, linear_tangent(input, weight, bias, result));
  }
}

void set_linear_backward_tangents(
    const LinearGradients& gradients,
    const Tensor& input,
    const Tensor& grad_output,
    const Tensor& weight,
    Mask mask) {
  if (carries_tangent(input) || carries_tangent(grad_output) ||
      carries_tangent(weight)) {
    const auto& [dx, dw, db] = gradients;
    const auto [tx, tw, tb] =
        linear_backward_tangent(input, grad_output, weight, mask);
    set_tangent(dx, tx);
    set_tangent(dw, tw);
    set_tangent(db, tb);
  }
}

} // namespace noalias
