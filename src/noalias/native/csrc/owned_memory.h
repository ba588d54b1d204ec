// May the result of an operator take the memory of the gradient it reads?
#pragma once

#include "proof.h"

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>

namespace noalias::owned {

// The devices whose gradients are looked at.
c10::ArrayRef<c10::BackendComponent> backends();

// An ordinary strided tensor on one of them: no subclass, no functorch or functional
// wrapper, no inference tensor, nothing lazy, nested or quantized.
bool is_ordinary(const Tensor& tensor);

// Ordinary, and something that a kernel for `gradient` reads without moving it: on the
// same device, or one number on the CPU.
bool is_operand_for(const Tensor& gradient, const Tensor& other);

// Whether a call with these keys goes from autograd straight to a backend's kernel: no
// mode, tracer or functorch level wants to see it.
bool is_unobserved(c10::DispatchKeySet keys);

// Whether the device's elementwise kernels are PyTorch's own, made with TensorIterator.
bool has_tensor_iterator(const Tensor& tensor);

bool has_tangent(const Tensor& tensor);

// Whether `gradient`, a slot in the engine's list of inputs, is the only way to
// the tensor and to its memory, and the memory PyTorch's own and no larger.
// Requires is_ordinary.
bool is_sole_owner(const Tensor& gradient);

bool is_canonically_contiguous(const Tensor& tensor);

// See Note [The layout of the result]. `others` can be expanded to `gradient`.
bool has_strides_of_result(
    const Tensor& gradient,
    c10::ArrayRef<const Tensor*> others);

// A new tensor in the gradient's memory, with no past: to everybody who looks, it
// is the tensor that the operator would have allocated.
Tensor in_memory_of(const Tensor& gradient);

} // namespace noalias::owned
