// The guards in front of PyTorch's in-place operators, one set for all cures that
// want to hear of an in-place call.
#pragma once

#include "override.h"

#include <memory>

namespace noalias {

// Whether an operator of this schema writes the values of its first argument
// (a tensor or a list of tensors) in place.
bool writes_in_place(const c10::FunctionSchema& schema);

// Switches below: on while the object lives.
std::unique_ptr<Cure> cure_hidden_bases();
std::unique_ptr<Cure> cure_slice_updates();

// Whether cures leave alone what a program could tell them by; see Note [Cures that a
// program cannot tell].
void keep_stock_effects(bool on);

// Not a cure: the guards are there for the listener of events.h alone, and every
// program runs as in stock PyTorch.
std::unique_ptr<Cure> watch_in_place_calls();

} // namespace noalias
