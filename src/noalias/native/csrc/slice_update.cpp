#include "slice_update.h"

#include "compat.h"
#include "compat_engine.h"
#include "counters.h"
#include "gradient_proof.h"
#include "handed_on.h"
#include "region.h"
#include "small_slices.h"
#include "zero_signs.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/real.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/functions/tensor.h>
#include <torch/csrc/autograd/variable.h>

#include <mutex>
#include <optional>
#include <string>
#include <typeinfo>
#include <utility>

namespace noalias {

namespace {

using at::Tensor;
using torch::autograd::CopyBackwards;
using torch::autograd::CopySlices;
namespace impl = torch::autograd::impl;

// How far beyond its first element a geometry of at least one element reaches.
int64_t reach(const at::TensorGeometry& geometry) {
  int64_t last = 0;
  for (int64_t i = 0; i < geometry.dim(); ++i) {
    last += (geometry.sizes()[i] - 1) * geometry.strides()[i];
  }
  return last;
}

// Note [Updating a slice of the gradient]
//
// CopySlices answers what the gradient of the base's old value is: the incoming
// gradient, with the slice replaced by what the in-place operator's own backward
// makes of it. Stock copies all of the incoming gradient to write one slice. When
// nobody else holds it, writing the slice is enough: T updates in O(T).
//
// The node is a CopySlices in all but that (same contents, same place in the graph,
// same sequence number), so everything else is stock's: create_graph, compiled
// autograd, a gradient that somebody holds, release, errors.
class SliceUpdate final : public CopySlices {
 public:
  // Takes everything from `stock`, which nobody may run afterwards.
  explicit SliceUpdate(CopySlices& stock)
      : CopySlices(
            placeholder(),
            std::move(stock.view),
            std::move(stock.view_fn),
            no_edges()) {
    base = std::move(stock.base);
    fn = std::move(stock.fn);
    input_metadata_.clear();
    input_metadata_.emplace_back(std::move(stock.mutable_input_metadata(0)));
    next_edges_ = std::move(stock.next_edges());
    for (const Edge& next : next_edges_) {
      update_topological_nr(next);
    }
    // The engine's order, and so the order of every sum, stays stock's.
    sequence_nr_ = stock.sequence_nr();
    pre_hooks_ = std::move(stock.pre_hooks());
    post_hooks_ = std::move(stock.post_hooks());
    tensor_pre_hooks_ = std::move(stock.tensor_pre_hooks());
    retains_grad_hooks_ = std::move(stock.retains_grad_hooks());
  }

  std::string name() const override {
    return "SliceUpdate";
  }

  variable_list apply(variable_list&& inputs) override {
    variable_list results = update_or_copy(std::move(inputs));
    if (results[0].defined() && !results[0].is_cpu()) {
      remember(results[0]);
    }
    return results;
  }

 private:
  // See Note [Kernels that still read].
  void remember(const Tensor& gradient) {
    const auto* task = running_graph_task();
    if (task != nullptr && !has_hooks(*this)) {
      const Edge& next = next_edge(0);
      note_handed_on(
          {task->id_, next.function.get(), next.input_nr}, gradient);
    }
  }

  variable_list update_or_copy(variable_list&& inputs) {
    if (inputs.size() == 1 && may_update(inputs[0])) {
      // Against release_variables() and a second backward call; see Note
      // [Thread Safety on Autograd Node] in PyTorch.
      const std::lock_guard<std::mutex> lock(mutex_);
      if (fn != nullptr) {
        update_exec_info();
        return update(std::move(inputs[0]));
      }
    }
    return CopySlices::apply(std::move(inputs));
  }

  // The constructor wants a base and a function to read what is then taken from
  // `stock`. These have next to nothing to read.
  static const Tensor& placeholder() {
    static const Tensor instance = at::empty({});
    return instance;
  }

  static const NodePtr& no_edges() {
    struct NoEdges final : Node {
      variable_list apply(variable_list&& /*inputs*/) override {
        return {};
      }
    };
    static const NodePtr instance = make_node<NoEdges>();
    return instance;
  }

  bool may_update(const Tensor& gradient) {
    return gradient.defined() && !c10::GradMode::is_enabled() &&
        is_plain(gradient) && gradient.sizes() == base.sizes() &&
        gradient.strides() == base.strides() && gradient.numel() != 0 &&
        view.numel() != 0 && is_inside() && is_ours(gradient) &&
        (gradient.is_cpu() || nobody_reads(gradient));
  }

  // See Note [Kernels that still read].
  bool nobody_reads(const Tensor& gradient) {
    const auto* task = running_graph_task();
    return task != nullptr && !has_hooks(*this) &&
        was_handed_on({task->id_, this, 0}, gradient);
  }

  // Stock raises for a view that leaves its base's memory.
  bool is_inside() const {
    const int64_t offset = offset_in_base();
    return offset >= 0 && offset + reach(view) <= reach(base);
  }

