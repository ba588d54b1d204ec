// A device for tests: "pretend:0", an accelerator to PyTorch, made of host memory.
//
// It has an allocator that counts, views, copies, and streams that carry a number
// and nothing else. All work is done when a call returns, so a missing wait shows in
// what the engine asks for (see `waits`), never in values. Operators run on the CPU,
// over copies of their operands, so values are the CPU's.
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/TensorOptions.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <pybind11/pybind11.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace {

using at::Tensor;
using c10::DeviceIndex;

constexpr auto kType = c10::DeviceType::PrivateUse1;

c10::Device the_device() {
  return {kType, 0};
}

void check_exists(c10::Device device) {
  TORCH_CHECK(device.index() <= 0, "there is one device, and it is not ", device);
}

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
Meter& meter() {
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

PretendAllocator& allocator() {
  static auto& instance = *std::make_unique<PretendAllocator>().release();
  return instance;
}

// Of this thread, as with real devices: the engine's threads follow the graph.
thread_local c10::StreamId current_stream_id = 0;

std::atomic<size_t> waits{0};

c10::Stream stream_of_id(c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, the_device(), id);
}

c10::StreamId exchange_stream_id(c10::StreamId id) {
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
  void synchronizeStream(const c10::Stream& /*stream*/) const override {}

  // An event only has to be something: null means one that was never recorded.
  void record(
      void** event,
      const c10::Stream& /*stream*/,
      const DeviceIndex /*index*/,
      const c10::EventFlag /*flag*/) const override {
    static char recorded;
    *event = &recorded;
  }
  void block(void* /*event*/, const c10::Stream& /*stream*/) const override {
    waits.fetch_add(1, std::memory_order_relaxed);
  }
  bool queryEvent(void* /*event*/) const override {
    return true;
  }
  void synchronizeEvent(void* /*event*/) const override {}
  void synchronizeDevice(const DeviceIndex /*index*/) const override {}
};

// What makes PyTorch ask this device, and no other, for the streams of a graph.
class PretendHooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return true;
  }
  bool hasPrimaryContext(DeviceIndex /*index*/) const override {
    return true;
  }
  DeviceIndex deviceCount() const override {
    return 1;
  }
  DeviceIndex getCurrentDevice() const override {
    return 0;
  }
  void setCurrentDevice(DeviceIndex /*index*/) const override {}
  DeviceIndex exchangeDevice(DeviceIndex /*index*/) const override {
    return 0;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex /*index*/) const override {
    return 0;
  }
  at::Device getDeviceFromPtr(void* /*data*/) const override {
    return the_device();
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes)
      const override {
    at::native::resize_bytes_cpu(storage.unsafeGetStorageImpl(), bytes);
  }
};

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

Tensor empty(
    c10::IntArrayRef sizes,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> /*layout*/,
    std::optional<at::Device> device,
    std::optional<bool> /*pin_memory*/,
    std::optional<at::MemoryFormat> format) {
  check_exists(device.value_or(the_device()));
  return at::detail::empty_generic(
      sizes, &allocator(), kKeys, c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(
    c10::IntArrayRef sizes,
    c10::IntArrayRef strides,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> /*layout*/,
    std::optional<at::Device> device,
    std::optional<bool> /*pin_memory*/) {
  check_exists(device.value_or(the_device()));
  return at::detail::empty_strided_generic(
      sizes, strides, &allocator(), kKeys, c10::dtype_or_default(dtype));
}

// The same memory, to the CPU.
Tensor on_host(const Tensor& tensor) {
  if (tensor.is_cpu()) {
    return tensor;
  }
  Tensor host = at::from_blob(
      tensor.mutable_data_ptr(),
      tensor.sizes(),
      tensor.strides(),
      at::TensorOptions(at::kCPU).dtype(tensor.dtype()));
  host.unsafeGetTensorImpl()->_set_conj(tensor.is_conj());
  host.unsafeGetTensorImpl()->_set_neg(tensor.is_neg());
  return host;
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool /*non_blocking*/) {
  on_host(to).copy_(on_host(from));
  return to;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, /*non_blocking=*/false);
}

Tensor& set_storage(Tensor& self, c10::Storage source) {
  return at::native::set_(self, std::move(source));
}

// No view may come this way: it would be a copy.
void on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

} // namespace

C10_REGISTER_GUARD_IMPL(PrivateUse1, PretendGuard)

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", TORCH_FN(empty));
  library.impl("empty_strided", TORCH_FN(empty_strided));
  library.impl("_copy_from", TORCH_FN(copy_from));
  library.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  library.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  library.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  library.impl("view", TORCH_FN(at::native::view));
  library.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  library.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  library.impl("unfold", TORCH_FN(at::native::unfold));
  library.impl(
      "resize_",
      TORCH_FN(static_cast<const Tensor& (*)(
                   const Tensor&,
                   c10::IntArrayRef,
                   std::optional<at::MemoryFormat>)>(at::native::resize_)));
  library.impl("set_.source_Storage", TORCH_FN(set_storage));
  library.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  library.impl(
      "set_.source_Storage_storage_offset",
      TORCH_FN(at::native::set_storage_cpu_));
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&on_cpu>());
}

// Lazy conjugates and negatives are resolved by copying, so the copy itself must
// take them as they are.
TORCH_LIBRARY_IMPL(aten, Conjugate, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  c10::register_privateuse1_backend("pretend");
  c10::SetAllocator(kType, &allocator());
  at::RegisterPrivateUse1HooksInterface(
      std::make_unique<PretendHooks>().release()); // PyTorch keeps it for good

  module.def("set_stream", [](c10::StreamId id) { current_stream_id = id; });
  module.def("current_stream", [] { return current_stream_id; });
  module.def("waits", [] { return waits.load(std::memory_order_relaxed); });
  module.def("allocations", [] { return meter().read().allocations; });
  module.def("allocated", [] { return meter().read().bytes; });
  module.def("peak", [] { return meter().read().peak; });
  module.def("reset_peak", [] { meter().reset_peak(); });

  // What PyTorch asks of `torch.pretend`. It has no random numbers to seed.
  module.def("is_available", [] { return true; });
  module.def("_is_in_bad_fork", [] { return false; });
  module.def("manual_seed_all", [](int64_t /*seed*/) {});
}
