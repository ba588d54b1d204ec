// A view of a gradient by its geometry alone, independent of the tensor.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/DimVector.h>

#include <cstdint>
#include <optional>

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

// Whether two indices may lead to one element; true where the strides leave it open.
bool may_overlap(c10::IntArrayRef sizes, c10::IntArrayRef strides);

// The smallest range of indices, in each dimension of the whole, that holds a
// region.
struct Box {
  c10::DimVector first;
  c10::DimVector last;
  bool is_full = true; // the region leaves nothing of it out

  bool is_apart_from(const Box& other) const;

  // Whether this box's region holds all of the other's.
  bool contains(const Box& other) const;
};

// Nothing where the region does not follow the dimensions of `whole` (a diagonal,
// a part of a flattened view), or is empty.
std::optional<Box> box_of(const Region& region, const at::Tensor& whole);

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
