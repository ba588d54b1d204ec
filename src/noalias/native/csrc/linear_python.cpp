#include "linear_python.h"

#include "linear.h"
#include "linear_nodes.h"
#include "linear_products.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <torch/csrc/autograd/python_cpp_function.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <utility>

namespace noalias {

namespace {

// Set once by Python while the core is loaded, with the interpreter lock held,
// and owned until the process ends: takes the calls that the fast entry below
// does not, i.e. subclasses, __torch_function__ modes, torch.jit.trace and
// arguments that are no tensors.
PyObject* general_linear = nullptr;

// Tensor or Parameter, but no subclass with an opinion of its own.
bool is_plain_tensor(PyObject* object) {
  return THPVariable_CheckExact(object);
}

// linear(input, weight, bias=None), positional: the keyword form is Python's.
PyObject* linear_entry(
    PyObject* /*module*/,
    PyObject* const* arguments,
    Py_ssize_t count) {
  HANDLE_TH_ERRORS
  const bool has_bias = count == 3 && arguments[2] != Py_None;
  if ((count != 2 && count != 3) || !is_plain_tensor(arguments[0]) ||
      !is_plain_tensor(arguments[1]) ||
      (has_bias && !is_plain_tensor(arguments[2])) ||
      at::impl::torch_function_mode_enabled() ||
      torch::jit::tracer::isTracing()) {
    return PyObject_Vectorcall(general_linear, arguments, count, nullptr);
  }
  Tensor result;
  {
    const Tensor& input = THPVariable_Unpack(arguments[0]);
    const Tensor& weight = THPVariable_Unpack(arguments[1]);
    const OptionalTensor bias = has_bias
        ? OptionalTensor(THPVariable_Unpack(arguments[2]))
        : std::nullopt;
    pybind11::gil_scoped_release no_gil;
    result = linear_from_python(input, weight, bias);
  }
  return THPVariable_Wrap(std::move(result));
  END_HANDLE_TH_ERRORS
}

PyMethodDef linear_method = {
    "linear",
    // The cast CPython's own METH_FASTCALL tables use.
    reinterpret_cast<PyCFunction>(
        reinterpret_cast<void (*)(void)>(&linear_entry)),
    METH_FASTCALL,
    "linear(input, weight, bias=None, /): see noalias.linear"};

// What a node of PyTorch's own shows of itself: its name as a type, and what it
// has saved.
template <typename N, SavedVariable N::*member>
PyObject* saved_tensor(PyObject* self, void* /*closure*/) {
  HANDLE_TH_ERRORS
  auto* node = dynamic_cast<N*>(
      reinterpret_cast<torch::autograd::THPCppFunction*>(self)->cdata.get());
  TORCH_INTERNAL_ASSERT(node != nullptr);
  const std::lock_guard<std::mutex> lock(node->mutex());
  return THPVariable_Wrap((node->*member).unpack());
  END_HANDLE_TH_ERRORS
}

template <typename N>
void add_node_type(
    PyTypeObject& type,
    const char* name,
    PyGetSetDef* properties) {
  torch::autograd::_initFunctionPyTypeObject(type, name, properties, nullptr);
  torch::autograd::registerCppFunction(typeid(N), &type);
}

// Tables that CPython keeps pointers into; they live as long as the process.
void add_node_types() {
  // The macro below names them without their namespace.
  using torch::autograd::THPCppFunction_input_metadata;
  using torch::autograd::THPCppFunction_metadata;
  using torch::autograd::THPCppFunction_next_functions;
  using torch::autograd::THPCppFunction_requires_grad;
  static PyGetSetDef first_properties[] = {
      THP_FUNCTION_DEFAULT_PROPERTIES,
      {"_saved_self",
       &saved_tensor<LinearBackward, &LinearBackward::input_>,
       nullptr,
       nullptr,
       nullptr},
      {"_saved_weight",
       &saved_tensor<LinearBackward, &LinearBackward::weight_>,
       nullptr,
       nullptr,
       nullptr},
      {nullptr, nullptr, nullptr, nullptr, nullptr}};
  static PyGetSetDef second_properties[] = {
      THP_FUNCTION_DEFAULT_PROPERTIES,
      {"_saved_self",
       &saved_tensor<LinearBackwardBackward, &LinearBackwardBackward::input_>,
       nullptr,
       nullptr,
       nullptr},
      {"_saved_grad_output",
       &saved_tensor<
           LinearBackwardBackward,
           &LinearBackwardBackward::grad_output_>,
       nullptr,
       nullptr,
       nullptr},
      {"_saved_weight",
       &saved_tensor<LinearBackwardBackward, &LinearBackwardBackward::weight_>,
       nullptr,
       nullptr,
       nullptr},
      {nullptr, nullptr, nullptr, nullptr, nullptr}};
  static PyTypeObject first{};
  static PyTypeObject second{};
  add_node_type<LinearBackward>(first, "LinearBackward0", first_properties);
  add_node_type<LinearBackwardBackward>(
      second, "LinearBackwardBackward0", second_properties);
}

} // namespace

void add_linear_functions(pybind11::module_& module) {
  module.add_object(
      "linear",
      py::reinterpret_steal<py::object>(
          PyCFunction_NewEx(&linear_method, nullptr, nullptr)));
  // Not done on import: the schemas are Python's, and the cures need none.
  module.def("register_linear", [](py::object general) {
    register_linear();
    if (general_linear == nullptr) {
      add_node_types();
    }
    Py_XDECREF(std::exchange(general_linear, general.release().ptr()));
  });
  module.def("whole_capture", &whole_capture);
  module.def("set_whole_capture", &set_whole_capture);
  module.def("pattern_gradients", &pattern_gradients);
  module.def("set_pattern_gradients", &set_pattern_gradients);
}

} // namespace noalias
