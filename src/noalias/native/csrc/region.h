// A view of a gradient by its geometry alone, independent of the tensor.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/DimVector.h>

#include <cstdint>

namespace noalias {

struct Region {
  c10::DimVector sizes;
  c10::DimVector strides;
  int64_t offset = 0; // from the gradient's first element

  // The view, made below autograd. Nobody checks that the region lies inside.
  at::Tensor of(const at::Tensor& whole) const;

  bool operator==(const Region& other) const {
    return offset == other.offset && sizes == other.sizes &&
        strides == other.strides;
  }
};

// What `whole.select(dim, index)` and so on are views of. The arguments are
// those of a forward call that has succeeded on a tensor of the same sizes.
Region select_region(const at::Tensor& whole, int64_t dim, int64_t index);
Region slice_region(
    const at::Tensor& whole,
    int64_t dim,
    int64_t start,
    int64_t end,
    int64_t step);
Region diagonal_region(
    const at::Tensor& whole,
    int64_t offset,
    int64_t dim1,
    int64_t dim2);

} // namespace noalias
