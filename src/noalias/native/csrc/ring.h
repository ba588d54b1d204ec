// The last entries of a sequence, in memory that has a bound.
#pragma once

#include <cstddef>
#include <vector>

namespace noalias {

template <typename Entry>
class Ring {
 public:
  explicit Ring(size_t most) : most_(most) {}

  void push(const Entry& entry) {
    if (entries_.size() < most_) {
      entries_.push_back(entry);
    } else {
      entries_[start_] = entry;
      start_ = (start_ + 1) % most_;
    }
  }
  size_t size() const {
    return entries_.size();
  }
  // 0 is the oldest.
  const Entry& operator[](size_t index) const {
    return entries_[(start_ + index) % entries_.size()];
  }

 private:
  size_t most_;
  size_t start_ = 0;
  std::vector<Entry> entries_;
};

} // namespace noalias
