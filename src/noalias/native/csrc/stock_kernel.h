// PyTorch's own autograd kernel of one operator, called past ours without boxing.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <utility>

namespace noalias {

// Note [Calling PyTorch's kernel without boxing]
//
// Arithmetic and in-place operators run in every forward pass, so the way past our
// kernel must cost nothing. PyTorch's own sits on the alias key Autograd and so in
// the table entry of every autograd key, of which only those of the backends are
// ours. It is called through the entry of AutogradOther, and masks that key out like
// any other. An operator with a kernel of its own for AutogradOther, or a composite
// kernel besides, has that one in the entry.
//
// Op is one of at::_ops.
template <typename Op>
struct StockKernel {
  static bool is_reachable(const c10::OperatorHandle& op) {
    return op.hasKernelForDispatchKey(c10::DispatchKey::Autograd) &&
        !op.hasKernelForDispatchKey(c10::DispatchKey::AutogradOther) &&
        !op.hasKernelForDispatchKey(
            c10::DispatchKey::CompositeImplicitAutograd);
  }

  // Raises where the installed PyTorch has no such operator.
  static c10::OperatorHandle handle() {
    return c10::Dispatcher::singleton().findSchemaOrThrow(
        Op::name, Op::overload_name);
  }

  template <typename... Args>
  static decltype(auto) call(c10::DispatchKeySet keys, Args&&... args) {
    // Keys above autograd have had their turn; PythonDispatcher, which tracing
    // switches on, would lead the call back to ours.
    return Op::redispatch(
        (keys & c10::after_autograd_keyset)
            .add(c10::DispatchKey::AutogradOther),
        std::forward<Args>(args)...);
  }
};

} // namespace noalias
