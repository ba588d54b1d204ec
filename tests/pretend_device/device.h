// The one device there is.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/Exception.h>

namespace pretend {

constexpr auto kType = c10::DeviceType::PrivateUse1;

inline c10::Device the_device() {
  return {kType, 0};
}

inline void check_exists(c10::Device device) {
  TORCH_CHECK(device.index() <= 0, "there is one device, and it is not ", device);
}

} // namespace pretend
