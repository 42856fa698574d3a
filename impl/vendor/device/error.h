// What a device refuses: a rule of its own that a program broke, told as its maker's tools would.
// A mock device never computes on after one, so that no broken rule becomes a wrong number.
#pragma once

#include <stdexcept>
#include <string>

namespace attest::vendor::device {

struct DeviceError : std::runtime_error {
  DeviceError(const std::string& part, const std::string& what)
      : std::runtime_error(part + ": " + what) {}
};

}  // namespace attest::vendor::device