  int64_t offset_in_base() const {
    return view.storage_offset() - base.storage_offset();
  }

  // Of the update that the gradient goes to from here. See Note [The next slice].
  int64_t next_offset() const {
    const Node* next = next_edge(0).function.get();
    return next != nullptr && typeid(*next) == typeid(SliceUpdate)
        ? static_cast<const SliceUpdate&>(*next).offset_in_base()
        : offset_in_base();
  }

  Region region() const {
    return {
        c10::DimVector(view.sizes()),
        c10::DimVector(view.strides()),
        offset_in_base()};
  }

  variable_list update(Tensor&& gradient) {
    count(counters().slices_updated);
    variable_list results(num_outputs());
    // What overlaps itself can have been written by `x.copy_(x)` alone, and stock
    // raises for its gradient: so does the general way.
    if (typeid(*fn) == typeid(CopyBackwards) &&
        !may_overlap(view.sizes(), view.strides())) {
      through_copy(std::move(gradient), results);
    } else {
      through(std::move(gradient), results);
    }
    return results;
  }

  // What `base[...] = source` comes to: nothing of the old value remains.
  void through_copy(Tensor&& gradient, variable_list& results) {
    const bool to_base = task_should_compute_output(0);
    const bool to_source = task_should_compute_output(1);
    const Region written = region();
    if (to_source && !add_to_source(gradient, written)) {
      Tensor incoming;
      {
        const at::AutoDispatchBelowADInplaceOrView below;
        incoming = copy_of_region(gradient, written);
      }
      results[1] = gradient_of_source(std::move(incoming), source_options());
    }
    if (to_base) {
      {
        const at::AutoDispatchBelowADInplaceOrView below;
        clear_region(gradient, written);
      }
      pass_on(gradient, std::nullopt);
      results[0] = std::move(gradient);
    }
  }

  const at::TensorOptions& source_options() const {
    return static_cast<CopyBackwards&>(*fn).src_options;
  }

  // The source of a step in a loop is used in the next one, too, whose gradient has
  // arrived before: the slice is added there, without a copy of it. The same numbers
  // in the same order as the engine adds them; see Note [Gradients that wait].
  bool add_to_source(const Tensor& gradient, const Region& written) {
    auto* task = running_graph_task();
    const auto type = gradient.scalar_type();
    if (task == nullptr || has_hooks(*this) ||
        torch::autograd::AnomalyMode::is_enabled() || !gradient.is_cpu() ||
        !source_options().device().is_cpu() ||
        source_options().dtype().toScalarType() != type) {
      return false;
    }
    const WaitingGradient waiting(*task, *this, next_edge(1));
    const Tensor* sum = waiting.sum();
    if (sum == nullptr || sum->requires_grad() || !is_plain(*sum) ||
        !sum->is_cpu() || sum->scalar_type() != type ||
        sum->sizes() != view.sizes() || !is_ours_beyond_python(*sum)) {
      return false;
    }
    const at::AutoDispatchBelowADInplaceOrView below;
    add_region(*sum, gradient, written, next_offset());
    return true;
  }

  static Tensor gradient_of_source(
      Tensor&& incoming,
      const at::TensorOptions& options) {
    const auto dtype = options.dtype().toScalarType();
    if (incoming.scalar_type() == dtype &&
        incoming.device() == options.device() &&
        incoming.layout() == options.layout()) {
      return std::move(incoming);
    }
    const bool drops_imaginary =
        incoming.is_complex() && !c10::isComplexType(dtype);
    const c10::DeviceGuard device(options.device());
    return (drops_imaginary ? at::real(incoming) : incoming).to(options);
  }

  void through(Tensor&& gradient, variable_list& results) {
    const Region written = region();
    variable_list inputs;
    {
      const at::AutoDispatchBelowADInplaceOrView below;
      // The slice is overwritten below, and fn may keep what it is given.
      inputs.push_back(copy_of_region(gradient, written));
    }
    variable_list inner = (*fn)(std::move(inputs));
    for (size_t i = 0; i < inner.size(); ++i) {
      if (!task_should_compute_output(i) || !inner[i].defined()) {
        // Stock takes an undefined gradient of the slice for one of the base.
        continue;
      }
      if (i != 0) {
        results[i] = std::move(inner[i]);
        continue;
      }
      {
        const at::AutoDispatchBelowADInplaceOrView below;
        written.of(gradient).copy_(inner[0]);
      }
      pass_on(gradient, written);
      results[0] = std::move(gradient);
    }
  }

  // What is known of zeros in this gradient holds for the next one too.
  void pass_on(
      const Tensor& gradient,
      const std::optional<Region>& written) {
    const auto* task = running_graph_task();
    // A hook may have put another gradient in the place of the sum.
    if (task != nullptr && !has_hooks(*this)) {
      const Edge& next = next_edge(0);
      hand_on(
          {task->id_, this, 0},
          {task->id_, next.function.get(), next.input_nr},
          gradient,
          written);
    }
  }
};

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
