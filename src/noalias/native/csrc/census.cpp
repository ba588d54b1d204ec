#include "census.h"

#include "slice_update_node.h"
#include "small_slices.h"

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/autograd/functions/tensor.h>
#include <torch/csrc/autograd/generated/Functions.h>

#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <typeinfo>
#include <unordered_set>

namespace noalias {

namespace {

using torch::autograd::CopySlices;
using torch::autograd::Node;

// PyTorch does not export the type of nodes written in Python, only their name.
constexpr std::string_view kPythonNode = "N5torch8autograd6PyNodeE";

int64_t bytes_of(const at::TensorGeometry& geometry, size_t item_size) {
  return geometry.numel() * static_cast<int64_t>(item_size);
}

Call call_of(const Node& node) {
  return call_behind(node.sequence_nr(), node.thread_id())
      .value_or(Call{"", 0, 0});
}

std::vector<int64_t> shape_of(const torch::autograd::InputMetadata& metadata) {
  if (metadata.is_nested_tensor()) {
    return {};
  }
  std::vector<int64_t> shape;
  for (const c10::SymInt& size : metadata.shape_as_dim_vector()) {
    shape.push_back(size.maybe_as_int().value_or(0));
  }
  return shape;
}

int64_t volume(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  for (const int64_t size : shape) {
    product *= size;
  }
  return product;
}

// A node that rewrites its base's history, PyTorch's or ours, and what it holds.
struct Rewrite {
  const Node* node;
  const at::TensorGeometry* base;
  const at::TensorGeometry* view;
  const Node* fn;
};

std::optional<Rewrite> rewrite_by(const Node& node) {
  if (typeid(node) == typeid(CopySlices)) {
    const auto& copy = static_cast<const CopySlices&>(node);
    return Rewrite{&node, &copy.base, &copy.view, copy.fn.get()};
  }
  if (typeid(node) == typeid(SliceUpdate)) {
    const auto& update = static_cast<const SliceUpdate&>(node);
    return Rewrite{&node, &update.base(), &update.view(), update.fn().get()};
  }
  return std::nullopt;
}

class CensusTaker {
 public:
  Census take(const std::vector<at::Tensor>& roots) {
    for (const at::Tensor& root : roots) {
      visit(root.defined() ? root.grad_fn().get() : nullptr);
    }
    int64_t nodes = 0;
    while (!stack_.empty()) {
      Node* node = stack_.back();
      stack_.pop_back();
      ++nodes;
      look_at(*node);
      for (const auto& edge : node->next_edges()) {
        visit(edge.function.get());
      }
    }
    return {histories(), reads(), compiled(), nodes};
  }

 private:
  using Where = std::tuple<Place, ModuleNumber>;

  void visit(Node* node) {
    if (node != nullptr && seen_.insert(node).second) {
      stack_.push_back(node);
    }
  }

  // By exact type: names are strings that the node makes anew for each call.
  void look_at(const Node& node) {
    namespace generated = torch::autograd::generated;
    const auto& type = typeid(node);
    if (const auto rewrite = rewrite_by(node)) {
      rewritten_.push_back(*rewrite);
    } else if (
        type == typeid(generated::SelectBackward0) ||
        type == typeid(generated::SliceBackward0) ||
        type == typeid(generated::DiagonalBackward0)) {
      if (node.num_outputs() == 1 && node.next_edge(0).function != nullptr) {
        slices_.push_back(&node);
      }
    } else if (type == typeid(generated::AsStridedBackward0)) {
      if (node.num_outputs() == 1) {
        restored_.insert(node.next_edge(0).function.get());
      }
    } else if (kPythonNode == type.name()) {
      const std::string name = node.name();
      if (name.rfind("CompiledFunction", 0) == 0) {
        compiled_.push_back(&node);
      }
    }
  }

  static const Node* next_of(const Node& node) {
    return node.num_outputs() == 0 ? nullptr : node.next_edge(0).function.get();
  }

