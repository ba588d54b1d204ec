// The cure "linear": F.linear, nn.Linear and functorch's copy of them become the
// whole operator, so that their result is no view even before an in-place call.
#pragma once

#include "override.h"

#include <memory>

namespace noalias {

std::unique_ptr<Cure> cure_linear();

} // namespace noalias
