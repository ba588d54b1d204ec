// What the audit says of a view that is written to.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace noalias {

struct ViewHistory {
  bool is_view = false;
  int64_t base = 0; // the base's address: tells bases apart while they live
  int64_t storage = 0; // likewise of its memory
  int64_t base_bytes = 0;
  double share = 0; // of the base's elements that the view has
  int64_t made = -1; // sequence number of the node that made the view
  uint64_t thread = 0; // that counted it
  std::string node; // its name
  bool rewritten = false; // that node already comes from an earlier write
  int64_t hooks = 0; // on the view, and on that node
};

// Reads and changes nothing: above all it brings no stale history up to date, as
// reading `grad_fn` does, and makes no Python object for the base.
ViewHistory view_history(const at::Tensor& tensor);

} // namespace noalias
