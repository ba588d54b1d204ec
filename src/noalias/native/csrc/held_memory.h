// The memory that an operand of linear had in forward.
//
// Note [What a view holds on to]
//
// PyTorch's composite does not save the weight but a transposed view of it, and of an
// input of more than two dimensions the folded one. A view keeps the memory that it
// was made of: after `weight.data = other` (a swap of averaged weights, stashed or
// offloaded ones, `module.double()`) backward still multiplies by the weight that
// forward has used. No version counter tells of such a change. So the memory is
// held beside the operand that is saved, and backward reads that. The input, which
// stock folds only where it has more than two dimensions, is held there only; and
// not if it is a view itself, whose memory the proof counts the owners of.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/util/DimVector.h>

#include <cstdint>
#include <optional>

namespace noalias {

class HeldMemory {
 public:
  // Nothing for what has no ordinary memory: a subclass or a wrapper does its own.
  static std::optional<HeldMemory> of(const at::Tensor& operand);

  // `saved` itself if it has that memory still, else a tensor that has, with the
  // history of `saved`.
  at::Tensor under(const at::Tensor& saved) const;

 private:
  explicit HeldMemory(const at::Tensor& operand);

  bool is_of(const at::Tensor& tensor) const;

  c10::Storage storage_;
  c10::DispatchKeySet keys_;
  caffe2::TypeMeta dtype_;
  c10::DimVector sizes_;
  c10::DimVector strides_;
  int64_t offset_;
};

// `saved` with the memory that is held, if any is.
at::Tensor under_held(
    const at::Tensor& saved,
    const std::optional<HeldMemory>& memory);

} // namespace noalias
