// Which views an in-place operator may turn into ordinary tensors, instead of
// rewriting the history of their bases.
#pragma once

#include "proof.h"

namespace noalias {

// The proof, and whether the view's history can be read without stock's refusal.
Verdict verdict_on(
    const Tensor& view,
    const DifferentiableViewMeta& meta,
    Discount known = {});

// Drops the view relationship where the proof holds; says whether it did. For
// those who look at `_base` before anybody writes in place, as FSDP does.
bool release_hidden_base(const Tensor& tensor);

} // namespace noalias
