// The device's memory: the host's, counted.
#pragma once

#include "device.h"
#include "races.h"

#include <c10/core/Allocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>

namespace pretend {

struct Usage {
  size_t allocations = 0; // ever made
  size_t bytes = 0;
  size_t peak = 0;
};

class Meter {
 public:
  void add(size_t bytes) {
    const std::lock_guard<std::mutex> lock(lock_);
    ++usage_.allocations;
    usage_.bytes += bytes;
    usage_.peak = std::max(usage_.peak, usage_.bytes);
  }

  void remove(size_t bytes) {
    const std::lock_guard<std::mutex> lock(lock_);
    usage_.bytes -= bytes;
  }

  void reset_peak() {
    const std::lock_guard<std::mutex> lock(lock_);
    usage_.peak = usage_.bytes;
  }

  Usage read() {
    const std::lock_guard<std::mutex> lock(lock_);
    return usage_;
  }

 private:
  std::mutex lock_;
  Usage usage_;
};

// Never destroyed: tensors may outlive static objects at exit.
inline Meter& meter() {
  static auto& instance = *std::make_unique<Meter>().release();
  return instance;
}

class Block {
 public:
  explicit Block(size_t bytes) : data_(c10::alloc_cpu(bytes)), bytes_(bytes) {
    meter().add(bytes_);
    if (data_ != nullptr) {
      // NaN in every floating dtype, so that memory read before it is written shows.
      std::memset(data_, 0xFF, bytes_);
    }
  }
  ~Block() {
    races().forget_memory(data_, bytes_);
    c10::free_cpu(data_);
    meter().remove(bytes_);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  void* data() const {
    return data_;
  }

 private:
  void* data_;
  size_t bytes_;
};

class PretendAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    auto block = std::make_unique<Block>(bytes);
    void* const data = block->data();
    const auto free = [](void* context) {
      const std::unique_ptr<Block> owned(static_cast<Block*>(context));
    };
    return {data, block.release(), free, the_device()};
  }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

inline PretendAllocator& allocator() {
  static auto& instance = *std::make_unique<PretendAllocator>().release();
  return instance;
}

} // namespace pretend
