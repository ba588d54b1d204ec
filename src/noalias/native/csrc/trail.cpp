#include "trail.h"

#include "interpreter.h"
#include "ring.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace noalias {

namespace {

// Note [The trail]
//
// A node of the graph knows its sequence number, and nothing of the line that made
// it. The numbers of one thread only rise, so it is enough to note, for each
// operator that the program itself calls while history is recorded, the number the
// next node will get and the line. The node n was made by the last call noted at or
// below n. One entry for each such call, in a ring of fixed size for each thread: the
// trail does not grow with the length of a run, and holds no tensor.
//
// Operators called by operators are passed over: their line is that of the
// outermost. What a node of backward calls is noted only where it records history
// itself: with create_graph, and in a checkpoint, which runs the program's own lines
// again.
constexpr size_t kMostCalls = size_t{1} << 16;
constexpr size_t kMostWrites = size_t{1} << 14;
constexpr size_t kMostThreads = 64;

using OpNumber = uint32_t;

struct CallEntry {
  uint64_t sequence_number;
  OpNumber op;
  Place place;
  ModuleNumber module;
};

struct WriteEntry {
  const void* storage;
  int64_t version;
  OpNumber op;
  Place place;
  ModuleNumber module;
  uint32_t dims;
  std::array<int64_t, 6> sizes; // longer shapes are not compared
};

// Guarded by the interpreter lock.
struct Trails {
  std::unordered_map<uint64_t, Ring<CallEntry>> calls;
  Ring<WriteEntry> writes{kMostWrites};
  std::deque<std::string> ops;
  std::unordered_map<std::string_view, OpNumber> op_numbers;
  at::CallbackHandle callback = at::INVALID_CALLBACK_HANDLE;
  bool any_checkpoint = false;
};

Trails& trails() {
  static auto& all = *std::make_unique<Trails>().release();
  return all;
}

std::atomic<bool> trail_is_on{false};
thread_local int64_t depth = 0; // of operators, in the innermost node of backward
thread_local std::vector<int64_t> depths_outside; // of the nodes around that
thread_local ModuleNumber current_module = 0;
thread_local std::optional<OpNumber> running; // the call that the program made

OpNumber number_of_op(const char* name) {
  Trails& all = trails();
  const auto found = all.op_numbers.find(name);
  if (found != all.op_numbers.end()) {
    return found->second;
  }
  // That of torch.utils.checkpoint and of libraries after it, which run forward again
  // inside backward.
  constexpr std::string_view checkpoint = "CheckpointFunction";
  if (std::string_view(name).find(checkpoint) != std::string_view::npos) {
    all.any_checkpoint = true;
  }
  const auto number = static_cast<OpNumber>(all.ops.size());
  all.ops.emplace_back(name);
  all.op_numbers.emplace(all.ops.back(), number);
  return number;
}

Call to_call(const CallEntry& entry) {
  return {trails().ops[entry.op], entry.place, entry.module};
}

void note_call(const at::RecordFunction& call) {
  const WithInterpreter python;
  if (python.state() == nullptr) {
    return;
  }
  Trails& all = trails();
  const uint64_t thread = at::RecordFunction::currentThreadId();
  auto ring = all.calls.find(thread);
  if (ring == all.calls.end()) {
    if (all.calls.size() >= kMostThreads) {
      // Threads that have ended leave their trails behind; nodes they made are
      // told without a line then.
      all.calls.clear();
    }
    ring = all.calls.emplace(thread, Ring<CallEntry>(kMostCalls)).first;
  }
  running = number_of_op(call.name());
  ring->second.push(
      {at::sequence_number::peek(),
       *running,
       current_place(python.state()),
       current_module});
}

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& call) {
  if (depth == 0 && c10::GradMode::is_enabled()) {
    note_call(call);
  }
  if (call.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    depths_outside.push_back(std::exchange(depth, 0));
  } else {
    ++depth;
  }
  return nullptr;
}

void leave(const at::RecordFunction& call, at::ObserverContext* /*context*/) {
  if (call.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    depth = depths_outside.back();
    depths_outside.pop_back();
  } else {
    --depth;
  }
  if (depth == 0) {
    running.reset();
  }
}

} // namespace

