// Take the place of PyTorch's own kernels, and give it back.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <map>
#include <memory>

namespace noalias {

// The autograd keys of the backends PyTorch trains on.
c10::ArrayRef<c10::DispatchKey> autograd_backend_keys();

// Note [Standing in front of PyTorch's kernels]
//
// PyTorch registers its autograd kernels for the alias key Autograd. A kernel
// for a runtime key (AutogradCPU, ...) takes precedence, so PyTorch's own is
// looked up first, ours is registered over it, and calls it boxed. Dropping the
// registration restores the dispatch table exactly. StockKernel is the way past an
// unboxed one.
//
// A thread may be inside one of our kernels while another drops the
// registration. What is dropped is the table entry: the functor itself is kept
// until the process ends, so that no code is freed under a running call. Turning
// cures on and off costs a few hundred kilobytes each time, once.
//
// The table itself is PyTorch's (c10::impl::OperatorEntry): its writers take a lock
// and its readers none, as for whoever registers with torch.library at run time. A
// thread that is calling an operator at that moment finds the kernel of before or of
// after. ThreadSanitizer sees neither the table nor that order, so it is told that a
// kernel's own members, which nobody writes once it is there, are no race.
using Stack = torch::jit::Stack;

// A kernel that stands in front of PyTorch's own.
class Guard : public c10::OperatorKernel {
 public:
  explicit Guard(c10::SafeKernelFunction stock) : stock_(std::move(stock)) {}
  virtual void operator()(
      const c10::OperatorHandle& op,
      c10::DispatchKeySet keys,
      Stack* stack) = 0;

 protected:
  void call_stock(
      const c10::OperatorHandle& op,
      c10::DispatchKeySet keys,
      Stack* stack) const {
    stock_.callBoxed(op, keys, stack);
  }

 private:
  c10::SafeKernelFunction stock_;
};

// What keeps a cure on; dropping it turns the cure off.
class Cure {
 public:
  Cure() = default;
  Cure(const Cure&) = delete;
  Cure& operator=(const Cure&) = delete;
  virtual ~Cure() = default;
};

// The registrations of one cure; dropping it gives PyTorch's kernels back.
class Overrides final : public Cure {
 public:
  // Whether PyTorch has an autograd kernel of its own there to stand in front of.
  static bool possible(const c10::OperatorHandle& op, c10::DispatchKey key);

  // Guards `op` for every autograd backend key where that is possible.
  template <typename G, typename... Args>
  void add(const c10::OperatorHandle& op, const Args&... args) {
    for (const auto key : autograd_backend_keys()) {
      if (possible(op, key)) {
        add_for<G>(op, key, args...);
      }
    }
  }

  // The same with a plain function, which needs no boxing and never goes away.
  template <typename F>
  void add_function(const c10::OperatorHandle& op, F function) {
    for (const auto key : autograd_backend_keys()) {
      if (possible(op, key)) {
        add_function_for(op, key, function);
      }
    }
  }

  template <typename F>
  void add_function_for(
      const c10::OperatorHandle& op,
      c10::DispatchKey key,
      F function) {
    library(op, key).impl(c10::toString(op.operator_name()).c_str(), function);
  }

  // Guards `op` for one key.
  template <typename G, typename... Args>
  void add_for(
      const c10::OperatorHandle& op,
      c10::DispatchKey key,
      const Args&... args) {
    install(
        op,
        key,
        c10::BoxedKernel::makeFromFunctor(std::make_unique<G>(
            op.getComputedKernelForDispatchKey(key), args...)));
  }

 private:
  void install(
      const c10::OperatorHandle& op,
      c10::DispatchKey key,
      const c10::BoxedKernel& kernel);

  torch::Library& library(
      const c10::OperatorHandle& op,
      c10::DispatchKey key);

  std::map<c10::DispatchKey, torch::Library> libraries_;
};

} // namespace noalias
