// Which gradient sums are known to hold no negative zero.
//
// Note [Negative zeros]
//
// A zero-filled gradient that is added to a sum leaves every number outside of its
// part alone but one: -0.0 + 0.0 is +0.0. Whoever adds only his part has to do the
// same to all the rest, or the bits differ from stock PyTorch. That is a pass over
// the whole sum, which is what was to be saved; but it is needed once: a sum of two
// numbers is -0.0 only where both are, so what has been cleared stays clear whatever
// is added to it. What is known of sums is remembered for each backward call, node
// and input, in a table of fixed size for each thread. Forgetting it costs another
// pass, never a wrong bit.
#pragma once

#include "compat.h"
#include "region.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace noalias {

// What the running backward call `task` feeds into input `slot` of `node`.
struct SumKey {
  uint64_t task = 0;
  const Node* node = nullptr;
  uint32_t slot = 0;

  bool operator==(const SumKey& other) const {
    return task == other.task && node == other.node && slot == other.slot;
  }
};

// Adds `part` to that region of `sum`, and to the rest what stock would add: zero.
void add_zero_filled(
    const SumKey& key,
    const at::Tensor& sum,
    const Region& region,
    const at::Tensor& part);

// `contribution`, which is +0.0 outside of `part`, is about to be added.
void remember_zero_filled(
    const SumKey& key,
    const at::Tensor& contribution,
    Region&& part);

// The sum `from` is passed on as the contribution `gradient` to `to`, with
// `written` (if any) overwritten by numbers of any sign.
void hand_on(
    const SumKey& from,
    const SumKey& to,
    const at::Tensor& gradient,
    const std::optional<Region>& written);

} // namespace noalias
