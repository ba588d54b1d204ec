// Copy, clear and add slices of a gradient. For the small ones on the CPU that a
// loop over time is made of, the dispatcher and the setup of an iterator cost more
// than the work; these are done here, all others by ATen.
#pragma once

#include "region.h"

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace noalias {

// Whether a contiguous slice of this many elements, on the CPU, is done here.
bool are_few(int64_t elements);

// A contiguous copy of a region. All of these are called below autograd.
at::Tensor copy_of_region(const at::Tensor& whole, const Region& region);

void clear_region(const at::Tensor& whole, const Region& region);

// Note [The next slice]
//
// The slices of a loop over time lie one behind the other, and are visited in turn.
// Once their gradient is larger than the caches, each begins with a page that nobody
// has asked for yet: at 16 KiB a slice, waiting for it takes longer than the sum. So
// while one slice is added, the one that is likely to follow is asked for. `next` is
// the offset of that one, in elements of `whole`; a wrong guess costs nothing but the
// memory's time.

// `sum += region of whole`, element by element as add_ does it.
void add_region(
    const at::Tensor& sum,
    const at::Tensor& whole,
    const Region& region,
    int64_t next);

// `region of whole += part`, element by element as add_ does it.
void add_to_region(
    const at::Tensor& whole,
    const Region& region,
    const at::Tensor& part,
    int64_t next);

} // namespace noalias
