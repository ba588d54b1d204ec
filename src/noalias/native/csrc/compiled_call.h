// Calls that compiled autograd records in the place of a node.
#pragma once

#include "compat.h"
#include "linear.h"

#include <torch/csrc/dynamo/compiled_autograd.h>

#include <vector>

namespace noalias {

// See Note [Compiled autograd]. `function` is given the gradients and `args`.
variable_list compiled_call(
    const Node& node,
    const variable_list& grads,
    torch::dynamo::autograd::SwapSavedVariables& saved,
    const torch::dynamo::autograd::PackedArgs& args,
    variable_list (*function)(
        const variable_list&,
        const std::vector<c10::IValue>&));

// A mask that was packed as std::vector<bool>.
Mask unpack_mask(torch::dynamo::autograd::PackedArgs& args);

} // namespace noalias
