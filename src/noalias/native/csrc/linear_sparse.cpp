// Sparse weights: COO, CSR, CSC, BSR and BSC, below autograd.
#include "linear_products.h"

#include <ATen/ops/_convert_indices_from_csr_to_coo.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>

#include <algorithm>
#include <vector>

namespace noalias {

namespace {

thread_local bool pattern_gradients_on = false;

// Elements gathered at a time for a pattern gradient: 16 MiB of floats for each
// operand.
constexpr int64_t kGathered = int64_t{1} << 22;

bool has_blocks(const Tensor& matrix) {
  return matrix.layout() == c10::kSparseBsr ||
      matrix.layout() == c10::kSparseBsc;
}

bool is_compressed_by_row(const Tensor& matrix) {
  return matrix.layout() == c10::kSparseCsr ||
      matrix.layout() == c10::kSparseBsr;
}

// Note [Sparse products]
//
// PyTorch multiplies COO, CSR, CSC and BSR from the left with a dense matrix. It
// multiplies no BSC (which is what the transpose of BSR is), on a CPU no blocks
// that are not square, and no compressed layout in reduced precision. Those are
// converted, in time and memory of the number of entries. The dense result is
// written through its transpose, so that it comes out contiguous.
Tensor left_factor(const Tensor& sparse) {
  if (sparse.layout() == c10::kSparse) {
    return sparse;
  }
  const auto dtype = sparse.scalar_type();
  if (dtype == c10::kHalf || dtype == c10::kBFloat16) {
    return sparse.to_sparse();
  }
  if (sparse.layout() == c10::kSparseBsc ||
      (sparse.layout() == c10::kSparseBsr &&
       sparse.values().size(-1) != sparse.values().size(-2))) {
    return sparse.to_sparse().to_sparse_csr();
  }
  return sparse;
}

// rows [n, k], sparse [m, k] -> rows sparse^T [n, m], contiguous.
Tensor times_transposed(
    const Tensor& rows,
    const Tensor& sparse,
    const Tensor& bias) {
  const int64_t m = sparse.size(0);
  Tensor result = at::empty({rows.size(0), m}, rows.options());
  Tensor transposed = result.t();
  const Tensor factor = left_factor(sparse);
  if (bias.defined()) {
    at::addmm_out(
        transposed, bias.expand({rows.size(0), m}).t(), factor, rows.t());
  } else {
    at::mm_out(transposed, factor, rows.t());
  }
  return result;
}

// Where the entries (or blocks) of a matrix are: [2, entries], rows first.
Tensor entry_coordinates(const Tensor& pattern) {
  if (pattern.layout() == c10::kSparse) {
    return pattern._indices();
  }
  const bool by_row = is_compressed_by_row(pattern);
  return at::_convert_indices_from_csr_to_coo(
      by_row ? pattern.crow_indices() : pattern.ccol_indices(),
      by_row ? pattern.col_indices() : pattern.row_indices(),
      /*out_int32=*/false,
      /*transpose=*/!by_row);
}

Tensor pattern_with(const Tensor& pattern, const Tensor& values) {
  if (pattern.layout() == c10::kSparse) {
    return at::_sparse_coo_tensor_unsafe(
        pattern._indices(),
        values,
        pattern.sizes(),
        values.scalar_type(),
        pattern.layout(),
        pattern.device(),
        /*pin_memory=*/std::nullopt,
        /*is_coalesced=*/true);
  }
  const bool by_row = is_compressed_by_row(pattern);
  return at::_sparse_compressed_tensor_unsafe(
      by_row ? pattern.crow_indices() : pattern.ccol_indices(),
      by_row ? pattern.col_indices() : pattern.row_indices(),
      values,
      pattern.sizes(),
      values.scalar_type(),
      pattern.layout(),
      pattern.device(),
      /*pin_memory=*/std::nullopt);
}

} // namespace

bool pattern_gradients() {
  return pattern_gradients_on;
}

void set_pattern_gradients(bool on) {
  pattern_gradients_on = on;
}

bool is_sparse_matrix(const Tensor& weight) {
  switch (weight.layout()) {
    case c10::kSparse:
    case c10::kSparseCsr:
    case c10::kSparseCsc:
    case c10::kSparseBsr:
    case c10::kSparseBsc:
      return weight.dim() == 2 && weight.sparse_dim() == 2 &&
          weight.dense_dim() == 0;
    default:
      return false;
  }
}

Tensor sparse_linear(
    const Tensor& input,
    const Tensor& weight,
    const OptionalTensor& bias,
    BiasForm form) {
  const Tensor product = restore(
      times_transposed(
          rows_of(input),
          weight,
          form == BiasForm::kRows ? *bias : Tensor()),
      input,
      weight.size(0));
  return form == BiasForm::kBroadcast ? product.add_(*bias) : product;
}

Tensor sparse_grad_input_rows(const Tensor& grad_rows, const Tensor& weight) {
  return times_transposed(grad_rows, weight.conj().t(), Tensor());
}

Tensor pattern_gradient(
    const Tensor& grad_output,
    const Tensor& input,
    const Tensor& weight) {
  const Tensor detached = weight.detach();
  const Tensor pattern =
      detached.layout() == c10::kSparse ? detached.coalesce() : detached;
  const Tensor where = entry_coordinates(pattern);
  int64_t height = 1;
  int64_t width = 1;
  if (has_blocks(pattern)) {
    height = pattern.values().size(-2);
    width = pattern.values().size(-1);
  }
  const Tensor grads = rows_of(grad_output);
  const int64_t rows = grads.size(0);
  const Tensor g = grads.reshape({rows, pattern.size(0) / height, height});
  const Tensor x = rows_of(input).conj().reshape(
      {rows, pattern.size(1) / width, width});
  const int64_t entries = where.size(1);
  const int64_t step = std::clamp<int64_t>(
      kGathered / std::max<int64_t>(1, rows * std::max(height, width)),
      1,
      std::max<int64_t>(1, entries));
  std::vector<Tensor> parts;
  for (int64_t from = 0; from < entries; from += step) {
    const Tensor some = where.slice(1, from, std::min(from + step, entries));
    const Tensor gs = g.index_select(1, some.select(0, 0));
    const Tensor xs = x.index_select(1, some.select(0, 1));
    parts.push_back(
        has_blocks(pattern)
            ? at::bmm(gs.permute({1, 2, 0}), xs.permute({1, 0, 2}))
            : at::mul(gs, xs).sum(0).squeeze(-1));
  }
  if (parts.empty()) {
    const Tensor values = pattern.layout() == c10::kSparse
        ? pattern._values()
        : pattern.values();
    return pattern_with(pattern, at::empty_like(values));
  }
  return pattern_with(pattern, at::cat(parts));
}

} // namespace noalias
