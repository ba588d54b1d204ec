#include "gradient_proof.h"

#include "compat_python.h"

#include <c10/core/DispatchKeySet.h>

namespace noalias {

namespace {

constexpr c10::DispatchKeySet kNotOrdinary({
    c10::DispatchKey::Batched,
    c10::DispatchKey::FuncTorchBatched,
    c10::DispatchKey::FuncTorchGradWrapper,
    c10::DispatchKey::Functionalize,
    c10::DispatchKey::NestedTensor,
    c10::DispatchKey::Python,
    c10::DispatchKey::Quantized,
    c10::DispatchKey::Sparse,
    c10::DispatchKey::SparseCsr,
    c10::DispatchKey::ZeroTensor,
});

} // namespace

bool is_allocated_here(const c10::Storage& storage) {
  return storage.resizable();
}

bool has_ordinary_memory(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided &&
      !tensor.key_set().has_any(kNotOrdinary) && tensor.has_storage();
}

bool is_ordinary_gradient(const at::Tensor& gradient) {
  return has_ordinary_memory(gradient) && !gradient.is_meta();
}

bool is_plain(const at::Tensor& gradient) {
  return is_ordinary_gradient(gradient) && !gradient.is_conj() && !gradient.is_neg() &&
      !gradient.is_inference() && gradient.is_non_overlapping_and_dense();
}

// Note [When a gradient is ours]
//
// In backward, with grad mode off, a gradient may be overwritten when nobody can
// tell: nobody but the running node holds the tensor, nobody but the tensor holds
// its memory, and the memory is PyTorch's own. Whoever wants to see a gradient
// later holds it: retain_grad, a captured gradient of autograd.grad, a hook that
// kept it, a post hook of the running node (the engine copies the list of inputs
// for those), the user who passed it to backward.
bool is_ours(const at::Tensor& gradient) {
  const c10::Storage& storage = gradient.storage();
  if (storage.use_count() > 2 || gradient.use_count() > 2 ||
      gradient.weak_use_count() != 1 || !is_allocated_here(storage)) {
    return false;
  }
  const Owners of_gradient = owners_of(gradient);
  if (of_gradient.count != 1 || of_gradient.python != PythonHold::kNone) {
    return false;
  }
  const Owners of_storage = owners_of(storage);
  return of_storage.count == 1 && of_storage.python == PythonHold::kNone;
}

bool is_ours_beyond_python(const at::Tensor& gradient) {
  return !has_python_object(gradient) && gradient.use_count() == 1 &&
      gradient.weak_use_count() == 1 &&
      !has_python_object(gradient.storage()) &&
      gradient.storage().use_count() == 1 &&
      is_allocated_here(gradient.storage());
}

} // namespace noalias
