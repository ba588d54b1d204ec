// The parts that split, chunk and unbind made of one base.
#pragma once

#include "override.h"
#include "proof.h"

#include <cstdint>
#include <optional>

namespace noalias {

// Guards the operators that return several views, so that siblings are known.
void watch_siblings(Overrides& overrides);

// What the siblings of `view` own of its base, if all of them are disjoint parts
// from one call; nullopt if `view` is no such part.
std::optional<Discount> discount_for_siblings(
    const Tensor& view,
    const DifferentiableViewMeta& meta);

// `view` is about to stop being a view. A part gets a version counter of its own.
void leave_siblings(const Tensor& view);

// Weak references to `tensor` that are only this table's.
int64_t watched_parts(const Tensor& tensor);

} // namespace noalias
