#include "small_slices.h"

#include <ATen/EmptyTensor.h>
#include <ATen/TensorIterator.h>

#include <cstring>

namespace noalias {

namespace {

// Larger ones are worth several threads.
constexpr int64_t kSmall = at::internal::GRAIN_SIZE;

bool is_small(const at::Tensor& slice) {
  return slice.is_cpu() && are_few(slice.numel()) && slice.is_contiguous();
}

// In blocks and in a function of its own, which compilers turn into vector
// instructions at -O2, too.
template <typename T>
C10_NOINLINE void add_numbers(
    T* __restrict to,
    const T* __restrict from,
    int64_t count) {
  constexpr int64_t block = 16;
  int64_t i = 0;
  for (; i + block <= count; i += block) {
    for (int64_t j = 0; j < block; ++j) {
      to[i + j] += from[i + j];
    }
  }
  for (; i < count; ++i) {
    to[i] += from[i];
  }
}

template <typename T>
void add_numbers(const at::Tensor& slice, const at::Tensor& part) {
  add_numbers(
      slice.mutable_data_ptr<T>(), part.const_data_ptr<T>(), slice.numel());
}

} // namespace

bool are_few(int64_t elements) {
  return elements <= kSmall;
}

at::Tensor contiguous_copy(const at::Tensor& slice) {
  if (!is_small(slice)) {
    return slice.clone(at::MemoryFormat::Contiguous);
  }
  at::Tensor copy = at::detail::empty_cpu(slice.sizes(), slice.options());
  std::memcpy(
      copy.mutable_data_ptr(), slice.const_data_ptr(), slice.nbytes());
  return copy;
}

void fill_with_zeros(const at::Tensor& slice) {
  if (!is_small(slice)) {
    slice.zero_();
    return;
  }
  std::memset(slice.mutable_data_ptr(), 0, slice.nbytes());
}

void add_part(const at::Tensor& slice, const at::Tensor& part) {
  const auto type = slice.scalar_type();
  const bool is_simple = is_small(slice) && part.is_cpu() &&
      part.is_contiguous() && part.sizes() == slice.sizes() &&
      part.scalar_type() == type && !part.is_neg();
  if (is_simple && type == at::kFloat) {
    add_numbers<float>(slice, part);
  } else if (is_simple && type == at::kDouble) {
    add_numbers<double>(slice, part);
  } else {
    slice.add_(part);
  }
}

} // namespace noalias