  static bool is_small_slice(const Rewrite& rewrite) {
    return rewrite.node->num_inputs() != 0 &&
        rewrite.node->input_metadata(0).device().is_cpu() &&
        are_few(rewrite.view->numel()) && rewrite.view->is_contiguous();
  }

  std::vector<RewrittenHistories> histories() const {
    std::map<std::tuple<Place, ModuleNumber, int64_t>, RewrittenHistories> found;
    std::unordered_set<const Node*> chained;
    for (const Rewrite& rewrite : rewritten_) {
      chained.insert(next_of(*rewrite.node));
    }
    for (const Rewrite& rewrite : rewritten_) {
      const Node* node = rewrite.node;
      const Call call = call_of(*node);
      const size_t item = node->num_inputs() == 0
          ? 0
          : c10::elementSize(
                c10::typeMetaToScalarType(node->input_metadata(0).dtype()));
      const int64_t base = bytes_of(*rewrite.base, item);
      const int64_t view = bytes_of(*rewrite.view, item);
      auto& entry = found[{call.place, call.module, base}];
      const bool restored = restored_.count(node) != 0;
      entry.call = call;
      entry.base_bytes = base;
      entry.count += 1;
      entry.view_bytes += view;
      entry.restored += restored ? 1 : 0;
      entry.restored_bytes += restored ? view : 0;
      entry.chained += chained.count(node) != 0 ? 1 : 0;
      entry.first_writes += next_of(*node) == nullptr ? 1 : 0;
      entry.small += is_small_slice(rewrite) ? 1 : 0;
      entry.sequence_number = node->sequence_nr();
      entry.thread = node->thread_id();
      entry.wrapped = rewrite.fn != nullptr ? rewrite.fn->name() : "";
    }
    return values(found);
  }

  std::vector<SliceReads> reads() const {
    std::map<std::tuple<const Node*, uint32_t, Place, ModuleNumber>, SliceReads>
        found;
    for (const Node* node : slices_) {
      const auto& edge = node->next_edge(0);
      const Call call = call_of(*node);
      auto& entry =
          found[{edge.function.get(), edge.input_nr, call.place, call.module}];
      if (++entry.count > 1 || node->num_inputs() == 0 ||
          edge.function->num_inputs() <= edge.input_nr) {
        continue;
      }
      const auto& slice = node->input_metadata(0);
      const auto& base = edge.function->input_metadata(edge.input_nr);
      const auto dtype = c10::typeMetaToScalarType(base.dtype());
      entry.call = call;
      entry.node = node->name();
      entry.base_shape = shape_of(base);
      entry.slice_shape = shape_of(slice);
      entry.dtype = dtype_name(dtype);
      entry.base_bytes = volume(entry.base_shape) *
          static_cast<int64_t>(c10::elementSize(dtype));
      entry.read_from = edge.function->name();
    }
    return values(found);
  }

  std::vector<CompiledCalls> compiled() const {
    std::map<Where, CompiledCalls> found;
    for (const Node* node : compiled_) {
      const Call call = call_of(*node);
      auto& entry = found[{call.place, call.module}];
      entry.call = call;
      entry.node = node->name();
      entry.count += 1;
    }
    return values(found);
  }

  static std::string dtype_name(c10::ScalarType type) {
    // A pair of strings or of string views, by version.
    return "torch." + std::string(c10::getDtypeNames(type).first);
  }

  template <typename Key, typename Value>
  static std::vector<Value> values(const std::map<Key, Value>& found) {
    std::vector<Value> all;
    for (const auto& [key, value] : found) {
      all.push_back(value);
    }
    return all;
  }

  std::unordered_set<const Node*> seen_;
  std::vector<Node*> stack_;
  std::vector<Rewrite> rewritten_;
  std::vector<const Node*> slices_;
  std::vector<const Node*> compiled_;
  std::unordered_set<const Node*> restored_;
};

} // namespace

Census take_census(const std::vector<at::Tensor>& roots) {
  return CensusTaker().take(roots);
}

} // namespace noalias
