// What the core tells a listener (the audit): in-place calls, while they happen.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/python_headers.h>

#include <atomic>
#include <string>

namespace noalias {

namespace detail {
inline std::atomic<bool> somebody_listens{false};
inline std::atomic<bool> listens_to_all{false};
}

// One relaxed load: the price of an in-place call nobody listens to.
inline bool listening() {
  return detail::somebody_listens.load(std::memory_order_relaxed);
}

// `listener(kind, operator, tensor, detail)`, called with the interpreter lock
// held, on the thread that makes the call. It must not keep the tensor. nullptr
// stops listening. With `views_only` it is spared the writes that put no view's
// history at stake. The interpreter lock must be held here.
//
// kind is one of
//   write   an operator is about to write to a tensor in place; detail is empty,
//           or for a view whose history is at stake the verdict of the proof
//   cured   likewise, and the view has just been dropped
//   failed  PyTorch refused the call; detail is its message
void set_listener(PyObject* listener, bool views_only);

// Whether the listener wants to hear of every write.
inline bool listening_to_all() {
  return detail::listens_to_all.load(std::memory_order_relaxed);
}

void tell(
    const char* kind,
    const std::string& op,
    const at::Tensor& tensor,
    const std::string& detail);

} // namespace noalias
