#include "zero_signs.h"

#include "small_slices.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

namespace noalias {

namespace {

// A sum that holds no negative zero outside of `dirty`, regions of a tensor with
// these strides.
struct Known {
  SumKey key;
  c10::DimVector strides;
  std::vector<Region> dirty;
  int64_t last = 0; // the offset of what was added last
};

// Beyond this many regions one pass over everything is no worse.
constexpr size_t kMostRegions = 8;

class Table {
 public:
  Known* find(const SumKey& key) {
    Known& known = entry(key);
    return known.key == key ? &known : nullptr;
  }

  // Takes the place of whatever shares it.
  Known& put(const SumKey& key, c10::IntArrayRef strides) {
    Known& known = entry(key);
    known.key = key;
    known.strides = strides;
    known.dirty.clear();
    known.last = 0;
    return known;
  }

 private:
  Known& entry(const SumKey& key) {
    constexpr uint64_t golden = 0x9e3779b97f4a7c15;
    const uint64_t address = reinterpret_cast<uintptr_t>(key.node);
    return entries_[((address + key.slot) * golden) >> 56];
  }

  std::array<Known, 256> entries_;
};

Table& table() {
  static thread_local const std::unique_ptr<Table> instance =
      std::make_unique<Table>();
  return *instance;
}

// Clears what is dirty outside of `region`. False if that is not possible without
// clearing a piece of the region, too, in which -0.0 and -0.0 may have to meet.
bool clear_around(Known& known, const at::Tensor& sum, const Region& region) {
  auto& dirty = known.dirty;
  if (dirty.empty()) {
    return true;
  }
  const auto box = box_of(region, sum);
  for (auto it = dirty.begin(); it != dirty.end();) {
    const auto other = box_of(*it, sum);
    if (*it == region || (box && other && box->contains(*other))) {
      ++it;
    } else if (box && other && box->is_apart_from(*other)) {
      it->of(sum).add_(0);
      it = dirty.erase(it);
    } else {
      return false;
    }
  }
  return true;
}

} // namespace

void add_zero_filled(
    const SumKey& key,
    const at::Tensor& sum,
    const Region& region,
    const at::Tensor& part) {
  Known* known = table().find(key);
  if (known != nullptr && sum.strides().equals(known->strides) &&
      clear_around(*known, sum, region)) {
    const int64_t step = region.offset - known->last;
    known->last = region.offset;
    add_to_region(sum, region, part, region.offset + step);
    return;
  }
  const at::Tensor slice = region.of(sum);
  const at::Tensor inside = slice.add(part);
  sum.add_(0);
  slice.copy_(inside);
  table().put(key, sum.strides()).dirty.push_back(region);
}

void remember_zero_filled(
    const SumKey& key,
    const at::Tensor& contribution,
    Region&& part) {
  // What is known of a sum stays true whatever is added to it.
  if (table().find(key) == nullptr) {
    table().put(key, contribution.strides()).dirty.push_back(std::move(part));
  }
}

void hand_on(
    const SumKey& from,
    const SumKey& to,
    const at::Tensor& gradient,
    const std::optional<Region>& written) {
  const Known* before = table().find(from);
  if (before == nullptr || !gradient.strides().equals(before->strides) ||
      table().find(to) != nullptr) {
    return;
  }
  std::vector<Region> dirty = before->dirty;
  if (written.has_value() &&
      std::find(dirty.begin(), dirty.end(), *written) == dirty.end()) {
    dirty.push_back(*written);
  }
  if (dirty.size() <= kMostRegions) {
    table().put(to, gradient.strides()).dirty = std::move(dirty);
  }
}

} // namespace noalias
