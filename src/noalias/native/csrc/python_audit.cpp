#include "python_audit.h"

#include "census.h"
#include "copy_log.h"
#include "module_stack.h"
#include "places.h"
#include "trail.h"
#include "view_history.h"

#include <ATen/record_function.h>

#include <optional>
#include <utility>

namespace noalias {

namespace {

// backward(create_graph=True) makes nodes of its own. The fourth argument of PyTorch's
// function; where it is not found, it is taken to be true.
bool records_history(const py::args& args) {
  constexpr size_t kCreateGraph = 3;
  return args.size() <= kCreateGraph || args[kCreateGraph].ptr() != Py_False;
}

// A callable that tells `observer` of each call of `function`: begin(args, kwargs),
// then end() or failed(args, error). It is C++ so that it has no frame: tracebacks
// look as if it were not there.
py::cpp_function observed(py::object function, py::object observer) {
  return {[function = std::move(function), observer = std::move(observer)](
              const py::args& args, const py::kwargs& kwargs) -> py::object {
    observer.attr("begin")(args, kwargs);
    std::optional<at::RecordFunctionGuard> unobserved;
    if (!records_history(args) && backward_may_go_unobserved()) {
      unobserved.emplace(/*is_enabled=*/false);
    }
    auto result = py::reinterpret_steal<py::object>(
        PyObject_Call(function.ptr(), args.ptr(), kwargs.ptr()));
    unobserved.reset();
    if (result) {
      observer.attr("end")();
      return result;
    }
    py::error_already_set error;
    observer.attr("failed")(args, error.value());
    throw error;
  }};
}

} // namespace

void bind_audit(py::module_& module) {
  py::class_<Call>(module, "Call")
      .def_readonly("op", &Call::op)
      .def_readonly("place", &Call::place)
      .def_readonly("module", &Call::module);
  py::class_<LoggedWrite>(module, "LoggedWrite")
      .def_readonly("op", &LoggedWrite::op)
      .def_readonly("place", &LoggedWrite::place)
      .def_readonly("module", &LoggedWrite::module)
      .def_readonly("version", &LoggedWrite::version)
      .def_readonly("shape", &LoggedWrite::shape);
  py::class_<ViewHistory>(module, "ViewHistory")
      .def_readonly("is_view", &ViewHistory::is_view)
      .def_readonly("base", &ViewHistory::base)
      .def_readonly("storage", &ViewHistory::storage)
      .def_readonly("base_bytes", &ViewHistory::base_bytes)
      .def_readonly("share", &ViewHistory::share)
      .def_readonly("made", &ViewHistory::made)
      .def_readonly("thread", &ViewHistory::thread)
      .def_readonly("node", &ViewHistory::node)
      .def_readonly("rewritten", &ViewHistory::rewritten)
      .def_readonly("hooks", &ViewHistory::hooks);
  py::class_<RewrittenHistories>(module, "RewrittenHistories")
      .def_readonly("call", &RewrittenHistories::call)
      .def_readonly("base_bytes", &RewrittenHistories::base_bytes)
      .def_readonly("count", &RewrittenHistories::count)
      .def_readonly("view_bytes", &RewrittenHistories::view_bytes)
      .def_readonly("restored", &RewrittenHistories::restored)
      .def_readonly("restored_bytes", &RewrittenHistories::restored_bytes)
      .def_readonly("chained", &RewrittenHistories::chained)
      .def_readonly("first_writes", &RewrittenHistories::first_writes)
      .def_readonly("small", &RewrittenHistories::small)
      .def_readonly("sequence_number", &RewrittenHistories::sequence_number)
      .def_readonly("thread", &RewrittenHistories::thread)
      .def_readonly("wrapped", &RewrittenHistories::wrapped);
  py::class_<SliceReads>(module, "SliceReads")
      .def_readonly("call", &SliceReads::call)
      .def_readonly("node", &SliceReads::node)
      .def_readonly("base_shape", &SliceReads::base_shape)
      .def_readonly("slice_shape", &SliceReads::slice_shape)
      .def_readonly("dtype", &SliceReads::dtype)
      .def_readonly("base_bytes", &SliceReads::base_bytes)
      .def_readonly("count", &SliceReads::count)
      .def_readonly("read_from", &SliceReads::read_from);
  py::class_<CompiledCalls>(module, "CompiledCalls")
      .def_readonly("call", &CompiledCalls::call)
      .def_readonly("node", &CompiledCalls::node)
      .def_readonly("count", &CompiledCalls::count);
  py::class_<Census>(module, "Census")
      .def_readonly("histories", &Census::histories)
      .def_readonly("reads", &Census::reads)
      .def_readonly("compiled", &Census::compiled)
      .def_readonly("nodes", &Census::nodes);

  module.def("start_trail", [](const py::object& whose) {
    set_whose(whose.ptr());
    start_trail();
  });
  module.def("stop_trail", &stop_trail);
  module.def("forget_places", &forget_places);
  module.def("start_modules", &start_modules);
  module.def("stop_modules", &stop_modules);
  module.def("enter_module", &enter_module);
  module.def("leave_module", &leave_module);
  module.def("current_call", &current_call);
  module.def("calls_before", &calls_before);
  module.def("call_behind", &call_behind);
  module.def("file_and_line", &file_and_line);
  module.def("writes_to", &writes_to);
  module.def("trail_size", &trail_size);
  module.def("current_thread", &at::RecordFunction::currentThreadId);
  module.def("view_history", &view_history);
  module.def("take_census", &take_census);
  module.def("start_copy_log", &start_copy_log);
  module.def("stop_copy_log", &stop_copy_log);
  module.def("observed", &observed);
}

} // namespace noalias
