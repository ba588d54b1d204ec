#include "hidden_base.h"

#include "compat_functorch.h"
#include "dropped_view.h"
#include "sibling_parts.h"

#include <ATen/SavedTensorHooks.h>
#include <c10/util/SmallVector.h>
#include <c10/util/irange.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace noalias {

namespace {

using torch::autograd::CreationMeta;
namespace impl = torch::autograd::impl;

// Reading the history of a view whose base was written to regenerates it, and
// stock refuses that for views that were not made by one plain operator.
bool history_is_readable(
    const Tensor& view,
    const DifferentiableViewMeta& meta) {
  const auto creation = meta.get_creation_meta();
  if (creation == CreationMeta::DEFAULT) {
    return true;
  }
  if (at::SavedTensorDefaultHooks::get_hooks().has_value()) {
    // Stock raises. A checkpoint keeps what it saves in the forward and recomputes it
    // in backward, so a proof may come out differently there: an error must not come
    // in one of the two alone.
    return false;
  }
  if (view._fw_grad(/*level=*/0).defined()) {
    // Its tangent is a view of the base's tangent, made as it was made itself, and
    // stays one: a later write would be refused there.
    return false;
  }
  const Tensor& base = meta.get_backward_view().base_;
  if (creation == CreationMeta::NO_GRAD_MODE && base.requires_grad()) {
    // Made under no_grad from something that has history: whether gradients
    // should pass is for the user to say, so stock's error stands.
    return false;
  }
  return meta.get_attr_version() == view._version();
}

// An element of the base that is several of the view's (unfold, expand) collects
// what later writes to any one of them do to the others, and only its history
// knows that they are one. True where the strides leave it open.
bool may_overlap_itself(const Tensor& view) {
  const Tensor* memory = &view;
  while (const Tensor* below = below_wrapper(*memory)) {
    memory = below;
  }
  if (memory->unsafeGetTensorImpl()->has_symbolic_sizes_strides()) {
    return true;
  }
  if (memory->is_non_overlapping_and_dense()) {
    return false;
  }
  c10::SmallVector<std::pair<int64_t, int64_t>, 8> dims; // stride, size
  for (const auto d : c10::irange(memory->dim())) {
    if (memory->sizes()[d] == 0) {
      return false;
    }
    if (memory->sizes()[d] > 1) {
      dims.emplace_back(memory->strides()[d], memory->sizes()[d]);
    }
  }
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0; // the last element that the smaller strides get to
  for (const auto& [stride, size] : dims) {
    if (stride <= reach) {
      return true;
    }
    reach += (size - 1) * stride;
  }
  return false;
}

// See Note [A base that begins inside its memory]. Real bases are mended there as
// well; complex ones are kept, for their views are complex more often than not, and
// a write after disable() would be stock's.
bool views_are_misplaced(const Tensor& view) {
  if (!view.is_complex()) {
    return false;
  }
  for (const Tensor* level = &view; level != nullptr;
       level = below_wrapper(*level)) {
    if (level->unsafeGetTensorImpl()->has_symbolic_sizes_strides() ||
        level->storage_offset() != 0) {
      return true;
    }
  }
  return false;
}

} // namespace

Verdict verdict_on(
    const Tensor& view,
    const DifferentiableViewMeta& meta,
    Discount known) {
  Verdict verdict = prove_hidden(view, meta, known);
  if (verdict == Verdict::kOtherOwner || verdict == Verdict::kSharedStorage) {
    if (const auto siblings = discount_for_siblings(view, meta)) {
      verdict = prove_hidden(view, meta, known + *siblings);
    }
  }
  if (verdict != Verdict::kHidden) {
    return verdict;
  }
  if (!history_is_readable(view, meta)) {
    return Verdict::kStale;
  }
  if (may_overlap_itself(view)) {
    return Verdict::kOverlap;
  }
  return views_are_misplaced(view) ? Verdict::kOffset : Verdict::kHidden;
}

bool release_hidden_base(const Tensor& tensor) {
  const auto* meta = impl::get_view_autograd_meta(tensor);
  if (meta == nullptr || !meta->has_bw_view() ||
      verdict_on(tensor, *meta) != Verdict::kHidden) {
    return false;
  }
  const DroppedView for_good(tensor);
  return true;
}

} // namespace noalias
