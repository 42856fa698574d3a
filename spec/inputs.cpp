#include "spec/inputs.h"

namespace attest {
namespace {

// Calls act(number, its scale) for all numbers.
template <class Act>
Values each_with_scale(Values values, const Values& scales, const Act& act) {
  for (std::size_t n = 0; n < values.data.size(); ++n) {
    const auto [b, h, s, d] = coordinates(values.shape, static_cast<Index>(n));
    const Index scale = broadcast_index(scales.shape, b, h, s, d);
    act(values.data[n], scales.data[static_cast<std::size_t>(scale)]);
  }
  return values;
}

}  // namespace

Values scaled(const Values& stored, const Values& scales) {
  return each_with_scale(stored, scales, [](double& number, double scale) { number *= scale; });
}

Values unscaled(const Values& meant, const Values& scales) {
  return each_with_scale(meant, scales, [](double& number, double scale) { number /= scale; });
}

}  // namespace attest
