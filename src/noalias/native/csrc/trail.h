// Which line of the user's made a node, and which wrote to a tensor.
#pragma once

#include "places.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace noalias {

// A number that Python gives to a module's path; 0 outside modules.
using ModuleNumber = uint32_t;

// An operator that the program called (not one that another operator called).
struct Call {
  std::string op;
  Place place;
  ModuleNumber module;
};

// A write to a tensor's memory.
struct LoggedWrite {
  std::string op;
  Place place;
  ModuleNumber module;
  int64_t version; // the version counter before it
  std::vector<int64_t> shape;
};

// Starts and stops keeping track. See Note [The trail]. The interpreter lock must be
// held here, and for everything below but note_write().
void start_trail();
void stop_trail();

// Whether nobody but the trail observes this thread's operators (no profiler). Backward
// that records no history leaves nothing on the trail, and runs faster unobserved: the
// engine writes a text for each node that is. Not so once the program has called a
// reentrant checkpoint, which runs its lines again in there.
bool backward_may_go_unobserved();

// The call that made the node with this sequence number on this thread (as
// RecordFunction counts threads), if it is still known.
std::optional<Call> call_behind(uint64_t sequence_number, uint64_t thread);

// The call that is running on this thread, with the innermost line of the user's and
// the module. The operator is empty where no history is recorded.
Call current_call();

// The calls before the current one, from the same line, latest first.
std::vector<Call> calls_before(size_t most);

void set_current_module(ModuleNumber module);

// Logs an in-place call, about to happen on this thread. Takes the interpreter lock.
void note_write(const std::string& op, const at::Tensor& written);

// The writes to one storage (by address), oldest first, as far as they are known;
// to every storage for an address of 0.
std::vector<LoggedWrite> writes_to(int64_t storage);

// Entries held at this moment, for tests: calls of all threads, and writes.
std::pair<size_t, size_t> trail_size();

} // namespace noalias
