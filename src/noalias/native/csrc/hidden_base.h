// An in-place operator on a view whose base nobody else can see drops the view
// relationship instead of rewriting the base's history.
#pragma once

#include "proof.h"

namespace noalias {

// The proof, and whether the view's history can be read without stock's refusal.
Verdict verdict_on(const Tensor& view, const DifferentiableViewMeta& meta);

// Turns `view` into an ordinary tensor with the same history.
// Requires verdict_on(view) == kHidden.
void drop_view(const Tensor& view);

// drop_view where the proof holds; says whether it did. For those who look at
// `_base` before anybody writes in place, as FSDP does.
bool release_hidden_base(const Tensor& tensor);

} // namespace noalias
