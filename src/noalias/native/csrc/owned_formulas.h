// Which formulas of PyTorch use their gradient for the last time in one call.
#pragma once

#include "compat.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/generated/Functions.h>

#include <typeinfo>

namespace noalias::owned {

// Note [The last use of a gradient]
//
// A node's formula receives its gradient as a reference into the engine's list of
// inputs, so the count of owners says whether anybody else holds it, but not
// whether the formula itself will read it again. That is known for the nodes
// named here, whose formulas (derivatives.yaml) are the same from 2.9 to 2.15 and
// are compared by a test with those of the installed version.
//
// Dedicated backward operators are called by formulas only. Arithmetic is called
// by everybody: a hook of the running node, or the unpack hook of a tensor it
// saved, may multiply tensors of its own, and a composite operator called there
// may still need what looks unowned. So arithmetic counts as the formula's only
// for a node in which nothing but the formula runs: no hook, no saved-tensor hook.

// For a backward operator that is called once, by nodes of these types.
template <typename... Nodes>
struct CalledBy {
  static bool last_use(const Node& node, const at::Tensor& /*gradient*/) {
    return ((typeid(node) == typeid(Nodes)) || ...);
  }
};

struct InMultiplication {
  static bool last_use(const Node& node, const at::Tensor& gradient);
};

struct InDivision {
  static bool last_use(const Node& node, const at::Tensor& gradient);
};

struct InNegation {
  static bool last_use(const Node& node, const at::Tensor& gradient);
};

struct InMaskedFill {
  static bool last_use(const Node& node, const at::Tensor& gradient);
};

} // namespace noalias::owned
