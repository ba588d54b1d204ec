// The cure "owned gradient": the backward of an elementwise operator writes into
// the gradient it received, when nobody else can see it.
#pragma once

#include "override.h"

#include <memory>

namespace noalias {

std::unique_ptr<Cure> cure_owned_gradients();

} // namespace noalias
