// How the result of an operator is written into the memory of its gradient, and whether
// the operator would have allocated a tensor like the gradient.
#pragma once

#include "owned_memory.h"
#include "stock_kernel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/masked_fill_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/neg_ops.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

namespace noalias::owned {

using c10::DispatchKeySet;

// Kernels built on TensorIterator take an operand for their result as a matter of
// course.
template <typename Out>
struct Elementwise {
  template <typename... Rest>
  static bool result_is_like(
      const Tensor& gradient,
      c10::ArrayRef<const Tensor*> others,
      const Rest&... /*rest*/) {
    return std::all_of(
               others.begin(),
               others.end(),
               [&](const Tensor* other) {
                 return is_operand_for(gradient, *other) &&
                     !has_tangent(*other) &&
                     at::is_expandable_to(other->sizes(), gradient.sizes()) &&
                     at::native::result_type(gradient, *other) ==
                     gradient.scalar_type();
               }) &&
        has_strides_of_result(gradient, others);
  }

  template <typename... Args>
  static void write(DispatchKeySet keys, Args&&... args) {
    Out::redispatch(keys, std::forward<Args>(args)...);
  }
};

// A number in the gradient's dtype, or nothing where no conversion is needed. The
// iterator would convert it, too, by way of four more operators: in a loop of small
// steps that is as much as the product.
inline std::optional<Tensor> converted_number(
    const Tensor& gradient,
    const Tensor& other) {
  if (!gradient.is_cpu() || other.dim() != 0 ||
      gradient.scalar_type() != at::kFloat ||
      (other.scalar_type() != at::kDouble && other.scalar_type() != at::kLong)) {
    return std::nullopt;
  }
  Tensor number = at::detail::empty_cpu({}, gradient.options());
  *number.mutable_data_ptr<float>() = other.scalar_type() == at::kDouble
      ? static_cast<float>(*other.const_data_ptr<double>())
      : static_cast<float>(*other.const_data_ptr<int64_t>());
  return number;
}

// Note [Backends of third parties]
//
// Of a backend with kernels of its own it is known that an operator and its in-place
// form give the same numbers; not what its kernels for backward, or for a result that
// is given, do when that is an operand. And not even the first where one form is its
// own and the other is left to its fallback.
template <typename Op>
bool is_backends_own() {
  return StockKernel<Op>::handle().hasKernelForDispatchKey(
      c10::DispatchKey::PrivateUse1);
}

// Looked up with the first gradient of a backend: it has its kernels by then.
template <typename Op, typename InPlace>
bool agrees_in_place(const Tensor& gradient) {
  if (has_tensor_iterator(gradient)) {
    return true;
  }
  static const bool agrees = [] {
    const bool own = is_backends_own<Op>();
    return own == is_backends_own<InPlace>() &&
        (own ||
         c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(
             c10::DispatchKey::PrivateUse1));
  }();
  return agrees;
}

// An operator that has an in-place form, on a tensor or number besides the gradient,
// if any.
template <typename Op, typename Out, typename InPlace>
struct Arithmetic : Elementwise<Out> {
  template <typename... Rest>
  static bool result_is_like(
      const Tensor& gradient,
      c10::ArrayRef<const Tensor*> others,
      const Rest&... rest) {
    return agrees_in_place<Op, InPlace>(gradient) &&
        Elementwise<Out>::result_is_like(gradient, others, rest...);
  }

  static void write(
      DispatchKeySet keys,
      const Tensor& gradient,
      Tensor& result) {
    if (has_tensor_iterator(gradient)) {
      Out::redispatch(keys, gradient, result);
    } else {
      InPlace::redispatch(keys, result);
    }
  }

  static void write(
      DispatchKeySet keys,
      const Tensor& gradient,
      const Tensor& other,
      Tensor& result) {
    if (has_tensor_iterator(gradient)) {
      const auto number = converted_number(gradient, other);
      Out::redispatch(keys, gradient, number.value_or(other), result);
    } else {
      InPlace::redispatch(keys, result, other);
    }
  }
};

using Negation = Arithmetic<at::_ops::neg, at::_ops::neg_out, at::_ops::neg_>;
using Multiplication =
    Arithmetic<at::_ops::mul_Tensor, at::_ops::mul_out, at::_ops::mul__Tensor>;

// Compilers make two versions of the loop that divides complex numbers, one for a
// result that overlaps an operand and one for a result that does not, and in
// complex64 these two round differently. So stock's bits come with a tensor of its
// own only.
struct Division
    : Arithmetic<at::_ops::div_Tensor, at::_ops::div_out, at::_ops::div__Tensor> {
  static bool result_is_like(
      const Tensor& gradient,
      c10::ArrayRef<const Tensor*> others,
      const Tensor& other) {
    return !gradient.is_complex() &&
        Arithmetic::result_is_like(gradient, others, other);
  }
};

// Softmax is no elementwise operator, but its CPU kernels read a row to the end, for
// the sum, before they write the first element of it, and from then on are.
template <typename Out>
struct RowByRow : Elementwise<Out> {
  static bool result_is_like(
      const Tensor& gradient,
      c10::ArrayRef<const Tensor*> others,
      const Tensor& output,
      int64_t /*dim*/,
      at::ScalarType input_dtype) {
    return gradient.is_cpu() && input_dtype == gradient.scalar_type() &&
        output.sizes() == gradient.sizes() && output.is_contiguous() &&
        is_canonically_contiguous(gradient) &&
        Elementwise<Out>::result_is_like(gradient, others);
  }
};

// The result of masked_fill is always contiguous, and its kernel in place only, unless a
// backend has one of its own.
struct MaskedFill {
  static bool result_is_like(
      const Tensor& gradient,
      c10::ArrayRef<const Tensor*> /*others*/,
      const Tensor& mask,
      const at::Scalar& /*value*/) {
    return is_in_place(gradient) && is_ordinary(mask) &&
        mask.device() == gradient.device() &&
        at::is_expandable_to(mask.sizes(), gradient.sizes()) &&
        is_canonically_contiguous(gradient);
  }

  static bool is_in_place(const Tensor& gradient) {
    if (has_tensor_iterator(gradient)) {
      return true;
    }
    static const bool has_other_kernel =
        is_backends_own<at::_ops::masked_fill_Scalar>();
    return !has_other_kernel;
  }

  static void write(
      DispatchKeySet keys,
      const Tensor& /*gradient*/,
      const Tensor& mask,
      const at::Scalar& value,
      Tensor& result) {
    at::_ops::masked_fill__Scalar::redispatch(keys, result, mask, value);
  }
};

} // namespace noalias::owned
