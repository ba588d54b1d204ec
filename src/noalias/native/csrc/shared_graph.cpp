#include "shared_graph.h"

#include "compat.h"

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/python_cpp_function.h>
#include <torch/csrc/autograd/variable.h>

#include <mutex>

namespace noalias {

namespace {

namespace impl = torch::autograd::impl;

// Note [A view's history and the interpreter lock]
//
// A thread that brings a view's history up to date holds the view's mutex, and may wait for
// the interpreter lock under it (to move hooks). `tensor.grad_fn` takes the two in the
// other order: on another thread's tensor it can deadlock with that thread (PyTorch 2.9
// to 2.15). It also changes what it looks at. So whoever looks at tensors that are not its
// own lets go of the interpreter lock first, and reads what is there.
NodePtr recorded_node(const at::Tensor& tensor) {
  // The Python object may have outlived its tensor.
  const auto* meta =
      tensor.defined() ? impl::get_autograd_meta(tensor) : nullptr;
  if (meta == nullptr) {
    return {};
  }
  if (!meta->is_view_) {
    return meta->grad_fn_;
  }
  const py::gil_scoped_release released;
  const std::lock_guard<std::mutex> lock(meta->mutex_);
  return meta->grad_fn_;
}

py::object recorded_node_in_python(const at::Tensor& tensor) {
  const NodePtr node = recorded_node(tensor);
  return py::reinterpret_steal<py::object>(
      torch::autograd::functionToPyObject(node));
}

// Whether nobody else runs or releases the node meanwhile: what it has saved may be read.
bool is_of_this_thread(const py::handle& node) {
  if (!torch::autograd::THPCppFunction_Check(node.ptr())) {
    return false;
  }
  const auto* cpp =
      reinterpret_cast<const torch::autograd::THPCppFunction*>(node.ptr());
  return cpp->cdata->thread_id() == at::RecordFunction::currentThreadId();
}

} // namespace

void bind_shared_graph(py::module_& module) {
  module.def("recorded_node", &recorded_node_in_python);
  module.def("is_of_this_thread", &is_of_this_thread);
}

} // namespace noalias
