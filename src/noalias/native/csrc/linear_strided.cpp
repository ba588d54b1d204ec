// Inputs whose leading dimensions are permuted or cut, read as they lie.
#include "linear_products.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

namespace noalias {

namespace {

// The leading dimensions, merged where they can be, of an input that needs
// exactly two of them: matrices of `sizes[1]` rows, `sizes[0]` of them.
struct TwoLeadingDims {
  std::array<int64_t, 2> sizes;
  std::array<int64_t, 2> strides;

  Tensor view(const Tensor& input) const {
    return input.as_strided(
        {sizes[0], sizes[1], input.size(-1)}, {strides[0], strides[1], 1});
  }
  // The dimension that becomes the batch: the smaller, for larger matrices.
  int64_t batch_dim() const {
    return sizes[0] <= sizes[1] ? 0 : 1;
  }
  int64_t batch() const {
    return sizes[batch_dim()];
  }
  int64_t rows() const {
    return sizes[1 - batch_dim()];
  }
};

std::optional<TwoLeadingDims> two_leading_dims(const Tensor& input) {
  const auto sizes = input.sizes();
  const auto strides = input.strides();
  TwoLeadingDims merged{};
  size_t count = 0;
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    if (sizes[i] == 1) {
      continue;
    }
    if (count > 0 && merged.strides[count - 1] == strides[i] * sizes[i]) {
      merged.sizes[count - 1] *= sizes[i];
      merged.strides[count - 1] = strides[i];
      continue;
    }
    if (count == 2) {
      return std::nullopt;
    }
    merged.sizes[count] = sizes[i];
    merged.strides[count] = strides[i];
    ++count;
  }
  const int64_t features = sizes.back();
  // A product reads rows that follow each other at a stride of at least their
  // own length; an expanded dimension (stride 0) is none of those.
  const bool readable = count == 2 && input.numel() > 0 &&
      (strides.back() == 1 || features == 1) &&
      merged.strides[0] >= features && merged.strides[1] >= features;
  return readable ? std::optional(merged) : std::nullopt;
}

// Note [When a permuted input is read as it lies]
//
// Flattening copies rows * in elements for each matrix of the batch. Not
// flattening makes the product repack (forward) or rewrite (weight gradient) the
// out * in elements of the weight for each matrix instead. So it pays from
// rows >= out on, given matrices that are worth a call of their own; 2^20
// multiplications take some 30 microseconds on one core, a call 3. Measured on a
// CPU with MKL over 23 shapes: 0.5 to 1.0 of the time of the copy where this rule
// holds, 1.0 to 2.0 where it does not. What a GPU does with it is not measured;
// its batched product does not repack the weight, so half as many rows do.
//
// Reduced precision on a CPU goes through oneDNN, which copies what is not
// contiguous: flattened here.
bool unflattened_pays(const TwoLeadingDims& dims, int64_t in, int64_t out, bool on_gpu) {
  return dims.rows() >= (on_gpu ? out / 2 : out) &&
      dims.rows() * in * out >= int64_t{1} << 20;
}

bool has_cpu_blas(const Tensor& input) {
  const auto dtype = input.scalar_type();
  return input.is_cpu() &&
      (dtype == c10::kFloat || dtype == c10::kDouble ||
       dtype == c10::kComplexFloat || dtype == c10::kComplexDouble);
}

} // namespace

std::optional<Tensor> linear_as_it_lies(
    const Tensor& input,
    const Tensor& weight,
    const OptionalTensor& bias) {
  if (input.dim() < 3 || !(has_cpu_blas(input) || input.is_cuda()) ||
      (is_given(bias) && bias->dim() != 1)) {
    return std::nullopt;
  }
  const auto dims = two_leading_dims(input);
  if (!dims.has_value()) {
    return std::nullopt;
  }
  check_linear(input, weight, bias);
  const int64_t in = input.size(-1);
  const int64_t out = weight.size(0);
  if (!unflattened_pays(*dims, in, out, input.is_cuda())) {
    return std::nullopt;
  }
  c10::SmallVector<int64_t, 6> shape(
      input.sizes().begin(), input.sizes().end());
  shape.back() = out;
  Tensor result = at::empty(shape, input.options());
  const int64_t batch_dim = dims->batch_dim();
  const Tensor inputs = dims->view(input).transpose(0, batch_dim);
  Tensor results = result.view({dims->sizes[0], dims->sizes[1], out})
                       .transpose(0, batch_dim);
  const Tensor w = weight.t();
  if (input.is_cuda()) {
    const Tensor ws = w.expand({dims->batch(), in, out});
    if (is_given(bias)) {
      at::baddbmm_out(
          results, bias->expand({dims->batch(), dims->rows(), out}), inputs, ws);
    } else {
      at::bmm_out(results, inputs, ws);
    }
    return result;
  }
  // One product after another, each on all threads: a batched product would give
  // each thread whole matrices, and there may be fewer of those than threads.
  for (int64_t i = 0; i < dims->batch(); ++i) {
    Tensor rows = results.select(0, i);
    if (is_given(bias)) {
      at::addmm_out(rows, *bias, inputs.select(0, i), w);
    } else {
      at::mm_out(rows, inputs.select(0, i), w);
    }
  }
  return result;
}

std::optional<Tensor> grad_weight_as_input_lies(
    const Tensor& input,
    const Tensor& grad_output,
    bool weight_transposed) {
  if (input.dim() < 3 || !(has_cpu_blas(input) || input.is_cuda()) ||
      !grad_output.is_contiguous()) {
    return std::nullopt;
  }
  const auto dims = two_leading_dims(input);
  if (!dims.has_value()) {
    return std::nullopt;
  }
  const int64_t out = grad_output.size(-1);
  const Tensor inputs = dims->view(input);
  const Tensor grads =
      grad_output.view({dims->sizes[0], dims->sizes[1], out});
  if (unflattened_pays(*dims, input.size(-1), out, /*on_gpu=*/false)) {
    const int64_t batch_dim = dims->batch_dim();
    Tensor sum;
    for (int64_t i = 0; i < dims->batch(); ++i) {
      const Tensor grad = grads.select(batch_dim, i);
      const Tensor x = inputs.select(batch_dim, i).conj();
      // The strides of grad_weight_product: those of the weight.
      const Tensor left = weight_transposed ? x.t() : grad.t();
      const Tensor& right = weight_transposed ? grad : x;
      sum = sum.defined() ? sum.addmm_(left, right) : at::mm(left, right);
    }
    return weight_transposed ? sum.t() : sum;
  }
  // A sum over all rows may take them in any order, so where the input is whole
  // but permuted, either side can be copied into the order of the other.
  const bool whole = dims->strides[1] == dims->sizes[0] * dims->strides[0] &&
      dims->strides[0] == input.size(-1);
  if (whole && out < input.size(-1)) {
    const int64_t rows = dims->sizes[0] * dims->sizes[1];
    return grad_weight_product(
        grads.transpose(0, 1).reshape({rows, out}),
        inputs.transpose(0, 1).reshape({rows, input.size(-1)}),
        weight_transposed);
  }
  return std::nullopt;
}

} // namespace noalias
