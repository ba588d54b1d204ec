// What differs between the PyTorch versions noalias supports (2.9 to 2.15), in one place.
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/version.h>

#include <memory>
#include <type_traits>
#include <utility>

#define NOALIAS_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) ||          \
   (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

namespace noalias {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

// Nodes are owned by std::shared_ptr in older versions and by
// c10::intrusive_ptr in newer ones; the edge knows which.
using NodePtr = decltype(Edge::function);

inline constexpr bool kIntrusiveNodes =
    std::is_same_v<NodePtr, c10::intrusive_ptr<Node>>;

// The deleter is found by argument-dependent lookup when the template is
// instantiated, since versions with intrusive nodes no longer declare it. It
// flattens the destruction of long graphs, where a plain delete would recurse
// once for each node.
template <typename T>
struct FlatNodeDeleter {
  void operator()(T* node) const {
    deleteNode(node);
  }
};

template <typename T, typename... Args>
auto make_node(Args&&... args) {
  if constexpr (kIntrusiveNodes) {
    return c10::make_intrusive<T>(std::forward<Args>(args)...);
  } else {
    return std::shared_ptr<T>(
        std::make_unique<T>(std::forward<Args>(args)...).release(),
        FlatNodeDeleter<T>{});
  }
}

template <typename T>
using NodeOf = decltype(make_node<T>());

} // namespace noalias
