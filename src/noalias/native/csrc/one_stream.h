// Whether a backward call queues all its kernels on one stream.
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
//      and let go. What Python has seen is not written (owned_memory.cpp,
//      slice_update_node.cpp).
//   2. a Function in C++ may do the same, and may return a tensor of the forward pass
//      that others have read. A call with one of those is not proved.
//
// The nodes live as long as the call: it holds its roots, and nobody changes the edges
// of a node that has been reached.
bool runs_on_one_stream(const at::Tensor& gradient);

} // namespace noalias
