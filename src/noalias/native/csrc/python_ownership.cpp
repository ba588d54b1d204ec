#include "python_ownership.h"

#include "compat_python.h"
#include "events.h"
#include "hidden_base.h"
#include "in_place.h"
#include "view_facts.h"

#include <memory>

namespace noalias {

namespace {

const char* name_of(Relation relation) {
  switch (relation) {
    case Relation::kNone:
      return "none";
    case Relation::kBase:
      return "base";
    case Relation::kSiblingView:
      return "sibling_view";
    case Relation::kSharedStorage:
      return "shared_storage";
  }
  TORCH_INTERNAL_ASSERT(false, "no such relation");
}

} // namespace

void bind_ownership(py::module_& module) {
  // Guards are put up before the first event and taken down after the last.
  module.def(
      "set_listener",
      [](const py::object& listener, bool views_only) {
        static std::unique_ptr<Cure> watch; // the interpreter lock is its lock
        set_listener(listener.is_none() ? nullptr : listener.ptr(), views_only);
        if (listener.is_none()) {
          watch.reset();
        } else if (watch == nullptr) {
          watch = watch_in_place_calls();
        }
      },
      py::arg("listener"),
      py::arg("views_only") = false);
  py::class_<ViewFacts>(module, "ViewFacts")
      .def_readonly("is_view", &ViewFacts::is_view)
      .def_readonly("verdict", &ViewFacts::verdict)
      .def_readonly("base_owners", &ViewFacts::base_owners)
      .def_readonly("storage_owners", &ViewFacts::storage_owners)
      .def_readonly("creation", &ViewFacts::creation)
      .def_readonly("base_requires_grad", &ViewFacts::base_requires_grad);
  module.def("facts_about", &facts_about);
  module.def("live_tensors", &live_tensors);
  module.def("has_live_object_of", &has_live_object_of);
  module.def("release_hidden_base", &release_hidden_base);
  module.def("relation_to", [](const Tensor& tensor, const Tensor& other) {
    return name_of(relation_to(tensor, other));
  });
}

} // namespace noalias
