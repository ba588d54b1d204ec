#include "compat_engine.h"

#include <c10/util/Type.h>
#include <torch/csrc/autograd/cpp_hook.h>
#include <torch/csrc/autograd/input_buffer.h>

#include <type_traits>
#include <typeinfo>
#include <utility>

namespace noalias {

namespace {

using torch::autograd::GraphTask;
using torch::autograd::InputBuffer;

// From 2.14 on: set when a node's stream was replaced under graph capture.
template <typename Buffer, typename = void>
struct Overridden {
  static bool is(const Buffer& /*buffer*/) {
    return false;
  }
};
template <typename Buffer>
struct Overridden<
    Buffer,
    std::void_t<decltype(std::declval<Buffer&>()
                             .opt_overridden_consumer_stream)>> {
  static bool is(const Buffer& buffer) {
    return buffer.opt_overridden_consumer_stream.has_value();
  }
};

// On an accelerator the engine orders producer, sum and consumer by events. With
// all three on one stream there is nothing to order.
bool on_one_stream(
    const InputBuffer& buffer,
    size_t slot,
    Node& producer,
    Node& consumer) {
  if (buffer.buffer[slot].is_cpu()) {
    return true;
  }
  const auto stream = producer.stream();
  const auto is_ours = [&](const std::optional<c10::Stream>& other) {
    return other == stream;
  };
  return stream.has_value() &&
      stream->device() == buffer.buffer[slot].device() &&
      is_ours(consumer.stream()) && is_ours(buffer.opt_accum_streams[slot]) &&
      is_ours(buffer.ready_streams[slot]) &&
      !Overridden<InputBuffer>::is(buffer);
}

at::Tensor* find_sum(
    GraphTask& task,
    Node& producer,
    const Edge& consumer) {
  const auto waiting = task.not_ready_.find(consumer.function.get());
  if (waiting == task.not_ready_.end()) {
    return nullptr;
  }
  InputBuffer& buffer = waiting->second;
  const size_t slot = consumer.input_nr;
  if (slot >= buffer.buffer.size() || !buffer.buffer[slot].defined() ||
      !on_one_stream(buffer, slot, producer, *consumer.function)) {
    return nullptr;
  }
  return &buffer.buffer[slot];
}

} // namespace

bool has_hooks(Node& node) {
  return !node.pre_hooks().empty() || !node.post_hooks().empty() ||
      !node.tensor_pre_hooks().empty() || !node.retains_grad_hooks().empty();
}

bool has_output_number(const torch::autograd::FunctionPreHook& hook) {
  return c10::demangle(typeid(hook).name()) ==
      "torch::autograd::CppFunctionSingleTensorPreHook";
}

void set_output_number(
    torch::autograd::FunctionPreHook& hook,
    size_t output_nr) {
  static_cast<torch::autograd::CppFunctionSingleTensorPreHook&>(hook)
      .value_idx_ = output_nr;
}

GraphTask* running_graph_task() {
  const auto* member = torch::autograd::get_current_graph_task_exec_info();
  if (member == nullptr) {
    return nullptr;
  }
  // GraphTask has no virtual base, so the offset is a constant; compilers warn
  // because the standard promises it for simpler classes only.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
  constexpr size_t offset = offsetof(GraphTask, exec_info_);
#pragma GCC diagnostic pop
  static_assert(
      std::is_same_v<
          decltype(member),
          const decltype(GraphTask::exec_info_)*>,
      "the accessor returns the member");
  const auto* task = reinterpret_cast<const GraphTask*>(
      reinterpret_cast<const char*>(member) - offset);
  return const_cast<GraphTask*>(task);
}

WaitingGradient::WaitingGradient(
    GraphTask& task,
    Node& producer,
    const Edge& consumer)
    : lock_(task.mutex_), sum_(find_sum(task, producer, consumer)) {}

} // namespace noalias
