// Streams: numbers, and what the race detector knows of them.
#pragma once

#include "device.h"
#include "races.h"

#include <c10/core/Stream.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <memory>
#include <utility>

namespace pretend {

using c10::DeviceIndex;

// Of this thread, as with real devices: the engine's threads follow the graph.
inline thread_local c10::StreamId current_stream_id = 0;

inline std::atomic<size_t> waits{0}; // that PyTorch asked for

inline c10::Stream stream_of_id(c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, the_device(), id);
}

inline c10::StreamId exchange_stream_id(c10::StreamId id) {
  return std::exchange(current_stream_id, id);
}

class PretendGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override {
    return kType;
  }

  // There is one device, so it is always the current one.
  c10::Device exchangeDevice(c10::Device device) const override {
    setDevice(device);
    return the_device();
  }
  c10::Device getDevice() const override {
    return the_device();
  }
  void setDevice(c10::Device device) const override {
    check_exists(device);
  }
  void uncheckedSetDevice(c10::Device /*device*/) const noexcept override {}
  DeviceIndex deviceCount() const noexcept override {
    return 1;
  }

  c10::Stream getStream(c10::Device /*device*/) const override {
    return stream_of_id(current_stream_id);
  }
  c10::Stream getDefaultStream(c10::Device /*device*/) const override {
    return stream_of_id(0);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return stream_of_id(exchange_stream_id(stream.id()));
  }
  bool queryStream(const c10::Stream& /*stream*/) const override {
    return true;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    races().host_waits(races().record(stream.id()));
  }

  // PyTorch keeps the event, which is null until then, and gives it back at the end.
  void record(
      void** event,
      const c10::Stream& stream,
      const DeviceIndex /*index*/,
      const c10::EventFlag /*flag*/) const override {
    const std::unique_ptr<Clock> before(static_cast<Clock*>(*event));
    *event = std::make_unique<Clock>(races().record(stream.id())).release();
  }
  void destroyEvent(void* event, const DeviceIndex /*index*/)
      const noexcept override {
    const std::unique_ptr<Clock> owned(static_cast<Clock*>(event));
  }
  void block(void* event, const c10::Stream& stream) const override {
    waits.fetch_add(1, std::memory_order_relaxed);
    if (event != nullptr) {
      races().wait(stream.id(), *static_cast<const Clock*>(event));
    }
  }
  bool queryEvent(void* /*event*/) const override {
    return true;
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) {
      races().host_waits(*static_cast<const Clock*>(event));
    }
  }
  void synchronizeDevice(const DeviceIndex /*index*/) const override {
    races().host_waits_for_all();
  }
};

} // namespace pretend
