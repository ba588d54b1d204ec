// What the core needs to know of the engine's own data: the gradient sums of the
// running backward call, and the hooks of a node.
//
// Note [Gradients that wait]
//
// The engine keeps, for each node that still waits for contributions, the sum of
// those that have arrived (GraphTask::not_ready_, an InputBuffer for each node).
// A backward that would make a zero-filled gradient of the whole size, only for
// the engine to add it to that sum, can add its part to the sum instead and
// return no gradient. PyTorch 2.15 has this for Python functions
// (ctx.input_grad_buffers, "direct accumulation"); the fields behind it are
// public in every version from 2.9 on, the way to the running GraphTask is not:
// it is found from the address of the one member that has an accessor
// (get_current_graph_task_exec_info). The core is compiled for exactly the
// installed headers, so the layout is theirs. Should that accessor go, or
// not_ready_ become private, this file stops compiling: nothing fails silently.
#pragma once

#include "compat.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>

#include <cstddef>
#include <mutex>

namespace noalias {

// Whether anybody sees the node's gradients come or go, or may change them.
bool has_hooks(Node& node);

// Whether it is the hook of one output, as retain_grad makes them (its class and
// number are public from 2.9 to 2.15; the type's information is not exported, so it
// is known by its name).
bool has_output_number(const torch::autograd::FunctionPreHook& hook);

// Requires has_output_number(hook).
void set_output_number(
    torch::autograd::FunctionPreHook& hook,
    size_t output_nr);

// Null outside of a backward call.
torch::autograd::GraphTask* running_graph_task();

// What has arrived for one input of a node, locked while this object lives, as
// the engine itself locks it while it adds.
class WaitingGradient {
 public:
  // `producer` is the node that runs now, `consumer` the edge that it feeds.
  WaitingGradient(
      torch::autograd::GraphTask& task,
      Node& producer,
      const Edge& consumer);

  // Null when nothing has arrived yet, or when the engine would have to
  // synchronise streams before adding. The engine goes on with what is left there.
  at::Tensor* sum() const {
    return sum_;
  }

 private:
  std::lock_guard<std::mutex> lock_;
  at::Tensor* sum_;
};

} // namespace noalias
