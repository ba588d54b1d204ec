#pragma once

#include <torch/csrc/utils/pybind.h>

namespace noalias {

// The part of the module that noalias.audit uses.
void bind_audit(py::module_& module);

} // namespace noalias
