// The interpreter lock, for code that may or may not hold it.
#pragma once

#include <torch/csrc/python_headers.h>

namespace noalias {

// Holds the interpreter lock while it lives. `state()` is nullptr on a thread that
// Python does not know: it runs no Python code, and does not get the lock.
class WithInterpreter {
 public:
  WithInterpreter() {
    if (PyGILState_Check() != 0) {
      state_ = PyThreadState_Get();
      return;
    }
    state_ = PyGILState_GetThisThreadState();
    if (state_ != nullptr) {
      PyEval_RestoreThread(state_);
      taken_ = true;
    }
  }
  ~WithInterpreter() {
    if (taken_) {
      PyEval_SaveThread();
    }
  }
  WithInterpreter(const WithInterpreter&) = delete;
  WithInterpreter& operator=(const WithInterpreter&) = delete;

  PyThreadState* state() const {
    return state_;
  }

 private:
  PyThreadState* state_ = nullptr;
  bool taken_ = false;
};

} // namespace noalias
