// How much each aten::copy_ writes.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace noalias {

// While it is kept, every operator's arguments are boxed to be looked at: for steps
// that are measured, not for those that are timed. It holds no tensor. The
// interpreter lock must be held here.
void start_copy_log();

// Stops it, and returns for each copy_ its thread (as RecordFunction counts them)
// and the bytes it wrote, in order.
std::vector<std::pair<uint64_t, int64_t>> stop_copy_log();

} // namespace noalias
