// Whether a kernel that was queued before may still read a gradient.
#pragma once

#include <ATen/core/Tensor.h>

namespace noalias {

// Note [One stream]
//
// A count of owners tells who may ask for a gradient later, not which kernels are
// queued to read it. On the CPU a call is over when it returns. On an accelerator a
// node on another stream may have queued a reader and let go, and the engine does not
// order what this node writes behind it.
//
// Where every node of the backward call, and whoever made that call, is on the stream
// that is current now, all readers were queued there, before the writer. What else a
// gradient may be read by is not in the graph's hands:
//   1. code in Python, a hook or a Function, may queue a reader on a stream of its own
//      and let go. What Python has seen is not proved, nor is a view: Python may have
//      seen another one of the same memory.
//   2. a Function in C++ may do the same, and may return a tensor of the forward pass
//      that others have read. A call with one of those is not proved.
//
// The nodes live as long as the call: it holds its roots, and nobody changes the edges
// of a node that has been reached.
bool nothing_queued_reads(const at::Tensor& gradient);

} // namespace noalias
