// The core as Python sees it. Everything else is reached through operators.
#include "counters.h"
#include "cures.h"
#include "in_place.h"
#include "linear_python.h"
#include "python_audit.h"
#include "python_ownership.h"
#include "shared_graph.h"
#include "whole_types.h"

#include <torch/csrc/utils/pybind.h>

#include <map>
#include <string>
#include <utility>

namespace noalias {

namespace {

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

} // namespace

PYBIND11_MODULE(noalias_core, module) {
  add_linear_functions(module);
  bind_ownership(module);
  bind_audit(module);
  bind_shared_graph(module);
  module.def("known_cures", &known_cures);
  module.def("active_cures", &active_cures);
  // Looking up kernels takes the dispatcher's lock, which threads hold that wait
  // for the interpreter.
  module.def(
      "enable_cure", &enable_cure, py::call_guard<py::gil_scoped_release>());
  module.def(
      "disable_cure", &disable_cure, py::call_guard<py::gil_scoped_release>());
  module.def("keep_stock_effects", &keep_stock_effects);
  module.def("counters", &read_counters);
  module.def("reset_counters", &reset_counters);
  module.def("set_own_rule_question", [](const py::object& question) {
    set_own_rule_question(question.ptr());
  });
}

} // namespace noalias
