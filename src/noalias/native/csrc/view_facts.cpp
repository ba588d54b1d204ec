#include "view_facts.h"

#include "compat_python.h"
#include "hidden_base.h"

#include <algorithm>

namespace noalias {

namespace {

using torch::autograd::CreationMeta;
namespace impl = torch::autograd::impl;

const char* name_of(CreationMeta creation) {
  switch (creation) {
    case CreationMeta::DEFAULT:
      return "default";
    case CreationMeta::IN_CUSTOM_FUNCTION:
      return "custom_function";
    case CreationMeta::MULTI_OUTPUT_NODE:
      return "multi_output";
    case CreationMeta::NO_GRAD_MODE:
      return "no_grad";
    case CreationMeta::INFERENCE_MODE:
      return "inference";
  }
  TORCH_INTERNAL_ASSERT(false, "no such creation");
}

const DifferentiableViewMeta* backward_view(const Tensor& tensor) {
  const auto* meta = impl::get_view_autograd_meta(tensor);
  return meta != nullptr && meta->has_bw_view() ? meta : nullptr;
}

} // namespace

ViewFacts facts_about(const Tensor& tensor) {
  ViewFacts facts;
  const auto* meta = backward_view(tensor);
  if (meta == nullptr) {
    return facts;
  }
  const Tensor& base = meta->get_backward_view().base_;
  facts.is_view = true;
  facts.verdict = noalias::name_of(verdict_on(tensor, *meta));
  facts.base_owners =
      std::max<int64_t>(owners_of(base).count - owners_in_metadata(*meta), 0);
  if (base.has_storage()) {
    facts.storage_owners =
        std::max<int64_t>(owners_of(base.storage()).count - 2, 0);
  }
  facts.creation = name_of(meta->get_creation_meta());
  facts.base_requires_grad = base.requires_grad();
  return facts;
}

Relation relation_to(const Tensor& tensor, const Tensor& other) {
  const auto* meta = backward_view(tensor);
  // A Python object may have outlived its tensor.
  if (meta == nullptr || !other.defined() || other.is_same(tensor)) {
    return Relation::kNone;
  }
  const Tensor& base = meta->get_backward_view().base_;
  if (other.is_same(base)) {
    return Relation::kBase;
  }
  const auto* other_meta = backward_view(other);
  if (other_meta != nullptr &&
      other_meta->get_backward_view().base_.is_same(base)) {
    return Relation::kSiblingView;
  }
  const bool shares = base.has_storage() && other.has_storage() &&
      other.storage().unsafeGetStorageImpl() ==
          base.storage().unsafeGetStorageImpl();
  return shares ? Relation::kSharedStorage : Relation::kNone;
}

} // namespace noalias
