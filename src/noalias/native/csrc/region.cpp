#include "region.h"

#include <ATen/ops/diagonal.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/WrapDimMinimal.h>

#include <algorithm>

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
