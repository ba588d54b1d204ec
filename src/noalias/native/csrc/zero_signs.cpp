#include "zero_signs.h"

#include <ATen/ops/as_strided.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <vector>

namespace noalias {

namespace {

// A sum that holds no negative zero outside of `dirty`.
struct Known {
  SumKey key;
  std::vector<Region> dirty;
};

// Beyond this many regions one pass over everything is no worse.
constexpr size_t kMostRegions = 8;

class Table {
 public:
  Known* find(const SumKey& key) {
    Known& known = entry(key);
    return known.key == key ? &known : nullptr;
  }

  // Replaces whatever lies at the same place.
  Known& put(const SumKey& key) {
    Known& known = entry(key);
    known.key = key;
    known.dirty.clear();
    return known;
  }

  void forget(const SumKey& key) {
    Known& known = entry(key);
    if (known.key == key) {
      known.key = SumKey{};
    }
  }

 private:
  Known& entry(const SumKey& key) {
    constexpr uint64_t golden = 0x9e3779b97f4a7c15;
    const auto address = reinterpret_cast<uintptr_t>(key.node);
    return entries_[((address + key.slot) * golden) >> 56];
  }

  std::array<Known, 256> entries_;
};

Table& table() {
  static thread_local const std::unique_ptr<Table> instance =
      std::make_unique<Table>();
  return *instance;
}

} // namespace

at::Tensor Region::of(const at::Tensor& whole) const {
  return whole.as_strided(sizes, strides, whole.storage_offset() + offset);
}

void clear_negative_zeros(const SumKey& key, const at::Tensor& sum) {
  Known* known = table().find(key);
  if (known == nullptr) {
    sum.add_(0);
    table().put(key);
    return;
  }
  for (const Region& region : known->dirty) {
    region.of(sum).add_(0);
  }
  known->dirty.clear();
}

void remember_cleared(const SumKey& key) {
  table().put(key);
}

void hand_on(
    const SumKey& from,
    const SumKey& to,
    const std::optional<Region>& written) {
  const Known* before = table().find(from);
  if (before == nullptr || table().find(to) != nullptr) {
    // What is known of the receiving sum stays true whatever is added to it.
    return;
  }
  std::vector<Region> dirty = before->dirty;
  if (written.has_value() &&
      std::find(dirty.begin(), dirty.end(), *written) == dirty.end()) {
    dirty.push_back(*written);
  }
  if (dirty.size() <= kMostRegions) {
    table().put(to).dirty = std::move(dirty);
  }
}

} // namespace noalias
