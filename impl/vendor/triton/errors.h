// What the tutorial's wrapper and its compiler refuse.
#pragma once

#include <stdexcept>
#include <string>

#include "impl/vendor/device/error.h"

namespace attest::vendor::triton {

// An assert of the wrapper.
struct AssertionError : std::logic_error {
  using std::logic_error::logic_error;
};

// What the compiler refuses.
struct CompilationError : device::DeviceError {
  explicit CompilationError(const std::string& what) : DeviceError("compiler", what) {}
};

}  // namespace attest::vendor::triton
