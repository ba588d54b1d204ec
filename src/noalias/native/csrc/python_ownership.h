#pragma once

#include <torch/csrc/utils/pybind.h>

namespace noalias {

// The part of the module that noalias.ownership uses.
void bind_ownership(py::module_& module);

} // namespace noalias
