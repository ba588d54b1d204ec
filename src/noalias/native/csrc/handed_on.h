// Gradients that this thread made and that nobody but its engine has held since.
//
// Note [Kernels that still read]
//
// Where a backward call uses several streams (Note [One stream]), a node on another one
// may have queued a reader of a gradient and let go, and writing from this stream would
// be a race that CopySlices does not have. So the first update of a chain copies there,
// as stock does, and the next ones write to that copy: nobody but this thread's engine
// has ever held it, and the engine orders the streams that it passes it between.
#pragma once

#include "zero_signs.h"

#include <ATen/core/Tensor.h>

namespace noalias {

void note_handed_on(const SumKey& to, const at::Tensor& gradient);
bool was_handed_on(const SumKey& to, const at::Tensor& gradient);

} // namespace noalias
