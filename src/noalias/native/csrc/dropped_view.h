// A view that has become an ordinary tensor, and the way back.
#pragma once

#include "proof.h"

#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <optional>

namespace noalias {

// See Note [Dropping the view relationship]. Requires that the base is hidden.
class DroppedView {
 public:
  explicit DroppedView(const Tensor& view);
  DroppedView(DroppedView&&) = default;
  DroppedView& operator=(DroppedView&&) = delete;
  ~DroppedView() = default;

  // See Note [A call that raises leaves a view].
  void give_back();

  // How many owners of `base` this is, so that a proof can leave them out.
  int64_t owners_of_base(const Tensor& base) const;

 private:
  using AutogradMeta = torch::autograd::AutogradMeta;
  using ViewInfo = torch::autograd::ViewInfo;

  bool has_its_history() const;

  Tensor tensor_;
  std::optional<ViewInfo> backward_view_;
  std::optional<ViewInfo> forward_view_;
  bool shared_view_info_;
  torch::autograd::CreationMeta creation_meta_;
  uint32_t attr_version_;
  uint32_t version_;
  torch::autograd::Edge history_;
  const AutogradMeta* metadata_ = nullptr;
};

} // namespace noalias
