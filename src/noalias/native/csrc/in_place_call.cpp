#include "in_place_call.h"

#include "copy_slices.h"
#include "counters.h"
#include "dropped_view.h"
#include "hidden_base.h"
#include "placed_view.h"
#include "slice_update.h"
#include "trail.h"
#include "view_history.h"

#include <c10/util/SmallVector.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace noalias {

namespace {

// A functorch level has still to see the call. The proof knows its wrappers.
bool is_functorch_below(c10::DispatchKeySet keys) {
  constexpr c10::DispatchKeySet levels(
      {c10::DispatchKey::FuncTorchBatched,
       c10::DispatchKey::FuncTorchGradWrapper,
       c10::DispatchKey::FuncTorchDynamicLayerBackMode});
  return keys.has_any(levels);
}

// The view whose history is at stake, nullptr where none is.
const DifferentiableViewMeta* view_at_stake(
    const InPlaceCall& call,
    const Tensor& written) {
  const auto* meta = recorded_view(written, call.keys);
  return meta != nullptr && call.any_requires_grad() ? meta : nullptr;
}

// See Note [Cures that a program cannot tell].
bool must_stay_stock(const Tensor& written, const DifferentiableViewMeta& meta) {
  return effects_kept.load(std::memory_order_relaxed) &&
      (meta.get_creation_meta() != torch::autograd::CreationMeta::DEFAULT ||
       view_history(written).hooks > 0);
}

struct Outcome {
  Verdict verdict;
  bool dropped;
};

// What a call has dropped. See Note [A call that raises leaves a view].
class Drops {
 public:
  // The verdict, after acting on it.
  Outcome cure(const Tensor& written, const DifferentiableViewMeta& meta) {
    const Verdict verdict =
        verdict_on(written, meta, held(meta.get_backward_view().base_));
    count(counters().seen);
    if (verdict != Verdict::kHidden) {
      count(counters().kept[static_cast<size_t>(verdict)]);
      return {verdict, false};
    }
    const bool drop = hidden_bases_on.load(std::memory_order_relaxed) &&
        !must_stay_stock(written, meta);
    if (drop) {
      dropped_.emplace_back(written);
      count(counters().cured);
    }
    return {verdict, drop};
  }

  void cure_if_at_stake(const InPlaceCall& call, const Tensor& written) {
    if (!hidden_bases_on.load(std::memory_order_relaxed)) {
      return;
    }
    if (const auto* meta = view_at_stake(call, written)) {
      cure(written, *meta);
    }
  }

  template <typename Stock>
  void during(const Stock& stock) {
    try {
      stock();
    } catch (...) {
      std::for_each(dropped_.rbegin(), dropped_.rend(), [](DroppedView& view) {
        view.give_back();
      });
      throw;
    }
  }

 private:
  Discount held(const Tensor& base) const {
    Discount ours;
    for (const DroppedView& view : dropped_) {
      ours.base += view.owners_of_base(base);
    }
    return ours;
  }

