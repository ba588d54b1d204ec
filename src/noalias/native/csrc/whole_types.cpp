#include "whole_types.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace noalias {

namespace {

// All guarded by the interpreter lock; the references are owned until the
// process ends.
PyObject* question = nullptr;
std::vector<PyTypeObject*> with_rule;

bool is_subclass(const at::Tensor& tensor) {
  return tensor.defined() && tensor.key_set().has(c10::DispatchKey::Python);
}

// Exact types only: a subclass of DTensor may have a dispatch of its own that
// knows nothing of the rule.
bool has_own_rule(const at::Tensor& tensor) {
  const auto object = py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor));
  PyTypeObject* type = Py_TYPE(object.ptr());
  if (std::find(with_rule.begin(), with_rule.end(), type) != with_rule.end()) {
    return true;
  }
  if (question == nullptr) {
    return false;
  }
  const auto type_object = reinterpret_cast<PyObject*>(type);
  const bool answer =
      py::cast<bool>(py::handle(question)(py::handle(type_object)));
  if (answer) {
    Py_INCREF(type_object);
    with_rule.push_back(type);
  }
  return answer;
}

} // namespace

bool any_subclass(std::initializer_list<const at::Tensor*> tensors) {
  constexpr c10::DispatchKeySet subclass(
      {c10::DispatchKey::Python, c10::DispatchKey::Functionalize});
  return std::any_of(
      tensors.begin(), tensors.end(), [&](const at::Tensor* tensor) {
        return tensor->defined() && tensor->key_set().has_any(subclass);
      });
}

bool all_have_own_rule(std::initializer_list<const at::Tensor*> tensors) {
  const auto subclass = [](const at::Tensor* tensor) {
    return is_subclass(*tensor);
  };
  if (std::none_of(tensors.begin(), tensors.end(), subclass)) {
    return false;
  }
  const py::gil_scoped_acquire gil;
  return std::all_of(
      tensors.begin(), tensors.end(), [](const at::Tensor* tensor) {
        return !is_subclass(*tensor) || has_own_rule(*tensor);
      });
}

void set_own_rule_question(PyObject* asked) {
  Py_XINCREF(asked);
  Py_XDECREF(std::exchange(question, asked));
}

} // namespace noalias
