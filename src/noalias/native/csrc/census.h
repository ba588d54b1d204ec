// What a backward call is about to pay for aliases, read from its graph.
#pragma once

#include "trail.h"

#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <string>
#include <vector>

namespace noalias {

// CopySlices nodes that one line and module made, for bases of one size.
struct RewrittenHistories {
  Call call;
  int64_t base_bytes;
  int64_t count;
  int64_t view_bytes; // of all the views together
  int64_t restored; // views whose history AsStrided takes from the base
  int64_t restored_bytes;
  int64_t chained; // whose gradient a later one of the same base hands on
  int64_t first_writes; // to a base that had no history: nothing flows on from there
  int64_t small; // slices that are copied without ATen (small_slices.h)
  uint64_t sequence_number; // of one of them, with its thread
  uint64_t thread;
  std::string wrapped; // node of the in-place operator inside that one
};

// Reads of slices of one tensor by one line and module.
struct SliceReads {
  Call call;
  std::string node;
  std::vector<int64_t> base_shape;
  std::vector<int64_t> slice_shape;
  std::string dtype;
  int64_t base_bytes;
  int64_t count;
  std::string read_from; // the node, or AccumulateGrad, that the slices are of
};

// Code that was compiled: its nodes say nothing of what is inside.
struct CompiledCalls {
  Call call;
  std::string node;
  int64_t count;
};

struct Census {
  std::vector<RewrittenHistories> histories;
  std::vector<SliceReads> reads;
  std::vector<CompiledCalls> compiled;
  int64_t nodes;
};

// Looks at every node behind `roots` once. The interpreter lock must be held.
Census take_census(const std::vector<at::Tensor>& roots);

} // namespace noalias
