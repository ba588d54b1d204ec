// The core as Python sees it. Everything else is reached through operators.
#include "counters.h"
#include "cures.h"
#include "linear.h"
#include "python_audit.h"
#include "python_ownership.h"
#include "whole_types.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/utils/pybind.h>

#include <map>
#include <string>
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
    result = call_linear(input, weight, bias);
  }
  return THPVariable_Wrap(std::move(result));
  END_HANDLE_TH_ERRORS
}

std::map<std::string, uint64_t> read_counters() {
  std::map<std::string, uint64_t> values = {
      {"seen", counters().seen.load()},
      {"cured", counters().cured.load()},
      {"slices_updated", counters().slices_updated.load()},
      {"parts_added", counters().parts_added.load()},
      {"gradients_reused", counters().gradients_reused.load()},
      {"gradient_bytes_reused", counters().gradient_bytes_reused.load()},
  };
  for (size_t i = 1; i < counters().kept.size(); ++i) {
    values[std::string("kept_") + name_of(static_cast<Verdict>(i))] =
        counters().kept[i].load();
  }
  return values;
}

void reset_counters() {
  counters().seen = 0;
  counters().cured = 0;
  counters().slices_updated = 0;
  counters().parts_added = 0;
  counters().gradients_reused = 0;
  counters().gradient_bytes_reused = 0;
  for (auto& counter : counters().kept) {
    counter = 0;
  }
}

PyMethodDef linear_method = {
    "linear",
    // The cast CPython's own METH_FASTCALL tables use.
    reinterpret_cast<PyCFunction>(
        reinterpret_cast<void (*)(void)>(&linear_entry)),
    METH_FASTCALL,
    "linear(input, weight, bias=None, /): see noalias.linear"};

} // namespace

PYBIND11_MODULE(noalias_core, module) {
  module.add_object(
      "linear",
      py::reinterpret_steal<py::object>(
          PyCFunction_NewEx(&linear_method, nullptr, nullptr)));
  // Not done on import: the schemas are Python's, and the cures need none.
  module.def("register_linear", [](py::object general) {
    register_linear();
    Py_XDECREF(std::exchange(general_linear, general.release().ptr()));
  });
  bind_ownership(module);
  bind_audit(module);
  module.def("known_cures", &known_cures);
  module.def("active_cures", &active_cures);
  // Looking up kernels takes the dispatcher's lock, which threads hold that wait
  // for the interpreter.
  module.def(
      "enable_cure", &enable_cure, py::call_guard<py::gil_scoped_release>());
  module.def(
      "disable_cure", &disable_cure, py::call_guard<py::gil_scoped_release>());
  module.def("counters", &read_counters);
  module.def("reset_counters", &reset_counters);
  module.def("whole_capture", &whole_capture);
  module.def("set_whole_capture", &set_whole_capture);
  module.def("set_own_rule_question", [](const py::object& question) {
    set_own_rule_question(question.ptr());
  });
}

} // namespace noalias
