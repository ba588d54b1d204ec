// Is the base of this view hidden? See Note [When a base is hidden].
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>

namespace noalias {

using at::Tensor;
using torch::autograd::DifferentiableViewMeta;

// Why a base is not hidden; kHidden where it is. The order is that of the
// counters Python reads.
enum class Verdict : uint8_t {
  kHidden,
  kNoStorage, // the proof has nothing to count
  kOtherOwner, // C++ holds the base: another view, a saved tensor, a list
  kPythonName, // a Python name, list or attribute holds the base
  kWeakReference, // a weak reference could bring it back
  kSharedStorage, // another tensor shares the memory: detach, a saved result
  kPythonStorage, // Python holds the storage
  kLeaf, // the base, or the view itself, is a leaf that requires grad
  kHook, // a hook or retain_grad sits on the base
  kInference, // made in inference mode
  kStale, // stock PyTorch refuses the view's history
  kOverlap, // elements of the view share memory, through the base
  kOffset, // complex, and begins inside its memory
  kCount,
};

const char* name_of(Verdict verdict);

// How many owners of the base are the view's own metadata: backward and forward
// view information may be one object or two.
int64_t owners_in_metadata(const DifferentiableViewMeta& meta);

// Owners known to be no observers, beyond the view itself.
struct Discount {
  int64_t base = 0; // owners of the base
  int64_t storage = 0; // owners of its memory
};

// See Note [When a base is hidden].
Verdict prove_hidden(
    const Tensor& view,
    const DifferentiableViewMeta& meta,
    Discount discount = {});

} // namespace noalias
