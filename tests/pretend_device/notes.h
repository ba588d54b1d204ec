// What operators tell the race detector.
#pragma once

#include "races.h"
#include "streams.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <torch/csrc/autograd/function.h>

#include <optional>
#include <string>

namespace pretend {

// What one operator does to the device's memory, on this thread's stream.
class Notes {
 public:
  explicit Notes(const std::string& op)
      : by_(described(op)), is_outermost_(depth_++ == 0) {}
  ~Notes() {
    --depth_;
  }
  Notes(const Notes&) = delete;
  Notes& operator=(const Notes&) = delete;

  void read(const at::Tensor& tensor) const {
    if (counts(tensor)) {
      races().read(tensor, current_stream_id, by_);
    }
  }
  void write(const at::Tensor& tensor) const {
    if (counts(tensor)) {
      races().write(tensor, current_stream_id, by_);
    }
  }
  void host_waits() const {
    if (is_outermost_) {
      races().host_waits(races().record(current_stream_id));
    }
  }

 private:
  static std::string described(const std::string& op) {
    const auto node = torch::autograd::get_current_node();
    return node == nullptr ? op : op + " in " + node->name();
  }

  // How an operator gets to the CPU and back is not its own doing: a real one is
  // one kernel, and the host does not wait for it.
  bool counts(const at::Tensor& tensor) const {
    return is_outermost_ && tensor.defined() && !tensor.is_cpu();
  }

  static thread_local inline int depth_ = 0;
  std::string by_;
  bool is_outermost_;
};

// Tensors of an argument or a result, of which there may be a list.
template <typename Visit>
void each_tensor(const c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      visit(tensor);
    }
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      visit(tensor.value_or(at::Tensor()));
    }
  }
}

inline void note_operands(
    Notes& notes,
    const c10::FunctionSchema& schema,
    const torch::jit::Stack& stack) {
  const auto& arguments = schema.arguments();
  const auto values = torch::jit::last(stack, arguments.size());
  const auto is_written = [](const c10::Argument& argument) {
    return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  };
  // All reads come first: what an operator writes in place is often its own operand.
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].is_out()) {
      each_tensor(values[i], [&](const at::Tensor& tensor) { notes.read(tensor); });
    }
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (is_written(arguments[i])) {
      each_tensor(values[i], [&](const at::Tensor& tensor) { notes.write(tensor); });
    }
  }
}

inline void note_results(
    Notes& notes,
    const c10::FunctionSchema& schema,
    const torch::jit::Stack& stack) {
  const auto& results = schema.returns();
  const auto values = torch::jit::last(stack, results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    if (!values[i].isTensor() && !values[i].isTensorList()) {
      notes.host_waits(); // a number, that the host had to wait for
    } else if (results[i].alias_info() == nullptr) {
      each_tensor(values[i], [&](const at::Tensor& tensor) { notes.write(tensor); });
    }
  }
}

} // namespace pretend
