#include "placed_view.h"

#include <ATen/ops/_conj.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace noalias {

namespace {

using at::Tensor;
using torch::autograd::ViewFunc;
namespace impl = torch::autograd::impl;

// Note [A base that begins inside its memory]
//
// Views that as_strided cannot say (conj, real, view_as_complex) are replayed by
// functions, and a slice behind one by as_strided with its offset into memory.
// CopySlices replays them on a gradient that begins at its memory's first element.
// Where the base does not, it finds another slice of the gradient, or none (PyTorch
// 2.9 to 2.15). In stock such a base is rare (a detached slice); a slice whose own
// base was dropped is one to its later views.
//
// This view function says the same view from the two geometries, relative to where
// the base begins.
class PlacedView final : public ViewFunc {
 public:
  PlacedView(const Tensor& base, const Tensor& view)
      : sizes_(view.sizes()),
        strides_(view.strides()),
        from_complex_(base.is_complex()),
        to_complex_(view.is_complex()),
        conjugate_(view.is_conj()),
        negative_(view.is_neg()) {
    // In elements of what as_strided is called on.
    int64_t begin = base.storage_offset();
    offset_ = view.storage_offset();
    if (from_complex_ && !to_complex_) {
      begin *= 2;
    }
    if (!from_complex_ && to_complex_) {
      offset_ *= 2;
      for (int64_t& stride : strides_) {
        stride *= 2;
      }
      sizes_.push_back(2);
      strides_.push_back(1);
    }
    offset_ -= begin;
  }

  Tensor operator()(const Tensor& base) const override {
    Tensor view = from_complex_ && !to_complex_ ? at::view_as_real(base) : base;
    view = view.as_strided(sizes_, strides_, view.storage_offset() + offset_);
    if (!from_complex_ && to_complex_) {
      view = at::view_as_complex(view);
    }
    if (conjugate_) {
      view = at::_conj(view);
    }
    return negative_ ? at::_neg_view(view) : view;
  }

  std::unique_ptr<ViewFunc> clone_and_set(
      std::optional<std::vector<c10::SymInt>> /*symints*/,
      std::optional<std::vector<Tensor>> /*tensors*/) const override {
    return std::make_unique<PlacedView>(*this); // nothing that could be set
  }

 private:
  c10::SmallVector<int64_t, 6> sizes_;
  c10::SmallVector<int64_t, 6> strides_;
  int64_t offset_;
  bool from_complex_;
  bool to_complex_;
  bool conjugate_;
  bool negative_;
};

} // namespace

bool is_misplaced(const Tensor& written) {
  const auto& view = impl::get_view_autograd_meta(written)->get_backward_view();
  const Tensor& base = view.base_;
  return view.has_view_fn() && base.storage_offset() != 0 &&
      base.layout() == at::kStrided && !base.is_conj() && !base.is_neg();
}

void place_view(
    torch::autograd::CopySlices& node,
    const Tensor& written) {
  if (node.view_fn != nullptr && is_misplaced(written)) {
    node.view_fn = std::make_unique<PlacedView>(
        impl::get_view_autograd_meta(written)->get_backward_view().base_,
        written);
  }
}

} // namespace noalias
