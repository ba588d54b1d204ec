#include "hidden_base.h"

#include "compat_functorch.h"
#include "region.h"
#include "sibling_parts.h"

#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <type_traits>
#include <utility>

namespace noalias {

namespace {

using torch::autograd::AutogradMeta;
using torch::autograd::CreationMeta;
using torch::autograd::Edge;
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
  return may_overlap(memory->sizes(), memory->strides());
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

// Tensors have a gradient dtype of their own from 2.10 or 2.11 on.
template <typename Meta, typename = void>
struct GradDtype {
  static void carry(const Meta& /*from*/, Meta& /*to*/) {}
};
template <typename Meta>
struct GradDtype<
    Meta,
    std::void_t<decltype(std::declval<Meta&>().grad_dtype_)>> {
  static void carry(const Meta& from, Meta& to) {
    to.grad_dtype_ = from.grad_dtype_;
    to.allow_grad_dtype_mismatch_ = from.allow_grad_dtype_mismatch_;
  }
};

} // namespace

Verdict verdict_on(const Tensor& view, const DifferentiableViewMeta& meta) {
  Verdict verdict = prove_hidden(view, meta);
  if (verdict == Verdict::kOtherOwner || verdict == Verdict::kSharedStorage) {
    if (const auto siblings = discount_for_siblings(view, meta)) {
      verdict = prove_hidden(view, meta, *siblings);
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

// Note [Dropping the view relationship]
//
// What PyTorch itself does with _unsafe_view, less its two dangers: the version
// counter stays the one that base and view share, so whatever saved the view
// still notices the write; and nothing is assumed about the producer of the base,
// it has been looked at. History, hooks, retain_grad and tangent move along: to
// everybody who holds the view it is the same tensor, with no base.
//
// There is no way back: a call that raises afterwards, for its shapes, leaves an
// ordinary tensor. To give the base back one would have to hold it meanwhile, and
// whoever holds a base is an observer to the proofs that run inside the call (a
// functorch level further down) or beside it (a sibling on another thread).
void drop_view(const Tensor& view) {
  auto* before = impl::get_view_autograd_meta(view);
  TORCH_INTERNAL_ASSERT(before != nullptr && before->has_bw_view());
  // Through the accessors: they bring up to date what an in-place operator on
  // another view has left behind, the history and the tangent of the base.
  view._fw_grad(/*level=*/0);
  const Edge history = before->requires_grad()
      ? Edge(view.grad_fn(), before->output_nr_)
      : Edge();
  auto after = std::make_unique<AutogradMeta>(
      view.unsafeGetTensorImpl(), /*requires_grad=*/false, history);
  after->name_ = std::move(before->name_);
  after->grad_ = std::move(before->grad_);
  after->fw_grad_ = std::move(before->fw_grad_);
  after->hooks_ = std::move(before->hooks_);
  after->cpp_hooks_list_ = std::move(before->cpp_hooks_list_);
  after->post_acc_grad_hooks_ = std::move(before->post_acc_grad_hooks_);
  after->grad_accumulator_ = std::move(before->grad_accumulator_);
  after->retains_grad_ = before->retains_grad_;
  GradDtype<AutogradMeta>::carry(*before, *after);
  leave_siblings(view);
  view.unsafeGetTensorImpl()->set_autograd_meta(std::move(after));
}

bool release_hidden_base(const Tensor& tensor) {
  const auto* meta = impl::get_view_autograd_meta(tensor);
  if (meta == nullptr || !meta->has_bw_view() ||
      verdict_on(tensor, *meta) != Verdict::kHidden) {
    return false;
  }
  drop_view(tensor);
  return true;
}

} // namespace noalias
