#include "sibling_parts.h"

#include "region.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace noalias {

namespace {

using torch::autograd::CreationMeta;
using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl>;

struct Part {
  WeakTensor tensor;
  bool dropped = false; // an ordinary tensor by now, over the same memory
};

struct Family {
  std::vector<Part> parts;
  bool mixed = false; // of several calls: parts may overlap
};

const DifferentiableViewMeta* view_of(
    const Tensor& tensor,
    const c10::TensorImpl* base) {
  const auto* meta = torch::autograd::impl::get_view_autograd_meta(tensor);
  const bool is_view_of_it = meta != nullptr && meta->has_bw_view() &&
      meta->get_backward_view().base_.unsafeGetTensorImpl() == base;
  return is_view_of_it ? meta : nullptr;
}

Tensor locked(const Part& part) {
  auto impl = part.tensor.lock();
  return impl.defined() ? Tensor(std::move(impl)) : Tensor();
}

// Note [Siblings]
//
// split, chunk and unbind return several views of one base, so each part sees
// the base's other owners: its siblings. PyTorch forbids in-place operators on
// such views. But where the siblings are all there is, and the parts share no
// memory, nobody can see a write to one of them, and it is legal and right.
//
// The table remembers who the siblings are, by base, with weak references. They
// keep no memory alive but the tensor objects themselves, and those of families
// that have died are swept when the table has doubled. The proof would take a
// weak reference for an observer's, so it asks how many are ours.
//
// A part that stops being a view gets a version counter of its own: a sibling
// saved for backward is not touched by writes to its neighbour. That is safe
// because the proof has found no other tensor over the part's own memory that
// could have been saved with the old counter.
class Families {
 public:
  void record(const Tensor& base, const std::vector<Tensor>& parts) {
    const std::lock_guard<std::mutex> guard(lock_);
    sweep();
    Family& family = by_base_[base.unsafeGetTensorImpl()];
    if (!family.parts.empty()) {
      if (has_views(family, base.unsafeGetTensorImpl())) {
        family.mixed = true;
      } else {
        forget(family);
      }
    }
    for (const Tensor& part : parts) {
      family.parts.push_back({WeakTensor(part.getIntrusivePtr()), false});
      ++watched_[part.unsafeGetTensorImpl()];
    }
  }

  std::optional<Discount> discount(
      const Tensor& view,
      const DifferentiableViewMeta& meta) {
    const Tensor& base = meta.get_backward_view().base_;
    const std::lock_guard<std::mutex> guard(lock_);
    const auto found = by_base_.find(base.unsafeGetTensorImpl());
    if (found == by_base_.end() || found->second.mixed) {
      return std::nullopt;
    }
    Discount siblings;
    bool is_part = false;
    for (const Part& part : found->second.parts) {
      const Tensor other = locked(part);
      if (!other.defined()) {
        continue;
      }
      if (other.is_same(view)) {
        is_part = true;
        continue;
      }
      const auto* other_meta = part.dropped
          ? nullptr
          : view_of(other, base.unsafeGetTensorImpl());
      if (part.dropped || other_meta != nullptr) {
        // Its `.data` may have been replaced.
        siblings.storage += other.has_storage() && base.has_storage() &&
            other.storage().is_alias_of(base.storage());
      }
      if (other_meta != nullptr) {
        siblings.base += owners_in_metadata(*other_meta);
      }
    }
    return is_part ? std::optional<Discount>(siblings) : std::nullopt;
  }

  void leave(const Tensor& view, const c10::TensorImpl* base) {
    const std::lock_guard<std::mutex> guard(lock_);
    const auto found = by_base_.find(base);
    if (found == by_base_.end()) {
      return;
    }
    for (Part& part : found->second.parts) {
      if (part.tensor._unsafe_get_target() == view.unsafeGetTensorImpl()) {
        part.dropped = true;
        view.unsafeGetTensorImpl()->set_version_counter(
            c10::VariableVersion(static_cast<uint32_t>(view._version())));
      }
    }
  }

