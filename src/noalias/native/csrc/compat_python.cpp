#include "compat_python.h"

#include <torch/csrc/utils/pybind.h>

#include <c10/core/UndefinedTensorImpl.h>
#include <c10/core/impl/PyObjectSlot.h>
#include <torch/csrc/autograd/python_variable.h>

#include <type_traits>
#include <utility>

namespace noalias {

namespace {

class InterpreterLock {
 public:
  InterpreterLock() : state_(PyGILState_Ensure()) {}
  ~InterpreterLock() {
    PyGILState_Release(state_);
  }
  InterpreterLock(const InterpreterLock&) = delete;
  InterpreterLock& operator=(const InterpreterLock&) = delete;

 private:
  PyGILState_STATE state_;
};

template <typename Slot, typename = void>
struct IsPythonObjectAnOwner : std::false_type {};
template <typename Slot>
struct IsPythonObjectAnOwner<
    Slot,
    std::void_t<decltype(std::declval<const Slot&>().load_pyobj())>>
    : std::true_type {};

// Needs the interpreter lock. tp_weaklistoffset is negative for types with a
// managed list (Python 3.12 and later) and used the same way.
bool has_weak_reference(PyObject* object) {
  const Py_ssize_t offset = Py_TYPE(object)->tp_weaklistoffset;
  return offset != 0 &&
      *reinterpret_cast<PyObject**>(
          reinterpret_cast<char*>(object) + offset) != nullptr;
}

PythonHold hold_beside_the_tensor(PyObject* object) {
#ifdef Py_GIL_DISABLED
  // Without the lock another thread may take a reference at any time.
  (void)object;
  return PythonHold::kName;
#else
  // Most bases have a name; that needs no lock to see. The tensor keeps the object
  // alive, and a count that changes meanwhile has another owner.
  if (__atomic_load_n(&object->ob_refcnt, __ATOMIC_RELAXED) != 1) {
    return PythonHold::kName;
  }
  const InterpreterLock lock;
  if (Py_REFCNT(object) != 1) {
    return PythonHold::kName;
  }
  return has_weak_reference(object) ? PythonHold::kWeakReference
                                    : PythonHold::kNone;
#endif
}

// Templates, so that only the branch of the installed version is compiled.
template <typename Slot>
PyObject* object_in(Slot& slot) {
  if constexpr (IsPythonObjectAnOwner<Slot>::value) {
    return slot.load_pyobj();
  } else {
    const auto found = slot.check_pyobj();
    return found.has_value() ? *found : nullptr;
  }
}

// See Note [Owners and Python objects].
template <typename Slot>
Owners less_python(int64_t count, Slot& slot) {
  PyObject* object = object_in(slot);
  if (object == nullptr) {
    return {count, PythonHold::kNone};
  }
  if constexpr (IsPythonObjectAnOwner<Slot>::value) {
    return {count - 1, hold_beside_the_tensor(object)};
  } else {
    return slot.owns_pyobj()
        ? Owners{count, hold_beside_the_tensor(object)}
        : Owners{count - 1, PythonHold::kName};
  }
}

// See Note [A tensor that dies while it is listed].
template <typename Visit>
void for_each_object_of(PyObject* type, const Visit& visit) {
  const py::object list_objects = py::module_::import("gc").attr("get_objects");
  const auto objects = py::reinterpret_steal<py::list>(
      PyObject_CallNoArgs(list_objects.ptr()));
  if (!objects) {
    throw py::error_already_set();
  }
  for (const py::handle object : objects) {
    // By type: asking an object for its class may run code of its own.
    if (PyType_IsSubtype(
            Py_TYPE(object.ptr()), reinterpret_cast<PyTypeObject*>(type)) != 0) {
      visit(object.ptr());
    }
  }
}

} // namespace

Owners owners_of(const at::Tensor& tensor) {
  return less_python(
      static_cast<int64_t>(tensor.use_count()),
      *tensor.unsafeGetTensorImpl()->pyobj_slot());
}

Owners owners_of(const c10::Storage& storage) {
  return less_python(
      static_cast<int64_t>(storage.use_count()),
      *storage.unsafeGetStorageImpl()->pyobj_slot());
}

bool has_python_object(const at::Tensor& tensor) {
  return object_in(*tensor.unsafeGetTensorImpl()->pyobj_slot()) != nullptr;
}

bool has_python_object(const c10::Storage& storage) {
  return object_in(*storage.unsafeGetStorageImpl()->pyobj_slot()) != nullptr;
}

std::vector<at::Tensor> live_tensors() {
  std::vector<at::Tensor> found;
  for_each_object_of(THPVariableClass, [&found](PyObject* object) {
    const at::Tensor& held = THPVariable_Unpack(object);
    if (!held.defined()) {
      return;
    }
    const c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl> weak(
        held.getIntrusivePtr());
    if (auto alive = weak.lock()) {
      found.emplace_back(std::move(alive));
    }
  });
  return found;
}

bool has_live_object_of(const py::type& type) {
  bool found = false;
  for_each_object_of(type.ptr(), [&found](PyObject*) { found = true; });
  return found;
}

} // namespace noalias
