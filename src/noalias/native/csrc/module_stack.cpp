#include "module_stack.h"

#include <c10/util/hash.h>

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace noalias {

namespace {

// Note [Numbers of modules]
//
// The hooks of the audit run for each module of a step, so a number that is known
// must cost no Python. Numbers are kept by the addresses of the outermost module and
// of this one; weak references tell whether these are still the same objects.
// Modules that live for one step leave entries behind, which are dropped beyond a
// bound.
constexpr size_t kMostNumbers = size_t{1} << 16;

using RootAndModule = std::pair<PyObject*, PyObject*>;

struct HashRootAndModule {
  size_t operator()(const RootAndModule& key) const {
    return c10::get_hash(
        static_cast<const void*>(key.first),
        static_cast<const void*>(key.second));
  }
};

struct KnownNumber {
  pybind11::weakref root;
  pybind11::weakref module;
  ModuleNumber number;
};

// Guarded by the interpreter lock.
struct ModuleNumbers {
  pybind11::object number_of; // empty while stopped
  uint64_t start = 0;
  std::unordered_map<RootAndModule, KnownNumber, HashRootAndModule> known;
};

ModuleNumbers& module_numbers() {
  // Never destroyed: the interpreter may be gone before this library.
  static auto& numbers = *std::make_unique<ModuleNumbers>().release();
  return numbers;
}

struct RunningModule {
  PyObject* module; // owned: an interrupt leaves it here after its forward
  ModuleNumber number;
};

// No owning members: a thread may end without the interpreter lock.
struct ModuleStack {
  uint64_t start = 0;
  std::vector<RunningModule> running;
};

thread_local ModuleStack module_stack;

void unwind_to(ModuleStack& stack, size_t size) {
  while (stack.running.size() > size) {
    PyObject* module = stack.running.back().module;
    stack.running.pop_back();
    Py_DECREF(module);
  }
  set_current_module(stack.running.empty() ? 0 : stack.running.back().number);
}

// This thread's stack, without what an earlier recording left there.
ModuleStack& this_stack() {
  ModuleStack& stack = module_stack;
  if (stack.start != module_numbers().start) {
    unwind_to(stack, 0);
    stack.start = module_numbers().start;
  }
  return stack;
}

bool is_alive(const pybind11::weakref& reference, PyObject* object) {
  return reference().ptr() == object;
}

ModuleNumber number_of(
    const ModuleStack& stack,
    const pybind11::object& module) {
  auto& numbers = module_numbers();
  const auto root = pybind11::reinterpret_borrow<pybind11::object>(
      stack.running.empty() ? module.ptr() : stack.running.front().module);
  const RootAndModule key{root.ptr(), module.ptr()};
  const auto found = numbers.known.find(key);
  if (found != numbers.known.end() &&
      is_alive(found->second.root, root.ptr()) &&
      is_alive(found->second.module, module.ptr())) {
    return found->second.number;
  }
  const ModuleNumber parent =
      stack.running.empty() ? 0 : stack.running.back().number;
  const auto number =
      numbers.number_of(root, module, parent).cast<ModuleNumber>();
  if (numbers.known.size() >= kMostNumbers) {
    numbers.known.clear();
  }
  numbers.known.insert_or_assign(
      key,
      KnownNumber{pybind11::weakref(root), pybind11::weakref(module), number});
  return number;
}

} // namespace

void start_modules(pybind11::object number_of) {
  auto& numbers = module_numbers();
  numbers.number_of = std::move(number_of);
  ++numbers.start;
  this_stack();
}

void stop_modules() {
  auto& numbers = module_numbers();
  numbers.number_of = {};
  numbers.known.clear();
  ++numbers.start;
  this_stack();
}

void enter_module(const pybind11::object& module) {
  if (!module_numbers().number_of) {
    return;
  }
  ModuleStack& stack = this_stack();
  const ModuleNumber number = number_of(stack, module);
  stack.running.push_back({module.inc_ref().ptr(), number});
  set_current_module(number);
}

std::optional<ModuleNumber> leave_module(const pybind11::object& module) {
  ModuleStack& stack = this_stack();
  const auto found = std::find_if(
      stack.running.rbegin(),
      stack.running.rend(),
      [&module](const RunningModule& entry) {
        return entry.module == module.ptr();
      });
  if (found == stack.running.rend()) {
    return std::nullopt; // it was entered before the recording began
  }
  const ModuleNumber number = found->number;
  // More than the last where an inner one was left by an interrupt.
  unwind_to(stack, static_cast<size_t>(stack.running.rend() - found) - 1);
  return number;
}

} // namespace noalias
