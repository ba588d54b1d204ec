// Whose forward is running on this thread: modules as the audit numbers them.
#pragma once

#include "trail.h"

#include <torch/csrc/utils/pybind.h>

#include <optional>

namespace noalias {

// Starts with empty stacks. `number_of(root, module, parent)` gives the number of a
// module that is met for the first time below the outermost one; `parent` is the
// number of the one that it was entered from. It must not keep the modules.
void start_modules(pybind11::object number_of);
void stop_modules();

// A module's forward begins on this thread; the trail's calls are its own from here.
void enter_module(const pybind11::object& module);

// It ends, by an exception perhaps. Its number; nothing if it was not entered.
std::optional<ModuleNumber> leave_module(const pybind11::object& module);

} // namespace noalias
