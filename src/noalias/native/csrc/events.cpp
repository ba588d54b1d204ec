#include "events.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <utility>

namespace noalias {

namespace {

// Read and written with the interpreter lock held; held until replaced.
PyObject* current_listener = nullptr;

} // namespace

void set_listener(PyObject* listener, bool views_only) {
  Py_XINCREF(listener);
  PyObject* before = std::exchange(current_listener, listener);
  detail::somebody_listens = listener != nullptr;
  detail::listens_to_all = listener != nullptr && !views_only;
  Py_XDECREF(before);
}

void tell(
    const char* kind,
    const std::string& op,
    const at::Tensor& tensor,
    const std::string& detail) {
  pybind11::gil_scoped_acquire lock;
  // A call that failed in Python (a hook of saved tensors, say) comes here with its
  // error still set, and must find it set afterwards.
  const pybind11::error_scope kept;
  if (current_listener == nullptr) {
    return;
  }
  const auto listener =
      pybind11::reinterpret_borrow<pybind11::object>(current_listener);
  listener(kind, op, tensor, detail);
}

} // namespace noalias
