// Guards without boxing for the in-place operators that programs call most.
#pragma once

#include "override.h"

#include <string>
#include <unordered_set>

namespace noalias {

// Guards them; returns the qualified names ("aten::add_.Tensor") of those that it
// has guarded. What is left is for the boxed guard.
std::unordered_set<std::string> guard_without_boxing(Overrides& overrides);

} // namespace noalias
