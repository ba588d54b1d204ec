// What the cures have done, for noalias.status(). Relaxed: nobody orders by them.
#pragma once

#include "proof.h"

#include <array>
#include <atomic>
#include <cstdint>

namespace noalias {

struct Counters {
  std::atomic<uint64_t> seen{0}; // in-place calls on a differentiable view
  std::atomic<uint64_t> cured{0}; // of these, view relationships dropped
  std::array<std::atomic<uint64_t>, static_cast<size_t>(Verdict::kCount)> kept{};
  std::atomic<uint64_t> slices_updated{0}; // gradients updated in place
  std::atomic<uint64_t> parts_added{0}; // slices added to a waiting sum
  std::atomic<uint64_t> gradients_reused{0}; // results written over a gradient
  std::atomic<uint64_t> gradient_bytes_reused{0}; // and not allocated for it
};

// Owned by the core, for the life of the process.
inline Counters& counters() {
  static Counters instance;
  return instance;
}

inline void count(std::atomic<uint64_t>& counter, uint64_t amount = 1) {
  counter.fetch_add(amount, std::memory_order_relaxed);
}

} // namespace noalias
