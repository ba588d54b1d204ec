#include "owned_memory.h"

#include "compat_python.h"
#include "gradient_proof.h"
#include "one_stream.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/strides.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <vector>

namespace noalias::owned {

namespace {

uint64_t ordinary_keys(c10::BackendComponent backend) {
  const auto dense = c10::toRuntimePerBackendFunctionalityKey(
      c10::DispatchKey::Dense, backend);
  return (c10::DispatchKeySet(dense) |
          c10::getAutogradRelatedKeySetFromBackend(backend) |
          c10::getAutocastRelatedKeySetFromBackend(backend))
      .raw_repr();
}

// One entry for each of backends().
const std::vector<uint64_t>& all_ordinary_keys() {
  static const std::vector<uint64_t> all = [] {
    std::vector<uint64_t> keys;
    for (const auto backend : backends()) {
      keys.push_back(ordinary_keys(backend));
    }
    return keys;
  }();
  return all;
}

uint64_t ordinary_keys_of_any() {
  static const uint64_t any = std::accumulate(
      all_ordinary_keys().begin(),
      all_ordinary_keys().end(),
      uint64_t{0},
      std::bit_or<>());
  return any;
}

// A pinned buffer on the CPU is allocated here, too, but may be on its way to a device.
bool is_allocated_for(const Tensor& gradient) {
  const c10::Storage& storage = gradient.storage();
  return gradient.is_cpu() ? storage.allocator() == c10::GetCPUAllocator()
                           : is_allocated_here(storage);
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

c10::ArrayRef<c10::BackendComponent> backends() {
  static constexpr std::array all = {
      c10::BackendComponent::CPUBit,
      c10::BackendComponent::CUDABit,
      c10::BackendComponent::PrivateUse1Bit,
  };
  return all;
}

bool is_ordinary(const Tensor& tensor) {
  if (!tensor.defined()) {
    return false;
  }
  const auto& all = all_ordinary_keys();
  return std::find(all.begin(), all.end(), tensor.key_set().raw_repr()) !=
      all.end();
}

bool is_operand_for(const Tensor& gradient, const Tensor& other) {
  return is_ordinary(other) &&
      (other.device() == gradient.device() ||
       (other.is_cpu() && other.dim() == 0));
}

bool is_unobserved(c10::DispatchKeySet keys) {
  return (keys.raw_repr() & ~ordinary_keys_of_any()) == 0;
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
//   6. no kernel that was queued before still reads it; see Note [One stream].
bool is_sole_owner(const Tensor& gradient) {
  const c10::Storage& storage = gradient.storage();
  if (gradient.use_count() != 1 || gradient.weak_use_count() != 1 ||
      has_python_object(gradient) || !is_allocated_for(gradient) ||
      storage.nbytes() != gradient.nbytes() || gradient.storage_offset() != 0 ||
      !gradient.is_non_overlapping_and_dense() || !nothing_queued_reads(gradient)) {
    return false;
  }
  const auto* view = torch::autograd::impl::get_view_autograd_meta(gradient);
  return view == nullptr
      ? storage.use_count() == 1 && !has_python_object(storage)
      : view->has_bw_view() &&
          prove_hidden(gradient, *view) == Verdict::kHidden;
}

bool has_tensor_iterator(const Tensor& tensor) {
  return tensor.is_cpu() || tensor.is_cuda();
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
// only what leaves it no choice is accepted. Backends with kernels of their own have
// rules of their own; what is contiguous throughout leaves those no choice either.
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
    if (!has_tensor_iterator(gradient)) {
      return false;
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
  if (!has_tensor_iterator(gradient)) {
    return only_scalars && is_canonically_contiguous(gradient);
  }
  return is_canonically_contiguous(gradient) ? only_scalars || !has_ties
                                             : only_scalars && !has_ties;
}

Tensor in_memory_of(const Tensor& gradient) {
  return Tensor(gradient.unsafeGetTensorImpl()->shallow_copy_and_detach(
      c10::VariableVersion(/*version=*/0),
      /*allow_tensor_metadata_change=*/true));
}

} // namespace noalias::owned
