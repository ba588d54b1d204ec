// Which gradient sums are known to hold no negative zero.
//
// Note [Negative zeros]
//
// A zero-filled gradient that is added to a sum leaves every number alone but
// one: -0.0 + 0.0 is +0.0. Whoever adds only his part to the sum has to do the
// same to all of it, or the bits differ from stock PyTorch. That is one pass over
// the whole sum, which is what was to be saved; but it is needed once: in a sum
// of two numbers -0.0 appears only where both are -0.0, so a sum that has been
// cleared stays clear whatever is added to it. Known sums are remembered for each
// backward call, node and input, in a small table of fixed size for each thread.
// Forgetting one costs a second pass, never a wrong bit.
#pragma once

#include "compat.h"

#include <ATen/core/Tensor.h>
#include <c10/util/DimVector.h>

#include <cstdint>
#include <optional>

namespace noalias {

// A view of a gradient, relative to its first element.
struct Region {
  c10::DimVector sizes;
  c10::DimVector strides;
  int64_t offset = 0;

  at::Tensor of(const at::Tensor& whole) const;

  bool operator==(const Region& other) const {
    return offset == other.offset && sizes == other.sizes &&
        strides == other.strides;
  }
};

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

// Records that `sum` was cleared, by whatever means.
void remember_cleared(const SumKey& key);

// `from` is passed on as a contribution to `to`, with `written` (if any)
// overwritten by numbers of any sign.
void hand_on(
    const SumKey& from,
    const SumKey& to,
    const std::optional<Region>& written);

} // namespace noalias
