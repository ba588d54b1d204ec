// Tensor subclasses that have a rule of their own for noalias::linear.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/python_headers.h>

#include <initializer_list>

namespace noalias {

// Whether one of the tensors is a Python subclass or being functionalized.
// Undefined tensors do not count, here and below.
bool any_subclass(std::initializer_list<const at::Tensor*> tensors);

// Whether at least one of the tensors is a Python subclass, and every subclass
// among them has a rule for noalias::linear: it is then handed the operator
// whole, never its parts. Takes the interpreter lock if there is a subclass. Raises
// what the question below raises.
bool all_have_own_rule(std::initializer_list<const at::Tensor*> tensors);

// Who answers for a type that has not been met yet: a Python callable from a
// class to a bool. Asked once for each class that has a rule, which is also where
// Python registers that rule. Held until the process ends; the interpreter lock
// must be held here.
void set_own_rule_question(PyObject* question);

} // namespace noalias
