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

// `sum += region of whole`, element by element as add_ does it.
void add_region(
    const at::Tensor& sum,
    const at::Tensor& whole,
    const Region& region);

// `slice += part`, element by element as add_ does it.
void add_part(const at::Tensor& slice, const at::Tensor& part);

} // namespace noalias
