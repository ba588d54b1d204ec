#include "one_stream.h"

#include "compat_engine.h"
#include "compat_python.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <typeinfo>

namespace noalias {

namespace {

using torch::autograd::GraphTask;

bool called_on(const GraphTask& task, const c10::Stream& stream) {
  const auto device = static_cast<size_t>(stream.device_index());
  return device < task.caller_current_streams_.size() &&
      task.caller_current_streams_[device] == stream;
}

// A Function that is written in C++. Its type is a template of PyTorch's.
bool is_cpp_function(const Node& node) {
  return std::strstr(typeid(node).name(), "CppNode") != nullptr;
}

// Nodes without a stream work on the CPU. The engine does not count a root among the
// nodes that it reaches.
bool has_nodes_on(const GraphTask& task, Node& running, const c10::Stream& stream) {
  const auto is_on_it = [&](Node* node) {
    const auto other = node->stream();
    return (!other.has_value() || *other == stream) && !is_cpp_function(*node);
  };
  const auto& nodes = task.nodes_in_graph_;
  const auto& roots = task.graph_roots_;
  return nodes.count(&running) != 0 &&
      std::all_of(nodes.begin(), nodes.end(), is_on_it) &&
      std::all_of(roots.begin(), roots.end(), is_on_it);
}

// What was found for the backward calls of this thread. Forgetting one costs a walk
// over its nodes.
class Found {
 public:
  bool of(const GraphTask& task, Node& running, const c10::Stream& stream) {
    Entry& entry = entries_[task.id_ % entries_.size()];
    if (entry.task != task.id_ || entry.stream != stream) {
      entry = {
          task.id_,
          stream,
          called_on(task, stream) && has_nodes_on(task, running, stream)};
    }
    return entry.is_one;
  }

 private:
  struct Entry {
    uint64_t task = 0;
    std::optional<c10::Stream> stream;
    bool is_one = false;
  };
  std::array<Entry, 64> entries_{};
};

Found& found() {
  thread_local Found instance;
  return instance;
}

} // namespace

bool nothing_queued_reads(const at::Tensor& gradient) {
  if (gradient.is_cpu()) {
    return true;
  }
  if (has_python_object(gradient) ||
      torch::autograd::impl::get_view_autograd_meta(gradient) != nullptr) {
    return false;
  }
  const auto* task = running_graph_task();
  const auto running = torch::autograd::get_current_node();
  if (task == nullptr || running == nullptr) {
    return false;
  }
  const auto stream = running->stream();
  const c10::Device device = gradient.device();
  return stream.has_value() && stream->device() == device &&
      c10::impl::VirtualGuardImpl(device.type()).getStream(device) == *stream &&
      found().of(*task, *running, *stream);
}

} // namespace noalias
