#include "slice_update_node.h"

#include "compat_engine.h"
#include "counters.h"
#include "gradient_proof.h"
#include "handed_on.h"
#include "one_stream.h"
#include "small_slices.h"
#include "zero_signs.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/real.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/functions/tensor.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include <memory>
#include <mutex>
#include <typeinfo>
#include <utility>

namespace noalias {

namespace {

using at::Tensor;
using torch::autograd::CopyBackwards;
using torch::autograd::CopySlices;
using torch::dynamo::autograd::CompiledNodeArgs;
using torch::dynamo::autograd::SwapSavedVariables;

// How far beyond its first element a geometry of at least one element reaches.
int64_t reach(const at::TensorGeometry& geometry) {
  int64_t last = 0;
  for (int64_t i = 0; i < geometry.dim(); ++i) {
    last += (geometry.sizes()[i] - 1) * geometry.strides()[i];
  }
  return last;
}

// CopySlices wants a base to read; what it makes of it is replaced. Not made by an
// operator, which modes, tracers and the profiler of whoever comes first would see.
const Tensor& placeholder() {
  static const Tensor instance =
      at::detail::empty_cpu({}, at::TensorOptions(at::kFloat));
  return instance;
}

Tensor gradient_of_source(
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

struct NoEdges final : Node {
  variable_list apply(variable_list&& /*inputs*/) override {
    return {};
  }
};

} // namespace

SliceUpdate::SliceUpdate(CopySlices& stock)
    : Node(stock.sequence_nr(), std::move(stock.next_edges())),
      base_(std::move(stock.base)),
      view_(std::move(stock.view)),
      fn_(std::move(stock.fn)) {
  input_metadata_.emplace_back(std::move(stock.mutable_input_metadata(0)));
  pre_hooks_ = std::move(stock.pre_hooks());
  post_hooks_ = std::move(stock.post_hooks());
  tensor_pre_hooks_ = std::move(stock.tensor_pre_hooks());
  retains_grad_hooks_ = std::move(stock.retains_grad_hooks());
}

// The node that was replaced, made anew. It shares this one's function, so the caller
// holds the lock where that runs.
template <typename Use>
decltype(auto) SliceUpdate::as_stock(const Use& use) const {
  // It wants a function as well, also where that has been released.
  const NodePtr function = fn_ != nullptr ? fn_ : NodePtr(make_node<NoEdges>());
  const auto node =
      make_node<CopySlices>(placeholder(), view_, nullptr, function);
  node->base = base_;
  node->fn = fn_;
  node->set_next_edges(torch::autograd::edge_list(next_edges_));
  return use(*node);
}

void SliceUpdate::release_variables() {
  const std::lock_guard<std::mutex> lock(mutex_);
  fn_ = nullptr;
}

void SliceUpdate::compiled_args(CompiledNodeArgs& args) const {
  as_stock([&](const CopySlices& stock) { stock.compiled_args(args); });
}

variable_list SliceUpdate::apply_with_saved(
    const variable_list& inputs,
    SwapSavedVariables& saved) {
  return as_stock([&](CopySlices& stock) {
    return stock.apply_with_saved(inputs, saved);
  });
}

variable_list SliceUpdate::apply(variable_list&& inputs) {
  variable_list results = update_or_copy(std::move(inputs));
  if (results[0].defined() && !results[0].is_cpu()) {
    remember(results[0]);
  }
  return results;
}

// See Note [Kernels that still read].
void SliceUpdate::remember(const Tensor& gradient) {
  const auto* task = running_graph_task();
  if (task != nullptr && !has_hooks(*this)) {
    const Edge& next = next_edge(0);
    note_handed_on(
        {task->id_, next.function.get(), next.input_nr}, gradient);
  }
}

variable_list SliceUpdate::update_or_copy(variable_list&& inputs) {
  if (inputs.size() == 1 && may_update(inputs[0])) {
    // Against release_variables() and a second backward call; see Note
    // [Thread Safety on Autograd Node] in PyTorch.
    const std::lock_guard<std::mutex> lock(mutex_);
    if (fn_ != nullptr) {
      update_exec_info();
      return update(std::move(inputs[0]));
    }
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  return as_stock(
      [&](CopySlices& stock) { return stock.apply(std::move(inputs)); });
}

// Where only some gradients are asked for, CopySlices tells the engine what its
// function needs.
void SliceUpdate::update_exec_info() const {
  const auto* execution = torch::autograd::get_current_graph_task_exec_info();
  if (execution != nullptr && !execution->empty()) {
    as_stock([](CopySlices& stock) { stock.update_exec_info(); });
  }
}

bool SliceUpdate::may_update(const Tensor& gradient) {
  return gradient.defined() && !c10::GradMode::is_enabled() &&
      is_plain(gradient) && gradient.sizes() == base_.sizes() &&
      gradient.strides() == base_.strides() && gradient.numel() != 0 &&
      view_.numel() != 0 && is_inside() && is_ours(gradient) &&
      (gradient.is_cpu() || nobody_reads(gradient));
}

// No kernel that was queued before; see Notes [One stream] and [Kernels that still read].
bool SliceUpdate::nobody_reads(const Tensor& gradient) {
  const auto* task = running_graph_task();
  return task != nullptr && !has_hooks(*this) &&
      (nothing_queued_reads(gradient) ||
       was_handed_on({task->id_, this, 0}, gradient));
}

// Stock raises for a view that leaves its base's memory.
bool SliceUpdate::is_inside() const {
  const int64_t offset = offset_in_base();
  return offset >= 0 && offset + reach(view_) <= reach(base_);
}

int64_t SliceUpdate::offset_in_base() const {
  return view_.storage_offset() - base_.storage_offset();
}

// Of the update that the gradient goes to from here. See Note [The next slice].
int64_t SliceUpdate::next_offset() const {
  const Node* next = next_edge(0).function.get();
  return next != nullptr && typeid(*next) == typeid(SliceUpdate)
      ? static_cast<const SliceUpdate&>(*next).offset_in_base()
      : offset_in_base();
}

Region SliceUpdate::region() const {
  return {
      c10::DimVector(view_.sizes()),
      c10::DimVector(view_.strides()),
      offset_in_base()};
}

variable_list SliceUpdate::update(Tensor&& gradient) {
  count(counters().slices_updated);
  variable_list results(num_outputs());
  // What overlaps itself can have been written by `x.copy_(x)` alone, and stock
  // raises for its gradient: so does the general way.
  if (typeid(*fn_) == typeid(CopyBackwards) &&
      !may_overlap(view_.sizes(), view_.strides())) {
    through_copy(std::move(gradient), results);
  } else {
    through(std::move(gradient), results);
  }
  return results;
}

// What `base[...] = source` comes to: nothing of the old value remains.
void SliceUpdate::through_copy(Tensor&& gradient, variable_list& results) {
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

const at::TensorOptions& SliceUpdate::source_options() const {
  return static_cast<CopyBackwards&>(*fn_).src_options;
}

// The source of a step in a loop is used in the next one, too, whose gradient has
// arrived before: the slice is added there, without a copy of it. The same numbers
// in the same order as the engine adds them; see Note [Gradients that wait].
bool SliceUpdate::add_to_source(const Tensor& gradient, const Region& written) {
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
      sum->sizes() != view_.sizes() || !is_ours_beyond_python(*sum)) {
    return false;
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  add_region(*sum, gradient, written, next_offset());
  return true;
}

void SliceUpdate::through(Tensor&& gradient, variable_list& results) {
  const Region written = region();
  variable_list inputs;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    // The slice is overwritten below, and fn may keep what it is given.
    inputs.push_back(copy_of_region(gradient, written));
  }
  variable_list inner = (*fn_)(std::move(inputs));
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
void SliceUpdate::pass_on(
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

} // namespace noalias
