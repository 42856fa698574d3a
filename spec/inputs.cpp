#include "spec/inputs.h"

#include <cmath>

namespace attest {

Values scaled(const Values& stored, const Values& scales) {
  Values meant = stored;
  for_each_with_scale(meant, scales, [](double& number, double scale) { number *= scale; });
  return meant;
}

Values unscaled(const Values& meant, const Values& scales) {
  Values stored = meant;
  for_each_with_scale(stored, scales, [](double& number, double scale) {
    number = std::isnan(scale) ? 1 : number / scale;
  });
  return stored;
}

}  // namespace attest
