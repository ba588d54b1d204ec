// The cure "hidden base": an in-place operator on a view whose base nobody else
// can see drops the view relationship instead of rewriting the base's history.
#pragma once

#include "override.h"
#include "proof.h"

#include <memory>

namespace noalias {

// Whether an operator of this schema writes the values of its first argument
// (a tensor or a list of tensors) in place.
bool writes_in_place(const c10::FunctionSchema& schema);

// The proof, and whether the view's history can be read without stock's refusal.
Verdict verdict_on(const Tensor& view, const DifferentiableViewMeta& meta);

// Turns `view` into an ordinary tensor with the same history.
// Requires prove_hidden(view) == kHidden.
void drop_view(const Tensor& view);

std::unique_ptr<Cure> cure_hidden_bases();

// The cure "slice update" hears of in-place calls from the same guards; see
// slice_update.h.
std::unique_ptr<Cure> cure_slice_updates();

} // namespace noalias
