#include "linear_products.h"

#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <c10/core/SymBool.h>
#include <c10/util/SmallVector.h>

namespace noalias {

namespace {

// False where a traced program does not know yet.
bool is_surely(const c10::SymInt& left, const c10::SymInt& right) {
  return TORCH_GUARD_OR_FALSE(left.sym_eq(right));
}

} // namespace

// reshape and not flatten: flatten in a backward breaks batched gradient checks.
// The row count is spelled out because -1 is refused where a dimension is zero.
Tensor rows_of(const Tensor& tensor) {
  if (tensor.dim() == 2) {
    return tensor;
  }
  const auto sizes = tensor.sym_sizes();
  c10::SymInt rows = 1;
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    rows = rows * sizes[i];
  }
  return tensor.reshape_symint({std::move(rows), sizes.back()});
}

Tensor restore(const Tensor& rows, const Tensor& like, c10::SymInt features) {
  if (like.dim() == 2) {
    return rows;
  }
  c10::SmallVector<c10::SymInt, 6> shape(
      like.sym_sizes().begin(), like.sym_sizes().end());
  shape.back() = std::move(features);
  if (rows.key_set().has(c10::DispatchKey::Batched)) {
    // The older vmap has no rule for _unsafe_view (2.9 to 2.15), and in it there is
    // no history to care about.
    return rows.view_symint(shape);
  }
  return at::_unsafe_view_symint(rows, shape);
}

// Note [The same bits]
//
// y = x W^T + b, so that for complex values too
//   grad_x = g conj(W),  grad_W = g^T conj(x),  grad_b = sum of g over rows,
// each one contraction over all leading dimensions together. PyTorch's
// derivative of addmm takes a product transposed where the operand that is
// being differentiated lies transposed (torch/csrc/autograd/FunctionsManual.cpp,
// mm_mat1_grad and mm_mat2_grad). A transposed product adds up in another order,
// so the same choice is made here.
// Asked of strides as they are: one of a dimension of one element says nothing of
// how a matrix lies, but PyTorch looks at it all the same.
bool lies_transposed(const Tensor& matrix) {
  return is_surely(matrix.sym_stride(0), 1) &&
      is_surely(matrix.sym_stride(1), matrix.sym_size(0));
}

bool input_lies_transposed(const Tensor& input) {
  if (input.dim() == 2) {
    return lies_transposed(input);
  }
  // What lies_transposed says of the flattened input, without flattening it.
  c10::SymInt rows = 1;
  for (int64_t i = input.dim() - 2; i >= 0; --i) {
    if (!is_surely(input.sym_size(i), 1) &&
        !is_surely(input.sym_stride(i), rows)) {
      return false;
    }
    rows = rows * input.sym_size(i);
  }
  // One row is as long as what lies between it and the next.
  return is_surely(input.sym_stride(-1), rows) &&
      (!is_surely(rows, 1) || is_surely(input.sym_size(-1), 1));
}

bool weight_lies_transposed(const Tensor& weight) {
  return !(
      is_surely(weight.sym_stride(1), 1) &&
      is_surely(weight.sym_stride(0), weight.sym_size(1)));
}

Tensor grad_input_rows(
    const Tensor& grad_rows,
    const Tensor& weight,
    bool input_transposed) {
  const Tensor w = weight.conj();
  return input_transposed ? at::mm(w.t(), grad_rows.t()).t()
                          : at::mm(grad_rows, w);
}

Tensor grad_weight_product(
    const Tensor& grad_rows,
    const Tensor& input_rows,
    bool weight_transposed) {
  const Tensor x = input_rows.conj();
  return weight_transposed ? at::mm(x.t(), grad_rows).t()
                           : at::mm(grad_rows.t(), x);
}

Tensor linear_product(
    const Tensor& input,
    const Tensor& weight,
    const OptionalTensor& bias) {
  const BiasForm form = check_linear(input, weight, bias);
  const Tensor rows = rows_of(input);
  if (form == BiasForm::kRows) {
    return restore(
        at::addmm(*bias, rows, weight.t()), input, weight.sym_size(0));
  }
  const Tensor product =
      restore(at::mm(rows, weight.t()), input, weight.sym_size(0));
  return form == BiasForm::kNone ? product : at::add(product, *bias);
}

LinearGradients linear_backward_product(
    const OptionalTensor& input,
    const Tensor& grad_output,
    const OptionalTensor& weight,
    Mask output_mask) {
  check_linear_backward(input, grad_output, weight, output_mask);
  const Tensor grad_rows = rows_of(grad_output);
  Tensor grad_input, grad_weight, grad_bias;
  if (output_mask[0]) {
    grad_input = restore(
        grad_input_rows(
            grad_rows,
            *weight,
            is_given(input) && input_lies_transposed(*input)),
        grad_output,
        weight->sym_size(1));
  }
  if (output_mask[1]) {
    grad_weight = grad_weight_product(
        grad_rows,
        rows_of(*input),
        is_given(weight) && weight_lies_transposed(*weight));
  }
  if (output_mask[2]) {
    grad_bias = grad_rows.sum(0);
  }
  return {grad_input, grad_weight, grad_bias};
}

Tensor linear_kernel(
    const Tensor& input,
    const Tensor& weight,
    const OptionalTensor& bias) {
  if (is_sparse_matrix(weight)) {
    return sparse_linear(input, weight, bias, check_linear(input, weight, bias));
  }
  if (!input.is_contiguous()) {
    if (auto result = linear_as_it_lies(input, weight, bias)) {
      return *std::move(result);
    }
  }
  return linear_product(input, weight, bias);
}

LinearGradients linear_backward_kernel(
    const OptionalTensor& input,
    const Tensor& grad_output,
    const OptionalTensor& weight,
    Mask output_mask) {
  check_linear_backward(input, grad_output, weight, output_mask);
  Tensor grad_input, grad_weight;
  if (is_given(weight) && is_sparse_matrix(*weight)) {
    if (output_mask[0]) {
      grad_input = restore(
          sparse_grad_input_rows(rows_of(grad_output), *weight),
          grad_output,
          weight->sym_size(1));
    }
    if (output_mask[1]) {
      grad_weight = grad_weight_product(
          rows_of(grad_output), rows_of(*input), /*weight_transposed=*/false);
    }
    output_mask[0] = output_mask[1] = false;
  } else if (output_mask[1] && !input->is_contiguous()) {
    if (auto result = grad_weight_as_input_lies(
            *input,
            grad_output,
            is_given(weight) && weight_lies_transposed(*weight))) {
      grad_weight = *std::move(result);
      output_mask[1] = false;
    }
  }
  auto rest = linear_backward_product(input, grad_output, weight, output_mask);
  return {
      grad_input.defined() ? grad_input : std::get<0>(rest),
      grad_weight.defined() ? grad_weight : std::get<1>(rest),
      std::get<2>(rest)};
}

} // namespace noalias
