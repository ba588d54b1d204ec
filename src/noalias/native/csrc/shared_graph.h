// Reading graphs that other threads may be building or running.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace noalias {

void bind_shared_graph(py::module_& module);

} // namespace noalias
