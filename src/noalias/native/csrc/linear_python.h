// linear as Python sees it.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace noalias {

void add_linear_functions(pybind11::module_& module);

} // namespace noalias
