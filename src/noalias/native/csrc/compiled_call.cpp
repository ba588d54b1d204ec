#include "compiled_call.h"

#include <optional>
#include <utility>

namespace noalias {

using torch::dynamo::autograd::IValuePacker;
using torch::dynamo::autograd::PackedArgs;
using torch::dynamo::autograd::SwapSavedVariables;

// Note [Compiled autograd]
//
// Compiled autograd asks each node for what it has saved, exchanges that for
// proxies, and records a call of a function of the gradients and the packed
// arguments. A node that does not answer makes it fail for the whole graph
// (torch/csrc/dynamo/compiled_autograd.h, the same in 2.9 to 2.15).
variable_list compiled_call(
    const Node& node,
    const variable_list& grads,
    SwapSavedVariables& saved,
    const PackedArgs& args,
    variable_list (*function)(
        const variable_list&,
        const std::vector<c10::IValue>&)) {
  std::vector<at::TypePtr> schema;
  for (const auto& value : args.vec()) {
    schema.push_back(
        value.isTensor() ? at::TypePtr(at::TensorType::get()) : value.type());
  }
  const auto& compiler = torch::dynamo::autograd::getPyCompilerInterface();
  const auto name = compiler->bind_function(
      saved.get_py_compiler(),
      node.name(),
      function,
      std::move(schema),
      // Bound anew by each call, as the schema depends on what was saved.
      /*is_custom_function=*/true,
      /*is_traceable=*/true);
  return compiler->call_function(
      saved.get_py_compiler(),
      "apply_functional",
      name,
      grads,
      args.vec(),
      IValuePacker<std::vector<std::optional<torch::autograd::InputMetadata>>>::
          pack(torch::dynamo::autograd::get_input_metadata(node.next_edges())));
}

Mask unpack_mask(PackedArgs& args) {
  const auto values = args.unpack<std::vector<bool>>();
  return {values[0], values[1], values[2]};
}

} // namespace noalias
