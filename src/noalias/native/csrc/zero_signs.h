// Which gradient sums are known to hold no negative zero.
//
// Note [Negative zeros]
//
// A zero-filled gradient that is added to a sum leaves every number alone but
// one: -0.0 + 0.0 is +0.0. Whoever adds only his part to the sum has to do the
// same to all of it, or the bits differ from stock PyTorch. That is a pass over
// the whole sum, which is what was to be saved; but it is needed once: in a sum
// of two numbers -0.0 appears only where both are -0.0, so a sum that has been
// cleared stays clear whatever is added to it. Known sums are remembered for each
// backward call, node and input, in a table of fixed size for each thread.
// Forgetting one costs another pass, never a wrong bit.
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

// Turns every -0.0 in `sum` into +0.0 where that is not known to be done.
void clear_negative_zeros(const SumKey& key, const at::Tensor& sum);

// Records that all of the sum is clear.
void remember_cleared(const SumKey& key, const at::Tensor& sum);

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