void start_trail() {
  Trails& all = trails();
  if (all.callback != at::INVALID_CALLBACK_HANDLE) {
    return;
  }
  all.callback = at::addGlobalCallback(
      at::RecordFunctionCallback(&enter, &leave)
          .scopes(
              {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  trail_is_on = true;
}

void stop_trail() {
  Trails& all = trails();
  if (all.callback == at::INVALID_CALLBACK_HANDLE) {
    return;
  }
  trail_is_on = false;
  at::removeCallback(all.callback);
  all.callback = at::INVALID_CALLBACK_HANDLE;
  all.calls.clear();
  all.writes = Ring<WriteEntry>(kMostWrites);
}

bool backward_may_go_unobserved() {
  if (!trail_is_on.load(std::memory_order_relaxed) || trails().any_checkpoint) {
    return false;
  }
  const auto callbacks =
      at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION);
  return callbacks.has_value() && callbacks->callbacks_.size() == 1;
}

std::optional<Call> call_behind(uint64_t sequence_number, uint64_t thread) {
  const Trails& all = trails();
  const auto found = all.calls.find(thread);
  if (found == all.calls.end()) {
    return std::nullopt;
  }
  const auto& ring = found->second;
  size_t below = 0;
  size_t above = ring.size();
  while (below < above) {
    const size_t middle = below + (above - below) / 2;
    if (ring[middle].sequence_number <= sequence_number) {
      below = middle + 1;
    } else {
      above = middle;
    }
  }
  return below == 0 ? std::nullopt : std::optional(to_call(ring[below - 1]));
}

Call current_call() {
  const WithInterpreter python;
  return {
      running.has_value() ? trails().ops[*running] : "",
      current_place(python.state()),
      current_module};
}

std::vector<Call> calls_before(size_t most) {
  const Trails& all = trails();
  std::vector<Call> calls;
  const auto found = all.calls.find(at::RecordFunction::currentThreadId());
  if (found == all.calls.end() || found->second.size() == 0) {
    return calls;
  }
  const auto& ring = found->second;
  const size_t last = ring.size() - 1; // the call that is running
  for (size_t back = 1; back <= std::min(most, last); ++back) {
    calls.push_back(to_call(ring[last - back]));
  }
  return calls;
}

void set_current_module(ModuleNumber module) {
  current_module = module;
}

void note_write(const std::string& op, const at::Tensor& written) {
  // What backward itself accumulates in place is nobody's line.
  const bool in_backward =
      torch::autograd::get_current_graph_task_id() != -1;
  if (!trail_is_on.load(std::memory_order_relaxed) || in_backward ||
      !written.defined() || !written.has_storage() || written.is_inference()) {
    return;
  }
  const WithInterpreter python;
  if (python.state() == nullptr) {
    return;
  }
  WriteEntry entry{
      written.storage().unsafeGetStorageImpl(),
      written._version(),
      number_of_op(op.c_str()),
      current_place(python.state()),
      current_module,
      static_cast<uint32_t>(written.dim()),
      {}};
  const auto sizes = written.unsafeGetTensorImpl()->has_symbolic_sizes_strides()
      ? at::IntArrayRef()
      : written.sizes();
  std::copy_n(
      sizes.begin(), std::min(sizes.size(), entry.sizes.size()), entry.sizes.begin());
  trails().writes.push(entry);
}

std::vector<LoggedWrite> writes_to(int64_t storage) {
  const Trails& all = trails();
  std::vector<LoggedWrite> found;
  for (size_t i = 0; i < all.writes.size(); ++i) {
    const WriteEntry& entry = all.writes[i];
    if (storage == 0 || reinterpret_cast<int64_t>(entry.storage) == storage) {
      const auto dims = std::min<size_t>(entry.dims, entry.sizes.size());
      found.push_back(
          {all.ops[entry.op],
           entry.place,
           entry.module,
           entry.version,
           {entry.sizes.begin(), entry.sizes.begin() + static_cast<int64_t>(dims)}});
    }
  }
  return found;
}

std::pair<size_t, size_t> trail_size() {
  const Trails& all = trails();
  size_t calls = 0;
  for (const auto& [thread, ring] : all.calls) {
    calls += ring.size();
  }
  return {calls, all.writes.size()};
}

} // namespace noalias
