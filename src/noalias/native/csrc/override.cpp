#include "override.h"

#include <array>
#include <mutex>
#include <string>
#include <vector>

namespace noalias {

namespace {

// See Note [Standing in front of PyTorch's kernels]. Guarded by its own lock;
// lives until the process ends.
struct Archive {
  std::mutex lock;
  std::vector<c10::BoxedKernel> kernels;
};

Archive& archive() {
  static Archive instance;
  return instance;
}

} // namespace

c10::ArrayRef<c10::DispatchKey> autograd_backend_keys() {
  static constexpr std::array keys = {
      c10::DispatchKey::AutogradCPU,
      c10::DispatchKey::AutogradCUDA,
      c10::DispatchKey::AutogradMPS,
      c10::DispatchKey::AutogradXPU,
      c10::DispatchKey::AutogradPrivateUse1,
      c10::DispatchKey::AutogradMeta,
  };
  return keys;
}

bool Overrides::possible(
    const c10::OperatorHandle& op,
    c10::DispatchKey key) {
  return op.hasComputedKernelForDispatchKey(key) &&
      (op.hasKernelForDispatchKey(c10::DispatchKey::Autograd) ||
       op.hasKernelForDispatchKey(key));
}

void Overrides::install(
    const c10::OperatorHandle& op,
    c10::DispatchKey key,
    const c10::BoxedKernel& kernel) {
  {
    std::lock_guard<std::mutex> guard(archive().lock);
    archive().kernels.push_back(kernel);
  }
  library(op, key).impl(
      c10::toString(op.operator_name()).c_str(),
      torch::CppFunction::makeFromBoxedKernel(kernel));
}

torch::Library& Overrides::library(
    const c10::OperatorHandle& op,
    c10::DispatchKey key) {
  const auto found = libraries_.find(key);
  return found != libraries_.end()
      ? found->second
      : libraries_
            .try_emplace(
                key,
                torch::Library::IMPL,
                std::string(op.schema().getNamespace().value()),
                key,
                __FILE__,
                __LINE__)
            .first->second;
}

} // namespace noalias
