// A device for tests: "pretend:0", an accelerator to PyTorch, made of host memory.
//
// It has an allocator that counts, views, copies, and streams. All work is done when a
// call returns, so a missing wait never shows in values; it shows as a race, because
// every operator notes what it reads and writes on which stream (see races.h).
// Operators run on the CPU, over copies of their operands, so values are the CPU's.
#include "device.h"
#include "functions.h"
#include "memory.h"
#include "notes.h"
#include "races.h"
#include "streams.h"

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
#include <c10/core/TensorOptions.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/library.h>

#include <atomic>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

namespace {

using namespace pretend;
using at::Tensor;

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
  Notes notes("aten::copy_");
  notes.read(from);
  notes.write(to);
  if (from.is_cpu() || to.is_cpu()) {
    notes.host_waits();
  }
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
  const auto& schema = op.schema();
  Notes notes(c10::toString(op.operator_name()));
  note_operands(notes, schema, *stack);
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
  note_results(notes, schema, *stack);
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

TORCH_LIBRARY(pretend, library) {
  library.def("exp_and_sum(Tensor x) -> (Tensor, Tensor)", [](const Tensor& x) {
    const auto results = pretend::ExpAndSum::apply(x);
    return std::make_tuple(results[0], results[1]);
  });
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
  module.def("wait", [](c10::StreamId waiting, c10::StreamId other) {
    races().wait(waiting, races().record(other));
  });
  module.def("races", [] { return races().found(); });
  module.def("forget_races", [] { races().forget(); });
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
