#include "handed_on.h"

#include <algorithm>
#include <array>

namespace noalias {

namespace {

// The copies that this thread has handed on, by where to. Forgetting one costs a copy.
class HandedOn {
 public:
  void add(const SumKey& to, const at::Tensor& gradient) {
    entries_[next_++ % entries_.size()] = {to, gradient.unsafeGetTensorImpl()};
  }

  bool has(const SumKey& to, const at::Tensor& gradient) const {
    return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
      return entry.to == to && entry.gradient == gradient.unsafeGetTensorImpl();
    });
  }

 private:
  struct Entry {
    SumKey to;
    const c10::TensorImpl* gradient = nullptr; // compared, never followed
  };
  std::array<Entry, 16> entries_{};
  size_t next_ = 0;
};

HandedOn& handed_on() {
  thread_local HandedOn instance;
  return instance;
}

} // namespace

void note_handed_on(const SumKey& to, const at::Tensor& gradient) {
  handed_on().add(to, gradient);
}

bool was_handed_on(const SumKey& to, const at::Tensor& gradient) {
  return handed_on().has(to, gradient);
}

} // namespace noalias
