// The parts of linear's products that several files share.
#pragma once

#include "linear.h"

namespace noalias {

inline bool is_given(const OptionalTensor& tensor) {
  return tensor.has_value() && tensor->defined();
}

inline OptionalTensor given(const Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
}

// [*, features] -> [rows, features].
Tensor rows_of(const Tensor& tensor);

// [rows, features] -> [*, features] with the leading dimensions of `like`; no
// differentiable view.
Tensor restore(const Tensor& rows, const Tensor& like, c10::SymInt features);

// A matrix whose columns follow each other in memory.
bool lies_transposed(const Tensor& matrix);

// Whether the derivative takes the product transposed because of how the operand
// that it does not multiply lies; see Note [The same bits].
bool input_lies_transposed(const Tensor& input);
bool weight_lies_transposed(const Tensor& weight);

// grad_rows [rows, out], weight [out, in] -> [rows, in].
Tensor grad_input_rows(
    const Tensor& grad_rows,
    const Tensor& weight,
    bool input_transposed);

// grad_rows [rows, out], input_rows [rows, in] -> [out, in].
Tensor grad_weight_product(
    const Tensor& grad_rows,
    const Tensor& input_rows,
    bool weight_transposed);

// linear_strided.cpp: the same where the leading dimensions of the input cannot
// be flattened without a copy. Nothing where the copy is the better way.
std::optional<Tensor> linear_as_it_lies(
    const Tensor& input,
    const Tensor& weight,
    const OptionalTensor& bias);
std::optional<Tensor> grad_weight_as_input_lies(
    const Tensor& input,
    const Tensor& grad_output,
    bool weight_transposed);

// linear_sparse.cpp: a weight of layout COO, CSR, CSC, BSR or BSC; everything
// else dense.
bool is_sparse_matrix(const Tensor& weight);
Tensor sparse_linear(
    const Tensor& input,
    const Tensor& weight,
    const OptionalTensor& bias,
    BiasForm form);
Tensor sparse_grad_input_rows(const Tensor& grad_rows, const Tensor& weight);

// The gradient of a sparse weight where it has entries, in the weight's own
// layout: grad_output [*, out], input [*, in] -> [out, in].
Tensor pattern_gradient(
    const Tensor& grad_output,
    const Tensor& input,
    const Tensor& weight);

// Whether linear records pattern gradients for sparse weights. This thread's.
bool pattern_gradients();
void set_pattern_gradients(bool on);

} // namespace noalias
