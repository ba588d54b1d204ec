#include "proof.h"

#include "compat_functorch.h"
#include "compat_python.h"
#include "sibling_parts.h"

namespace noalias {

namespace {

using torch::autograd::AutogradMeta;
using torch::autograd::CreationMeta;

bool metadata_has_hooks(const AutogradMeta& meta) {
  return !meta.hooks_.empty() || meta.cpp_hooks_list_ != nullptr ||
      meta.post_acc_grad_hooks_ != nullptr || meta.retains_grad_;
}

int64_t owners_in_metadata_of(const Tensor& view, const Tensor& base) {
  const auto* meta = torch::autograd::impl::get_view_autograd_meta(view);
  const bool is_view_of_it = meta != nullptr && meta->has_bw_view() &&
      meta->get_backward_view().base_.is_same(base);
  return is_view_of_it ? owners_in_metadata(*meta) : 0;
}

Verdict look_for_observers(
    const Tensor& base,
    const Tensor& view,
    int64_t expected_owners,
    int64_t discounted_storage_owners) {
  const auto* base_meta = torch::autograd::impl::get_autograd_meta(base);
  if (base_meta != nullptr && metadata_has_hooks(*base_meta)) {
    return Verdict::kHook;
  }
  const Owners of_base = owners_of(base);
  if (of_base.python != PythonHold::kNone) {
    return of_base.python == PythonHold::kName ? Verdict::kPythonName
                                               : Verdict::kWeakReference;
  }
  if (of_base.count != expected_owners) {
    return Verdict::kOtherOwner;
  }
  if (base.weak_use_count() > 1 &&
      static_cast<int64_t>(base.weak_use_count()) > 1 + watched_parts(base)) {
    return Verdict::kWeakReference;
  }
  if (base.is_leaf() && base.requires_grad()) {
    return Verdict::kLeaf;
  }
  const Tensor* base_below = below_wrapper(base);
  const Tensor* view_below = below_wrapper(view);
  if (base_below != nullptr && view_below != nullptr) {
    return look_for_observers(
        *base_below,
        *view_below,
        1 + owners_in_metadata_of(*view_below, *base_below),
        discounted_storage_owners);
  }
  if (base_below != nullptr || view_below != nullptr || !view.has_storage() ||
      !base.has_storage()) {
    return Verdict::kNoStorage;
  }
  const Owners of_storage = owners_of(base.storage());
  if (of_storage.python != PythonHold::kNone) {
    return Verdict::kPythonStorage;
  }
  return of_storage.count == 2 + discounted_storage_owners
      ? Verdict::kHidden
      : Verdict::kSharedStorage;
}

} // namespace

int64_t owners_in_metadata(const DifferentiableViewMeta& meta) {
  const auto& base = meta.get_backward_view().base_;
  const bool second = !meta.shared_view_info() && meta.has_fw_view() &&
      meta.get_forward_view().base_.is_same(base);
  return second ? 2 : 1;
}

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kHidden:
      return "hidden";
    case Verdict::kNoStorage:
      return "no_storage";
    case Verdict::kOtherOwner:
      return "other_owner";
    case Verdict::kPythonName:
      return "python_name";
    case Verdict::kWeakReference:
      return "weak_reference";
    case Verdict::kSharedStorage:
      return "shared_storage";
    case Verdict::kPythonStorage:
      return "python_storage";
    case Verdict::kLeaf:
      return "leaf";
    case Verdict::kHook:
      return "hook";
    case Verdict::kInference:
      return "inference";
    case Verdict::kStale:
      return "stale";
    case Verdict::kOverlap:
      return "overlap";
    case Verdict::kOffset:
      return "offset";
    case Verdict::kCount:
      break;
  }
  TORCH_INTERNAL_ASSERT(false, "no such verdict");
}

// Note [When a base is hidden]
//
// An alias matters only if somebody can see its other side. Nobody sees the base
// of a view when, at this moment and on this thread,
//   1. its only owner is the view's own autograd metadata. Whoever could read it
//      later (a name, a container, another view, a node that saved it) would be
//      an owner.
//   2. its memory has two owners, base and view. This sees what (1) cannot: a
//      result that its own producer saved for backward (a tensor of its own over
//      the same storage), detach(), a saved input, numpy and dlpack.
//   3. Python objects of both are held by nobody but C++, and no weak reference
//      can bring one back. See Note [Owners and Python objects].
//   4. no hook asks for the base's gradient, and it is no leaf whose gradient
//      somebody will read.
// The counts cannot rise behind our back: whoever is not an owner now has no way
// to become one, except through the view itself, which the caller is writing to.
//
// Under functorch base and view are wrappers around the tensors of the level
// below. The wrapper of the base is then the one more owner that the base below
// has, and (1) to (4) must hold on every level down to the memory.
Verdict prove_hidden(
    const Tensor& view,
    const DifferentiableViewMeta& meta,
    Discount discount) {
  const Tensor& base = meta.get_backward_view().base_;
  const int64_t expected = owners_in_metadata(meta) + discount.base;
  // Cheapest first: a visible base nearly always has a further owner. The Python
  // object may be one.
  if (static_cast<int64_t>(base.use_count()) > expected + 1) {
    return Verdict::kOtherOwner;
  }
  if (meta.get_creation_meta() == CreationMeta::INFERENCE_MODE ||
      base.is_inference() || view.is_inference()) {
    return Verdict::kInference;
  }
  if (meta.requires_grad_) {
    return Verdict::kLeaf;
  }
  return look_for_observers(base, view, expected, discount.storage);
}

} // namespace noalias
