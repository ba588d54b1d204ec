// Who holds a tensor or a storage, Python included.
//
// Note [Owners and Python objects]
//
// The proofs count owners in C++. A tensor that Python has ever seen keeps its
// Python object, and who owns whom differs:
//   - up to 2.9 ownership flips: a Python object with Python references owns the
//     tensor (one owner in C++, and somebody sees it); without any, the tensor
//     owns the object (no owner in C++).
//   - from 2.10 on the object always is one owner in C++, and the tensor owns one
//     Python reference to it as long as there are further owners in C++.
// So the object's share is subtracted, and then nobody but the tensor itself may
// hold the object: a reference count of one, and no weak reference that could
// bring it back. Both are read with the interpreter lock held, which is also what
// keeps another thread from taking a reference in between.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <vector>

namespace noalias {

enum class PythonHold : uint8_t {
  kNone, // no Python object, or one that only the tensor itself holds
  kName, // a Python reference
  kWeakReference,
};

struct Owners {
  // Owners in C++, less the share of the Python object.
  int64_t count;
  PythonHold python;
};

Owners owners_of(const at::Tensor& tensor);
Owners owners_of(const c10::Storage& storage);

// Whether Python has ever seen it. Needs no interpreter lock.
bool has_python_object(const at::Tensor& tensor);
bool has_python_object(const c10::Storage& storage);

// Note [A tensor that dies while it is listed]
//
// Up to 2.9 a list of all Python objects (gc.get_objects) is no owner of the tensors
// in it: one that another thread lets go of while the list exists is freed under its
// object, which PyTorch reports as an error in that thread. So the list lives and
// dies here, and the interpreter lock is not given up meanwhile: a thread that frees
// a tensor needs it to free the object first, and what has no owner left by then is
// not taken.
//
// Every tensor that Python has an object for, each with one more owner. Needs the
// interpreter lock.
std::vector<at::Tensor> live_tensors();
// The same for any other type: whether there is an object of it.
bool has_live_object_of(const pybind11::type& type);

} // namespace noalias
