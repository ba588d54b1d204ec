#include "in_place_call.h"

#include "copy_slices.h"
#include "counters.h"
#include "hidden_base.h"
#include "placed_view.h"
#include "slice_update.h"
#include "trail.h"
#include "view_history.h"

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

// The verdict, after acting on it.
Outcome cure(const Tensor& written, const DifferentiableViewMeta& meta) {
  const Verdict verdict = verdict_on(written, meta);
  count(counters().seen);
  if (verdict != Verdict::kHidden) {
    count(counters().kept[static_cast<size_t>(verdict)]);
    return {verdict, false};
  }
  const bool drop = hidden_bases_on.load(std::memory_order_relaxed) &&
      !must_stay_stock(written, meta);
  if (drop) {
    drop_view(written);
    count(counters().cured);
  }
  return {verdict, drop};
}

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

void call_watched(
    const InPlaceCall& call,
    const Tensor& written,
    bool is_view) {
  if (!is_view) {
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

// A call with somebody listening.
class Heard {
 public:
  explicit Heard(const InPlaceCall& call)
      : name_(c10::toString(call.op.operator_name())),
        recording_(
            c10::GradMode::is_enabled() && !is_observed_below(call.keys)) {}

  // Whether it is still a view whose history is at stake.
  bool cure_and_tell(
      const Tensor& written,
      const DifferentiableViewMeta* at_stake) const {
    std::optional<Outcome> outcome;
    if (at_stake != nullptr) {
      outcome = cure(written, *at_stake);
    }
    note_write(name_, written);
    if (recording_ && written.defined() &&
        (outcome.has_value() || listening_to_all())) {
      tell(
          outcome.has_value() && outcome->dropped ? "cured" : "write",
          name_,
          written,
          outcome.has_value() ? name_of(outcome->verdict) : "");
    }
    return outcome.has_value() && !outcome->dropped;
  }

  // `stock`, and what it raises is told.
  template <typename Stock>
  void run(c10::ArrayRef<Tensor> written, const Stock& stock) const {
    try {
      stock();
    } catch (const std::exception& error) {
      if (recording_ && !written.empty()) {
        tell("failed", name_, written.front(), error.what());
      }
      throw;
    }
  }

 private:
  std::string name_;
  bool recording_;
};

} // namespace

void InPlaceCall::on(
    const Tensor& written,
    const DifferentiableViewMeta* at_stake) const {
  if (listening()) {
    const Heard heard(*this);
    const bool is_view = heard.cure_and_tell(written, at_stake);
    heard.run(written, [&] { call_watched(*this, written, is_view); });
    return;
  }
  bool is_view = at_stake != nullptr;
  if (is_view && hidden_bases_on.load(std::memory_order_relaxed)) {
    is_view = !cure(written, *at_stake).dropped;
  }
  call_watched(*this, written, is_view);
}

void InPlaceCall::on(const std::vector<Tensor>& written) const {
  if (listening()) {
    const Heard heard(*this);
    for (const Tensor& tensor : written) {
      heard.cure_and_tell(
          tensor, view_at_stake(tensor, keys, any_requires_grad));
    }
    heard.run(written, [&] { call_placed(*this, written); });
    return;
  }
  if (hidden_bases_on.load(std::memory_order_relaxed)) {
    for (const Tensor& tensor : written) {
      if (const auto* at_stake = view_at_stake(tensor, keys, any_requires_grad)) {
        cure(tensor, *at_stake);
      }
    }
  }
  call_placed(*this, written);
}

} // namespace noalias
