#include "region.h"

#include <ATen/ops/diagonal.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/WrapDimMinimal.h>
#include <c10/util/SmallVector.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <utility>

namespace noalias {

namespace {

Region whole_region(const at::Tensor& whole) {
  return {
      c10::DimVector(whole.sizes()), c10::DimVector(whole.strides()), 0};
}

int64_t clamped(int64_t position, int64_t size) {
  return std::clamp<int64_t>(position < 0 ? position + size : position, 0, size);
}

} // namespace

// as_strided without the dispatcher, which costs more than a small slice.
at::Tensor Region::of(const at::Tensor& whole) const {
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW,
      c10::Storage(whole.storage()),
      whole.key_set(),
      whole.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(
      sizes, strides, whole.storage_offset() + offset);
  return view;
}

bool may_overlap(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  c10::SmallVector<std::pair<int64_t, int64_t>, 8> dims; // stride, size
  for (const auto d : c10::irange(sizes.size())) {
    if (sizes[d] == 0) {
      return false;
    }
    if (sizes[d] > 1) {
      dims.emplace_back(strides[d], sizes[d]);
    }
  }
  // Sorted by stride, each dimension must step over all that the smaller ones reach.
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;
  for (const auto& [stride, size] : dims) {
    if (stride <= reach) {
      return true;
    }
    reach += (size - 1) * stride;
  }
  return false;
}

bool Box::is_apart_from(const Box& other) const {
  for (size_t d = 0; d < first.size(); ++d) {
    if (last[d] < other.first[d] || other.last[d] < first[d]) {
      return true;
    }
  }
  return false;
}

bool Box::contains(const Box& other) const {
  for (size_t d = 0; d < first.size(); ++d) {
    if (other.first[d] < first[d] || last[d] < other.last[d]) {
      return false;
    }
  }
  return is_full;
}

std::optional<Box> box_of(const Region& region, const at::Tensor& whole) {
  const auto sizes = whole.sizes();
  const auto strides = whole.strides();
  Box box;
  // In a dense layout the digits of the offset are the indices.
  for (int64_t d = 0; d < whole.dim(); ++d) {
    const int64_t index =
        sizes[d] > 1 ? region.offset / strides[d] % sizes[d] : 0;
    box.first.push_back(index);
    box.last.push_back(index);
  }
  for (size_t i = 0; i < region.sizes.size(); ++i) {
    if (region.sizes[i] == 0) {
      return std::nullopt;
    }
    if (region.sizes[i] == 1) {
      continue;
    }
    // The dimension of the largest stride that is not larger.
    int64_t at = -1;
    for (int64_t d = 0; d < whole.dim(); ++d) {
      if (sizes[d] > 1 && strides[d] <= region.strides[i] &&
          (at < 0 || strides[d] > strides[at])) {
        at = d;
      }
    }
    if (at < 0 || region.strides[i] % strides[at] != 0 ||
        box.last[at] != box.first[at]) {
      return std::nullopt;
    }
    const int64_t step = region.strides[i] / strides[at];
    box.last[at] += (region.sizes[i] - 1) * step;
    box.is_full = box.is_full && step == 1;
    if (box.last[at] >= sizes[at]) {
      return std::nullopt;
    }
  }
  return box;
}

Region select_region(const at::Tensor& whole, int64_t dim, int64_t index) {
  Region region = whole_region(whole);
  const int64_t at = c10::maybe_wrap_dim(dim, whole.dim());
  const int64_t position = index < 0 ? index + whole.sizes()[at] : index;
  region.offset = position * whole.strides()[at];
  region.sizes.erase(region.sizes.begin() + at);
  region.strides.erase(region.strides.begin() + at);
  return region;
}

Region slice_region(
    const at::Tensor& whole,
    int64_t dim,
    int64_t start,
    int64_t end,
    int64_t step) {
  Region region = whole_region(whole);
  const int64_t at = c10::maybe_wrap_dim(dim, whole.dim());
  const int64_t size = whole.sizes()[at];
  const int64_t first = clamped(start, size);
  const int64_t length = std::max<int64_t>(clamped(end, size) - first, 0);
  region.offset = first * whole.strides()[at];
  region.sizes[at] = (length + step - 1) / step;
  region.strides[at] *= step;
  return region;
}

Region diagonal_region(
    const at::Tensor& whole,
    int64_t offset,
    int64_t dim1,
    int64_t dim2) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const at::Tensor view = whole.diagonal(offset, dim1, dim2);
  return {
      c10::DimVector(view.sizes()),
      c10::DimVector(view.strides()),
      view.storage_offset() - whole.storage_offset()};
}

} // namespace noalias
