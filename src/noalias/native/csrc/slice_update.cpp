#include "slice_update.h"

#include "slice_update_node.h"

#include <torch/csrc/autograd/variable.h>

namespace noalias {

namespace {

using at::Tensor;
using torch::autograd::CopySlices;
namespace impl = torch::autograd::impl;

// Whoever watched the node appear (a node creation hook, say) goes on seeing it.
bool is_held_by_base_and_view(const NodePtr& node) {
  return node.use_count() == 2;
}

} // namespace

void update_slices_of_gradient(CopySlices& fresh, const Tensor& written) {
  const auto* view_meta = impl::get_view_autograd_meta(written);
  auto* base_meta =
      impl::get_autograd_meta(view_meta->get_backward_view().base_);
  const NodePtr& stock = base_meta->grad_fn_;
  TORCH_INTERNAL_ASSERT(stock.get() == &fresh);
  // Stock has brought the view's own history up to date behind the new node.
  Node* behind_view = view_meta->grad_fn_.get();
  if (fresh.view_fn != nullptr || behind_view == nullptr ||
      behind_view->num_outputs() != 1 ||
      behind_view->next_edge(0).function != stock ||
      !is_held_by_base_and_view(stock)) {
    return;
  }
  const NodePtr replaced = stock; // until the end of this function
  const auto node = make_node<SliceUpdate>(fresh);
  // Not by set_next_edge: the view's node may have a parent by now (a tangent that
  // was computed from the view). Its topological number stays right, since the
  // two nodes have the same.
  behind_view->next_edges()[0] = Edge(node, 0);
  base_meta->grad_fn_ = node;
}

} // namespace noalias
