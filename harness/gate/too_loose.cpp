#include "harness/gate/too_loose.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "spec/arithmetic.h"
namespace attest {

std::vector<std::string> too_loose(const Description& testee, bool takes_declared) {
  std::vector<std::string> all;
  for (const DType dtype : testee.dtypes) {
    const auto caps = testee.beyond_caps.find(dtype);
    if (caps != testee.beyond_caps.end()) {
      all.push_back(fmt::format("{}: {}", name(dtype), caps->second));
    } else if (const auto beyond = beyond_default(testee.arithmetic_in(dtype));
               !takes_declared && !beyond.empty()) {
      all.push_back(fmt::format("{}: {}", name(dtype), fmt::join(beyond, ", ")));
    }
  }
  return all;
}

}  // namespace attest
