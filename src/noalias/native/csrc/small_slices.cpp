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

// In blocks of a cache line or two and in a function of its own, which compilers
// turn into vector instructions at -O2, too. See Note [The next slice] for `next`,
// which may be null.
template <typename T>
C10_NOINLINE void add_numbers(
    T* __restrict to,
    const T* __restrict from,
    int64_t count,
    const T* next) {
  constexpr int64_t block = 16;
  [[maybe_unused]] constexpr int64_t line = 64 / sizeof(T);
  int64_t i = 0;
  for (; i + block <= count; i += block) {
#if defined(__GNUC__)
    for (int64_t j = 0; next != nullptr && j < block; j += line) {
      __builtin_prefetch(next + i + j);
    }
#endif
    for (int64_t j = 0; j < block; ++j) {
      to[i + j] += from[i + j];
    }
  }
  for (; i < count; ++i) {
    to[i] += from[i];
  }
}

// False for what ATen adds.
bool add_numbers_of(
    at::ScalarType type,
    void* to,
    const void* from,
    int64_t count,
    const void* next) {
  const auto add = [&](auto zero) {
    using T = decltype(zero);
    add_numbers(
        static_cast<T*>(to),
        static_cast<const T*>(from),
        count,
        static_cast<const T*>(next));
  };
  if (type == at::kFloat) {
    add(0.0F);
  } else if (type == at::kDouble) {
    add(0.0);
  } else {
    return false;
  }
  return true;
}

// Of a region that lies in one piece, where it begins; null for all others.
char* small_piece(const at::Tensor& whole, const Region& region) {
  if (!whole.is_cpu() || !are_few(c10::multiply_integers(region.sizes)) ||
      !at::geometry_is_contiguous(region.sizes, region.strides)) {
    return nullptr;
  }
  return static_cast<char*>(whole.mutable_data_ptr()) +
      static_cast<size_t>(region.offset) * whole.itemsize();
}

// Null where the next slice would not lie inside of a dense `whole`.
const char* next_piece(
    const at::Tensor& whole,
    const Region& region,
    int64_t next) {
  const bool is_inside = next >= 0 &&
      next + c10::multiply_integers(region.sizes) <= whole.numel() &&
      whole.is_non_overlapping_and_dense();
  return is_inside ? static_cast<const char*>(whole.const_data_ptr()) +
          static_cast<size_t>(next) * whole.itemsize()
                   : nullptr;
}

size_t bytes_of(const at::Tensor& whole, const Region& region) {
  return static_cast<size_t>(c10::multiply_integers(region.sizes)) *
      whole.itemsize();
}

} // namespace

bool are_few(int64_t elements) {
  return elements <= kSmall;
}

// None of these makes a tensor for a slice that lies in one piece.
at::Tensor copy_of_region(const at::Tensor& whole, const Region& region) {
  const char* const piece = small_piece(whole, region);
  if (piece == nullptr) {
    return region.of(whole).clone(at::MemoryFormat::Contiguous);
  }
  at::Tensor copy = at::detail::empty_cpu(region.sizes, whole.options());
  std::memcpy(copy.mutable_data_ptr(), piece, bytes_of(whole, region));
  return copy;
}

void clear_region(const at::Tensor& whole, const Region& region) {
  if (char* const piece = small_piece(whole, region)) {
    std::memset(piece, 0, bytes_of(whole, region));
  } else {
    region.of(whole).zero_();
  }
}

void add_region(
    const at::Tensor& sum,
    const at::Tensor& whole,
    const Region& region,
    int64_t next) {
  const char* const piece = small_piece(whole, region);
  if (piece == nullptr || !is_small(sum) ||
      !add_numbers_of(
          whole.scalar_type(),
          sum.mutable_data_ptr(),
          piece,
          sum.numel(),
          next_piece(whole, region, next))) {
    sum.add_(region.of(whole));
  }
}

void add_to_region(
    const at::Tensor& whole,
    const Region& region,
    const at::Tensor& part,
    int64_t next) {
  char* const piece = small_piece(whole, region);
  const bool is_simple = piece != nullptr && is_small(part) &&
      part.sizes() == region.sizes &&
      part.scalar_type() == whole.scalar_type() && !part.is_neg();
  if (!is_simple ||
      !add_numbers_of(
          whole.scalar_type(),
          piece,
          part.const_data_ptr(),
          part.numel(),
          next_piece(whole, region, next))) {
    region.of(whole).add_(part);
  }
}

} // namespace noalias
