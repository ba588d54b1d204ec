#include "owned_memory.h"

#include "compat_python.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/strides.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace noalias::owned {

namespace {

uint64_t ordinary_cpu_keys() {
  static const uint64_t keys =
      (c10::DispatchKeySet(c10::DispatchKey::CPU) |
       c10::getAutogradRelatedKeySetFromBackend(c10::BackendComponent::CPUBit) |
       c10::getAutocastRelatedKeySetFromBackend(c10::BackendComponent::CPUBit))
          .raw_repr();
  return keys;
}

template <typename Predicate>
bool all_of(
    const Tensor& gradient,
    c10::ArrayRef<const Tensor*> others,
    Predicate&& holds) {
  return holds(gradient) &&
      std::all_of(others.begin(), others.end(), [&](const Tensor* other) {
           return holds(*other);
         });
}

} // namespace

bool is_ordinary_cpu(const Tensor& tensor) {
  return tensor.defined() &&
      tensor.key_set().raw_repr() == ordinary_cpu_keys();
}

bool is_unobserved(c10::DispatchKeySet keys) {
  return (keys.raw_repr() & ~ordinary_cpu_keys()) == 0;
}

bool has_tangent(const Tensor& tensor) {
  return torch::autograd::impl::get_autograd_meta(tensor) != nullptr &&
      tensor._fw_grad(/*level=*/0).defined();
}

// Note [Nobody can see this gradient]
//
// While a node's formula runs, its gradient is a slot in a list that the engine
// drops when the node is done. It may be overwritten when
//   1. that slot is the tensor's only owner. Whoever wants to see a gradient later
//      is another: retain_grad, autograd.grad for an intermediate tensor, a hook
//      that kept it, a post hook of the node (the engine copies its list of inputs
//      for those), the buffer of another node that waits for the same gradient,
//      the caller who passed it to backward.
//   2. the tensor is the only owner of its memory. Reshaping nodes make views, and
//      a view's metadata holds the gradient it was made from: then that one must
//      be hidden (Note [When a base is hidden]).
//   3. Python has never seen it. Whether anybody there still holds it could be asked
//      (Note [Owners and Python objects]), but not without the interpreter lock,
//      and a gradient that a hook looked at is rare enough.
//   4. PyTorch's own allocator made the memory. What came from elsewhere (numpy,
//      another process, a pinned buffer on its way to a device) may be read
//      without being owned.
//   5. the tensor fills it. A part of a larger buffer would keep all of that alive.
// All of this is about the CPU, where a call is over when it returns. On a device
// a kernel that another stream has queued may still read what no longer has an
// owner, so a gradient there stays as it is.
bool is_sole_owner(const Tensor& gradient) {
  const c10::Storage& storage = gradient.storage();
  if (gradient.use_count() != 1 || gradient.weak_use_count() != 1 ||
      has_python_object(gradient) ||
      storage.allocator() != c10::GetCPUAllocator() ||
      storage.nbytes() != gradient.nbytes() || gradient.storage_offset() != 0 ||
      !gradient.is_non_overlapping_and_dense()) {
    return false;
  }
  const auto* view = torch::autograd::impl::get_view_autograd_meta(gradient);
  return view == nullptr
      ? storage.use_count() == 1 && !has_python_object(storage)
      : view->has_bw_view() &&
          prove_hidden(gradient, *view) == Verdict::kHidden;
}

// Strides of dimensions of size one are free, and a new tensor has none of that
// freedom.
bool is_canonically_contiguous(const Tensor& tensor) {
  return tensor.is_contiguous() &&
      tensor.strides() == c10::contiguous_strides(tensor.sizes());
}

// Note [The layout of the result]
//
// The result must have the strides that TensorIterator gives to a new tensor:
// a user can see them in a leaf's gradient. These are the rules of its fast setup:
// contiguous if all operands are, else channels last if all are, else the operands'
// own strides if they agree. Where operands are broadcast its general rule orders
// dimensions by the gradient's strides, and by other operands' where two are equal;
// only what leaves it no choice is accepted.
bool has_strides_of_result(
    const Tensor& gradient,
    c10::ArrayRef<const Tensor*> others) {
  constexpr auto channels_last = c10::MemoryFormat::ChannelsLast;
  const auto sizes = gradient.sizes();
  const auto strides = gradient.strides();
  const bool broadcasts =
      !all_of(gradient, others, [&](const Tensor& tensor) {
        return tensor.sizes() == sizes;
      });
  if (!broadcasts) {
    if (all_of(gradient, others, [](const Tensor& tensor) {
          return tensor.is_contiguous();
        })) {
      return is_canonically_contiguous(gradient);
    }
    if (all_of(gradient, others, [](const Tensor& tensor) {
          return tensor.is_contiguous(channels_last);
        })) {
      return strides == c10::get_channels_last_strides_2d(sizes);
    }
    return all_of(gradient, others, [&](const Tensor& tensor) {
      return tensor.strides() == strides;
    });
  }
  const bool has_ties = std::find(sizes.begin(), sizes.end(), 1) != sizes.end();
  const bool only_scalars =
      std::all_of(others.begin(), others.end(), [&](const Tensor* other) {
        return other->dim() == 0;
      });
  return is_canonically_contiguous(gradient) ? only_scalars || !has_ties
                                             : only_scalars && !has_ties;
}

Tensor in_memory_of(const Tensor& gradient) {
  return Tensor(gradient.unsafeGetTensorImpl()->shallow_copy_and_detach(
      c10::VariableVersion(/*version=*/0),
      /*allow_tensor_metadata_change=*/true));
}

} // namespace noalias::owned
