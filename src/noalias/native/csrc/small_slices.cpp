#include "small_slices.h"

#include <ATen/EmptyTensor.h>
#include <ATen/TensorGeometry.h>
#include <ATen/TensorIterator.h>
#include <c10/util/accumulate.h>

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

// Of a region that lies in one piece, where it begins; null for all others.
char* small_piece(const at::Tensor& whole, const Region& region) {
  if (!whole.is_cpu() || c10::multiply_integers(region.sizes) > kSmall ||
      !at::geometry_is_contiguous(region.sizes, region.strides)) {
    return nullptr;
  }
  return static_cast<char*>(whole.mutable_data_ptr()) +
      static_cast<size_t>(region.offset) * whole.itemsize();
}

size_t bytes_of(const at::Tensor& whole, const Region& region) {
  return static_cast<size_t>(c10::multiply_integers(region.sizes)) *
      whole.itemsize();
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

// Neither makes a tensor for a slice that lies in one piece.
at::Tensor take_copy(
    const at::Tensor& whole,
    const Region& region,
    bool clear) {
  char* const piece = small_piece(whole, region);
  if (piece == nullptr) {
    const at::Tensor slice = region.of(whole);
    at::Tensor copy = slice.clone(at::MemoryFormat::Contiguous);
    if (clear) {
      slice.zero_();
    }
    return copy;
  }
  at::Tensor copy = at::detail::empty_cpu(region.sizes, whole.options());
  std::memcpy(copy.mutable_data_ptr(), piece, bytes_of(whole, region));
  if (clear) {
    std::memset(piece, 0, bytes_of(whole, region));
  }
  return copy;
}

void add_region(
    const at::Tensor& sum,
    const at::Tensor& whole,
    const Region& region,
    bool clear) {
  char* const piece = small_piece(whole, region);
  const auto type = whole.scalar_type();
  if (piece == nullptr || !is_small(sum) ||
      (type != at::kFloat && type != at::kDouble)) {
    const at::Tensor slice = region.of(whole);
    sum.add_(slice);
    if (clear) {
      slice.zero_();
    }
    return;
  }
  if (type == at::kFloat) {
    add_numbers<float>(
        sum.mutable_data_ptr<float>(),
        reinterpret_cast<const float*>(piece),
        sum.numel());
  } else {
    add_numbers<double>(
        sum.mutable_data_ptr<double>(),
        reinterpret_cast<const double*>(piece),
        sum.numel());
  }
  if (clear) {
    std::memset(piece, 0, bytes_of(whole, region));
  }
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
