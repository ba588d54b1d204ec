#include "copy_log.h"

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <memory>
#include <mutex>
#include <string_view>

namespace noalias {

namespace {

// Beyond it bytes are not known, and counted as none.
constexpr size_t kMostCopies = size_t{1} << 20;

struct CopyLog {
  std::mutex lock;
  std::vector<std::pair<uint64_t, int64_t>> copies;
  at::CallbackHandle callback = at::INVALID_CALLBACK_HANDLE;
};

CopyLog& copy_log() {
  static auto& log = *std::make_unique<CopyLog>().release();
  return log;
}

int64_t bytes_written(const at::RecordFunction& call) {
  const auto inputs = call.inputs();
  if (inputs.empty() || !inputs[0].isTensor()) {
    return 0;
  }
  const at::Tensor& written = inputs[0].toTensor();
  if (!written.defined() ||
      written.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) {
    return 0;
  }
  return written.numel() * static_cast<int64_t>(written.element_size());
}

std::unique_ptr<at::ObserverContext> note_copy(const at::RecordFunction& call) {
  if (std::string_view(call.name()) == "aten::copy_") {
    CopyLog& log = copy_log();
    const std::lock_guard<std::mutex> guard(log.lock);
    if (log.copies.size() < kMostCopies) {
      log.copies.emplace_back(
          at::RecordFunction::currentThreadId(), bytes_written(call));
    }
  }
  return nullptr;
}

} // namespace

void start_copy_log() {
  CopyLog& log = copy_log();
  if (log.callback == at::INVALID_CALLBACK_HANDLE) {
    log.callback = at::addGlobalCallback(
        at::RecordFunctionCallback(&note_copy)
            .needsInputs(true)
            .scopes({at::RecordScope::FUNCTION}));
  }
}

std::vector<std::pair<uint64_t, int64_t>> stop_copy_log() {
  CopyLog& log = copy_log();
  if (log.callback != at::INVALID_CALLBACK_HANDLE) {
    at::removeCallback(log.callback);
    log.callback = at::INVALID_CALLBACK_HANDLE;
  }
  const std::lock_guard<std::mutex> guard(log.lock);
  return std::exchange(log.copies, {});
}

} // namespace noalias
