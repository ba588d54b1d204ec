// The cure "sibling views": a slice that was read writes its gradient into the sum
// of the base's gradient, instead of a zero-filled gradient of the base's size.
#pragma once

#include "override.h"

#include <memory>

namespace noalias {

std::unique_ptr<Cure> cure_sibling_views();

} // namespace noalias