  c10::SmallVector<DroppedView, 1> dropped_;
};

// What the cures make of the node that stock has put behind the base.
void mend_history(const InPlaceCall& call, const CopySlicesWatch& watch) {
  auto* fresh = watch.fresh();
  if (fresh == nullptr) {
    return;
  }
  if (hidden_bases_on.load(std::memory_order_relaxed)) {
    place_view(*fresh, watch.written());
  }
  if (slice_updates_on.load(std::memory_order_relaxed) &&
      !is_functorch_below(call.keys)) {
    update_slices_of_gradient(*fresh, watch.written());
  }
}

void call_watched(const InPlaceCall& call, const Tensor& written) {
  if (recorded_view(written, call.keys) == nullptr) {
    std::optional<RetainedGradient> retained;
    if (must_carry_retained_gradient(written, call.keys)) {
      retained.emplace(written);
    }
    call.stock();
    return;
  }
  const CopySlicesWatch watch(written);
  call.stock();
  mend_history(call, watch);
}

// The views of a list, where the history of one will have to be placed.
std::vector<CopySlicesWatch> watch_misplaced(
    c10::ArrayRef<Tensor> written,
    c10::DispatchKeySet keys) {
  std::vector<CopySlicesWatch> watches;
  bool any = false;
  for (const Tensor& tensor : written) {
    if (recorded_view(tensor, keys) != nullptr) {
      watches.emplace_back(tensor);
      any = any || is_misplaced(tensor);
    }
  }
  if (!any) {
    watches.clear();
  }
  return watches;
}

std::vector<std::unique_ptr<RetainedGradient>> carry_retained_gradients(
    const InPlaceCall& call,
    c10::ArrayRef<Tensor> written) {
  std::vector<std::unique_ptr<RetainedGradient>> carried;
  for (const Tensor& tensor : written) {
    if (must_carry_retained_gradient(tensor, call.keys)) {
      carried.push_back(std::make_unique<RetainedGradient>(tensor));
    }
  }
  return carried;
}

// Stock's call on a list: its slices are placed, and updated as stock does.
void call_placed(const InPlaceCall& call, c10::ArrayRef<Tensor> written) {
  std::vector<CopySlicesWatch> watches;
  if (hidden_bases_on.load(std::memory_order_relaxed)) {
    watches = watch_misplaced(written, call.keys);
  }
  const auto retained = carry_retained_gradients(call, written);
  call.stock();
  // The node of a base's last view is on top, that of the one before below it.
  for (const auto i : c10::irange(watches.size())) {
    const auto later = c10::irange(i + 1, watches.size());
    const auto above = std::count_if(later.begin(), later.end(), [&](size_t k) {
      return watches[k].has_base_of(watches[i]);
    });
    if (auto* fresh = watches[i].fresh(above)) {
      place_view(*fresh, watches[i].written());
    }
  }
}

void tell_of_write(
    const InPlaceCall& call,
    const std::string& name,
    const Tensor& written,
    bool recording,
    Drops& drops) {
  const auto* meta = view_at_stake(call, written);
  std::optional<Outcome> outcome;
  if (meta != nullptr) {
    outcome = drops.cure(written, *meta);
  }
  note_write(name, written);
  if (recording && written.defined() &&
      (outcome.has_value() || listening_to_all())) {
    tell(
        outcome.has_value() && outcome->dropped ? "cured" : "write",
        name,
        written,
        outcome.has_value() ? name_of(outcome->verdict) : "");
  }
}

// The same with somebody listening; `stock` is what remains to be called.
template <typename Stock>
void call_and_tell(
    const InPlaceCall& call,
    c10::ArrayRef<Tensor> written,
    const Stock& stock) {
  const std::string name = c10::toString(call.op.operator_name());
  const bool recording =
      c10::GradMode::is_enabled() && !is_observed_below(call.keys);
  Drops drops;
  for (const Tensor& tensor : written) {
    tell_of_write(call, name, tensor, recording, drops);
  }
  try {
    drops.during(stock);
  } catch (const std::exception& error) {
    if (recording && !written.empty()) {
      tell("failed", name, written.front(), error.what());
    }
    throw;
  }
}

} // namespace

void InPlaceCall::on(const Tensor& written) const {
  if (listening()) {
    const Tensor kept = written;
    call_and_tell(*this, kept, [&] { call_watched(*this, kept); });
    return;
  }
  Drops drops;
  drops.cure_if_at_stake(*this, written);
  drops.during([&] { call_watched(*this, written); });
}

void InPlaceCall::on(const std::vector<Tensor>& written) const {
  if (listening()) {
    call_and_tell(*this, written, [&] { call_placed(*this, written); });
    return;
  }
  Drops drops;
  for (const Tensor& tensor : written) {
    drops.cure_if_at_stake(*this, tensor);
  }
  drops.during([&] { call_placed(*this, written); });
}

} // namespace noalias
