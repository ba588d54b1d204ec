// What the proof saw, for people: noalias.explain puts it into words.
#pragma once

#include "proof.h"

#include <cstdint>
#include <string>

namespace noalias {

struct ViewFacts {
  bool is_view = false;
  std::string verdict; // name_of(Verdict)
  int64_t base_owners = 0; // in C++, less the Python object's and the view's own
  int64_t storage_owners = 0; // likewise, less base and view
  std::string creation; // how stock PyTorch marked the view when it was made
  bool base_requires_grad = false;
};

ViewFacts facts_about(const Tensor& tensor);

enum class Relation : uint8_t { kNone, kBase, kSiblingView, kSharedStorage };

// What `other` is to the view `tensor`.
Relation relation_to(const Tensor& tensor, const Tensor& other);

} // namespace noalias