  int64_t watched(const Tensor& tensor) {
    const std::lock_guard<std::mutex> guard(lock_);
    const auto found = watched_.find(tensor.unsafeGetTensorImpl());
    return found == watched_.end() ? 0 : found->second;
  }

 private:
  static bool has_views(const Family& family, const c10::TensorImpl* base) {
    return std::any_of(
        family.parts.begin(), family.parts.end(), [&](const Part& part) {
          const Tensor tensor = locked(part);
          return tensor.defined() && view_of(tensor, base) != nullptr;
        });
  }

  void forget(Family& family) {
    for (const Part& part : family.parts) {
      const auto found = watched_.find(part.tensor._unsafe_get_target());
      if (found != watched_.end() && --found->second == 0) {
        watched_.erase(found);
      }
    }
    family = Family();
  }

  // Constant time on average: the table is walked when it has doubled.
  void sweep() {
    if (by_base_.size() < next_sweep_) {
      return;
    }
    for (auto entry = by_base_.begin(); entry != by_base_.end();) {
      const auto& parts = entry->second.parts;
      const bool dead =
          std::all_of(parts.begin(), parts.end(), [](const Part& part) {
            return part.tensor.expired();
          });
      if (dead) {
        forget(entry->second);
        entry = by_base_.erase(entry);
      } else {
        ++entry;
      }
    }
    next_sweep_ = std::max<size_t>(64, 2 * by_base_.size());
  }

  std::mutex lock_;
  std::unordered_map<const c10::TensorImpl*, Family> by_base_;
  std::unordered_map<const c10::TensorImpl*, int64_t> watched_;
  size_t next_sweep_ = 64;
};

// Owned by the core, for the life of the process; it has a lock of its own.
Families& families() {
  static Families instance;
  return instance;
}

class SeveralViewsGuard final : public Guard {
 public:
  using Guard::Guard;

  void operator()(
      const c10::OperatorHandle& op,
      c10::DispatchKeySet keys,
      Stack* stack) override {
    const size_t count = op.schema().arguments().size();
    const Tensor input = (*stack)[stack->size() - count].toTensor();
    call_stock(op, keys, stack);
    if (!c10::GradMode::is_enabled() || !input.has_storage()) {
      return;
    }
    const auto parts = stack->back().toTensorVector();
    if (parts.size() < 2) {
      return;
    }
    const auto* meta =
        torch::autograd::impl::get_view_autograd_meta(parts.front());
    if (meta != nullptr && meta->has_bw_view() &&
        meta->get_creation_meta() == CreationMeta::MULTI_OUTPUT_NODE &&
        !may_overlap(input.sizes(), input.strides())) {
      families().record(meta->get_backward_view().base_, parts);
    }
  }
};

} // namespace

void watch_siblings(Overrides& overrides) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& [name, overload] :
       {std::pair{"aten::split", "Tensor"},
        std::pair{"aten::split_with_sizes", ""},
        std::pair{"aten::unbind", "int"}}) {
    overrides.add<SeveralViewsGuard>(
        dispatcher.findSchemaOrThrow(name, overload));
  }
}

std::optional<Discount> discount_for_siblings(
    const Tensor& view,
    const DifferentiableViewMeta& meta) {
  // A tangent is a view of the base's tangent, which siblings share as well.
  if (meta.get_creation_meta() != CreationMeta::MULTI_OUTPUT_NODE ||
      view._fw_grad(/*level=*/0).defined()) {
    return std::nullopt;
  }
  return families().discount(view, meta);
}

void leave_siblings(const Tensor& view) {
  const auto* meta = torch::autograd::impl::get_view_autograd_meta(view);
  if (meta->get_creation_meta() == CreationMeta::MULTI_OUTPUT_NODE) {
    families().leave(
        view, meta->get_backward_view().base_.unsafeGetTensorImpl());
  }
}

int64_t watched_parts(const Tensor& tensor) {
  return families().watched(tensor);
}

} // namespace noalias
