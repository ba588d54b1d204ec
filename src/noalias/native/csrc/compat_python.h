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

#include <cstdint>

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

} // namespace noalias
