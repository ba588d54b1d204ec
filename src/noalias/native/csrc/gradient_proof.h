// May this gradient be written? See Note [When a gradient is ours].
#pragma once

#include <ATen/core/Tensor.h>

namespace noalias {

// A strided tensor whose elements lie in its own storage: no subclass, functorch
// wrapper, functional or quantized tensor, no lazy zero.
bool has_ordinary_memory(const at::Tensor& tensor);

// A strided tensor with values: no subclass, no functorch, functional, quantized or
// meta tensor, no lazy zero. Conjugation and negation may be lazy.
bool is_ordinary_gradient(const at::Tensor& gradient);

// Ordinary, nothing lazy, and every element of its memory is one of its own.
bool is_plain(const at::Tensor& gradient);

// Whether PyTorch allocated this memory. What came from elsewhere (numpy, dlpack,
// another process) may be seen without being owned, and cannot be resized.
bool is_allocated_here(const c10::Storage& storage);

// Whether the caller's reference is the only way to this gradient and its
// memory. Requires is_plain. May take the interpreter lock.
bool is_ours(const at::Tensor& gradient);

// The same without ever taking the interpreter lock: a gradient with a Python
// object counts as somebody else's.
bool is_ours_beyond_python(const at::Tensor& gradient);

} // namespace noalias
