#include "linear.h"
#include "linear_products.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <utility>
#include <vector>

namespace noalias {

namespace {

template <c10::DeviceType device>
Tensor linear_autocast(
    const Tensor& input,
    const Tensor& weight,
    const OptionalTensor& bias) {
  c10::impl::ExcludeDispatchKeyGuard no_autocast(
      at::autocast::get_autocast_dispatch_key_from_device_type(device));
  const auto dtype = at::autocast::get_autocast_dtype(device);
  const auto cast = [&](const Tensor& tensor) {
    return at::autocast::cached_cast(dtype, tensor, device);
  };
  return call_linear(
      cast(input),
      cast(weight),
      bias.has_value() ? OptionalTensor(cast(*bias)) : std::nullopt);
}

template <typename Linear, typename LinearBackward>
void add_kernels(
    std::vector<torch::Library>& libraries,
    c10::DispatchKey key,
    Linear linear,
    LinearBackward linear_backward) {
  auto& library = libraries.emplace_back(
      torch::Library::IMPL, "noalias", key, __FILE__, __LINE__);
  library.impl("linear", std::move(linear));
  library.impl("linear_backward", std::move(linear_backward));
}

template <c10::DeviceType device>
void add_autocast(std::vector<torch::Library>& libraries) {
  libraries
      .emplace_back(
          torch::Library::IMPL,
          "noalias",
          at::autocast::get_autocast_dispatch_key_from_device_type(device),
          __FILE__,
          __LINE__)
      .impl("linear", TORCH_FN(linear_autocast<device>));
}

// Note [The stand-in outlives its registration]
//
// Until the core is loaded, kernels in Python stand in for it. One of them may
// be the very call that loads the core, and Python deregisters them right
// after: holding on to what the dispatcher had resolved keeps the functor alive
// under the call that is running.
std::vector<c10::SafeKernelFunction> stand_ins() {
  std::vector<c10::SafeKernelFunction> kernels;
  for (const char* name : {"noalias::linear", "noalias::linear_backward"}) {
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
    if (op.hasKernelForDispatchKey(
            c10::DispatchKey::CompositeImplicitAutograd)) {
      kernels.push_back(
          op.getComputedKernelForDispatchKey(c10::DispatchKey::CPU));
    }
  }
  return kernels;
}

} // namespace

void register_linear() {
  static const auto retired = stand_ins();
  // Owned here for the life of the process; built once, under the lock of the
  // static's initialization.
  static const auto libraries = [] {
    std::vector<torch::Library> made;
    add_kernels(
        made,
        c10::DispatchKey::CompositeExplicitAutograd,
        TORCH_FN(linear_kernel),
        TORCH_FN(linear_backward_kernel));
    add_kernels(
        made,
        c10::DispatchKey::Autograd,
        TORCH_FN(linear_autograd),
        TORCH_FN(linear_backward_autograd));
    // The vmap of is_grads_batched and gradcheck, older than functorch's, knows the
    // operators of the products; of ours it would call one sample after another.
    add_kernels(
        made,
        c10::DispatchKey::Batched,
        TORCH_FN(linear_product),
        TORCH_FN(linear_backward_product));
    // The products take a lazily conjugated operand as it is.
    for (const auto key :
         {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative}) {
      add_kernels(
          made,
          key,
          torch::CppFunction::makeFallthrough(),
          torch::CppFunction::makeFallthrough());
    }
    // The dtypes F.linear gets under autocast: lower precision everywhere.
    add_autocast<c10::kCPU>(made);
    add_autocast<c10::kCUDA>(made);
    add_autocast<c10::kMPS>(made);
    add_autocast<c10::kXPU>(made);
    add_autocast<c10::kPrivateUse1>(made);
    return made;
  }();
}

} // namespace noalias
