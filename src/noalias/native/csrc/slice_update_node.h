// The node that takes the place of CopySlices, and updates a slice of the gradient.
#pragma once

#include "compat.h"
#include "region.h"

#include <ATen/TensorGeometry.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/functions/tensor.h>

#include <optional>
#include <string>

namespace noalias {

// Note [Updating a slice of the gradient]
//
// CopySlices answers what the gradient of the base's old value is: the incoming
// gradient, with the slice replaced by what the in-place operator's own backward
// makes of it. Stock copies all of the incoming gradient to write one slice. When
// nobody else holds it, writing the slice is enough: T updates in O(T).
//
// The node has the contents of the CopySlices that it replaces, its place in the graph
// and its sequence number. For everything else it makes a CopySlices of them again and
// lets that answer: create_graph, compiled autograd, a gradient that somebody holds,
// errors. So a program that never runs backward pays for one small node.
class SliceUpdate final : public Node {
 public:
  using CopySlices = torch::autograd::CopySlices;

  // Takes everything from `stock`, which nobody may run afterwards. Requires that it
  // has no view_fn.
  explicit SliceUpdate(CopySlices& stock);

  std::string name() const override {
    return "SliceUpdate";
  }

  const at::TensorGeometry& base() const {
    return base_;
  }

  const at::TensorGeometry& view() const {
    return view_;
  }

  // The backward of the in-place operator; null once it has been released.
  const NodePtr& fn() const {
    return fn_;
  }

  variable_list apply(variable_list&& inputs) override;
  void release_variables() override;
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args)
      const override;
  variable_list apply_with_saved(
      const variable_list& inputs,
      torch::dynamo::autograd::SwapSavedVariables& saved) override;

 private:
  using Tensor = at::Tensor;

  template <typename Use>
  decltype(auto) as_stock(const Use& use) const;
  variable_list update_or_copy(variable_list&& inputs);
  void update_exec_info() const;
  void remember(const Tensor& gradient);
  bool may_update(const Tensor& gradient);
  bool nobody_reads(const Tensor& gradient);
  bool is_inside() const;
  int64_t offset_in_base() const;
  int64_t next_offset() const;
  Region region() const;
  variable_list update(Tensor&& gradient);
  void through_copy(Tensor&& gradient, variable_list& results);
  const at::TensorOptions& source_options() const;
  bool add_to_source(const Tensor& gradient, const Region& written);
  void through(Tensor&& gradient, variable_list& results);
  void pass_on(
      const Tensor& gradient,
      const std::optional<Region>& written);

  at::TensorGeometry base_;
  at::TensorGeometry view_;
  NodePtr fn_;
};

} // namespace noalias
