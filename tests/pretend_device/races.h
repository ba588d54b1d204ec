// Who touched which byte last, and whether the next one was told to wait for them.
//
// The device does all its work at once, so a missing wait changes no value. It would
// on a real one, where every stream runs ahead by itself: there, two accesses of one
// byte, at least one of them a write, have an order only if a chain of events leads
// from one to the other. Such chains are what the clocks here keep track of.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pretend {

using c10::StreamId;

// How far into the work of each stream; what is not there is 0. Time in a stream
// starts at 1, so nobody is past work that they have never waited for.
using Clock = std::map<StreamId, uint64_t>;

class Races {
 public:
  // Everything that the stream was given until now.
  Clock record(StreamId stream) {
    const std::lock_guard<std::mutex> lock(lock_);
    return recorded(stream);
  }

  void wait(StreamId waiting, const Clock& event) {
    const std::lock_guard<std::mutex> lock(lock_);
    advance(now(waiting), event);
  }

  void host_waits(const Clock& event) {
    const std::lock_guard<std::mutex> lock(lock_);
    advance(host_, event);
  }

  void host_waits_for_all() {
    const std::lock_guard<std::mutex> lock(lock_);
    for (const auto& [stream, clock] : streams_) {
      advance(host_, {{stream, clock.at(stream)}});
    }
    for (auto& [stream, clock] : streams_) {
      ++clock.at(stream);
    }
  }

  void read(const at::Tensor& tensor, StreamId stream, const std::string& by) {
    const std::lock_guard<std::mutex> lock(lock_);
    const Access access = access_of(stream, by);
    std::optional<Access> overtaken;
    each_byte(tensor, [&](uintptr_t address) {
      Byte& byte = bytes_[address];
      if (!overtaken.has_value() && overtakes(access, byte.write)) {
        overtaken = byte.write;
      }
      add_reader(byte, access);
    });
    if (overtaken.has_value()) {
      add_race(access, " reads ", *overtaken, " writes");
    }
  }

  void write(const at::Tensor& tensor, StreamId stream, const std::string& by) {
    const std::lock_guard<std::mutex> lock(lock_);
    const Access access = access_of(stream, by);
    std::optional<Access> writer;
    std::optional<Access> reader;
    each_byte(tensor, [&](uintptr_t address) {
      Byte& byte = bytes_[address];
      if (!writer.has_value() && overtakes(access, byte.write)) {
        writer = byte.write;
      }
      for (const Access& read : byte.reads) {
        if (!reader.has_value() && overtakes(access, read)) {
          reader = read;
        }
      }
      byte = {access, {}};
    });
    if (writer.has_value()) {
      add_race(access, " writes ", *writer, " writes");
    }
    if (reader.has_value()) {
      add_race(access, " writes ", *reader, " reads");
    }
  }

  // Whoever gets this memory next has nothing to do with who had it. A real
  // allocator keeps it for the stream that it was made on.
  void forget_memory(const void* data, size_t bytes) {
    const std::lock_guard<std::mutex> lock(lock_);
    const auto begin = reinterpret_cast<uintptr_t>(data);
    bytes_.erase(bytes_.lower_bound(begin), bytes_.lower_bound(begin + bytes));
  }

  void forget() {
    const std::lock_guard<std::mutex> lock(lock_);
    bytes_.clear();
    found_.clear();
  }

  std::vector<std::string> found() {
    const std::lock_guard<std::mutex> lock(lock_);
    return found_;
  }

 private:
  struct Access {
    StreamId stream;
    uint64_t time;
    std::shared_ptr<const std::string> by; // of all bytes of one access
  };
  // Who came before the last write is ordered by it, or was reported with it.
  struct Byte {
    std::optional<Access> write;
    std::vector<Access> reads; // after it, the last one of each stream
  };

  static void advance(Clock& clock, const Clock& event) {
    for (const auto& [stream, time] : event) {
      uint64_t& known = clock[stream];
      known = std::max(known, time);
    }
  }

  // What a stream is given now starts after all that the host has waited for.
  Clock& now(StreamId stream) {
    Clock& clock = streams_.try_emplace(stream, Clock{{stream, 1}}).first->second;
    advance(clock, host_);
    return clock;
  }

  Clock recorded(StreamId stream) {
    Clock& clock = now(stream);
    Clock event = clock;
    ++clock.at(stream);
    return event;
  }

  Access access_of(StreamId stream, const std::string& by) {
    return {
        stream, now(stream).at(stream), std::make_shared<const std::string>(by)};
  }

  bool overtakes(const Access& later, const std::optional<Access>& earlier) const {
    if (!earlier.has_value()) {
      return false;
    }
    const Clock& clock = streams_.at(later.stream);
    const auto known = clock.find(earlier->stream);
    return known == clock.end() || known->second < earlier->time;
  }

  static void add_reader(Byte& byte, const Access& access) {
    for (Access& read : byte.reads) {
      if (read.stream == access.stream) {
        read = access;
        return;
      }
    }
    byte.reads.push_back(access);
  }

  void add_race(
      const Access& later,
      const char* does,
      const Access& earlier,
      const char* did) {
    found_.push_back(
        *later.by + " on stream " + std::to_string(later.stream) + does +
        "without a wait what " + *earlier.by + " on stream " +
        std::to_string(earlier.stream) + did);
  }

  template <typename Visit>
  static void each_byte(const at::Tensor& tensor, Visit&& visit) {
    const auto itemsize = static_cast<int64_t>(tensor.itemsize());
    const auto begin = reinterpret_cast<uintptr_t>(tensor.storage().data()) +
        static_cast<uintptr_t>(tensor.storage_offset() * itemsize);
    for (int64_t number = 0; number < tensor.numel(); ++number) {
      int64_t offset = 0;
      int64_t rest = number;
      for (int64_t dim = tensor.dim() - 1; dim >= 0; --dim) {
        offset += rest % tensor.size(dim) * tensor.stride(dim);
        rest /= tensor.size(dim);
      }
      for (int64_t byte = 0; byte < itemsize; ++byte) {
        visit(begin + static_cast<uintptr_t>(offset * itemsize + byte));
      }
    }
  }

  std::mutex lock_; // of all that follows
  std::map<StreamId, Clock> streams_;
  // One for all threads: the host is believed to hand on what it knows.
  Clock host_;
  std::map<uintptr_t, Byte> bytes_;
  std::vector<std::string> found_;
};

// Never destroyed: memory may outlive static objects at exit.
inline Races& races() {
  static auto& instance = *std::make_unique<Races>().release();
  return instance;
}

} // namespace pretend
