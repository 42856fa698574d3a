#include "harness/judge/noise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace attest {
namespace {

constexpr double kSecondOrder = 1 + 0x1p-6;  // products of two roundoffs
constexpr double kSmall = 0x1p-7;

}  // namespace

bool small_enough_for_noise(const Expected& lse) {
  return std::all_of(lse.bound.begin(), lse.bound.end(), [](double b) { return b <= kSmall; });
}

NoiseEvidence noise_of(const std::vector<double>& returned, DType dtype, const Expected& expected,
                       const Spread& spread, Rounding rounding, double groups) {
  NoiseEvidence noise;
  const double deviations = deviations_of(double(returned.size()), kNoiseChance);
  double squares = 0, sum = 0, outward = 0, drifts = 0;
  for (std::size_t e = 0; e < returned.size(); ++e) {
    const long double exact =
        expected.value[e] + (expected.rest.empty() ? 0.0L : (long double)(expected.rest[e]));
    const double near = round_to(dtype, static_cast<double>(exact));
    if (!std::isfinite(expected.bound[e]) || !std::isfinite(near)) continue;
    if (!std::isfinite(returned[e])) continue;  // judged already
    // Faithful rounding may always go the same way.
    const Cell cell = rounding_cell(dtype, near);
    const auto spacing = static_cast<double>(cell.high - cell.low);
    const bool nearest = rounding == Rounding::nearest;
    const double drift = spread.drift[e] + (nearest ? 0 : spacing);
    const double predicted = drift + std::hypot(spread.deviation[e], nearest ? spacing / 2 : 0);
    const double allowed = (spread.drift[e] + deviations * spread.deviation[e]) * kSecondOrder;
    if (allowed == 0) continue;
    ++noise.compared;
    const auto error = static_cast<double>(returned[e] - exact);
    const Cell around = rounding_cell(dtype, returned[e], rounding);
    const auto away =
        static_cast<double>(std::max({around.low - exact, exact - around.high, 0.0L}));
    if (away / allowed > noise.max_ratio) {
      noise.max_ratio = away / allowed;
      noise.worst = static_cast<Index>(e);
    }
    squares += error / predicted * (error / predicted);
    sum += error / predicted;
    outward += exact < 0 ? -error / predicted : error / predicted;
    drifts += drift / predicted;
  }
  if (noise.compared == 0) return noise;
  const auto count = static_cast<double>(noise.compared);
  groups = std::clamp(groups, 1.0, count);
  noise.ratio = std::sqrt(squares / count);
  noise.ratio_limit = std::sqrt(mean_square_limit(groups, kNoiseChance)) * kSecondOrder;
  noise.bias = sum / count;
  noise.growth = outward / count;
  noise.bias_limit =
      (drifts / count + std::sqrt(2 * std::log(2 / kNoiseChance) / groups)) * kSecondOrder;
  return noise;
}

std::string complaint_of(const NoiseEvidence& noise) {
  if (noise.max_ratio > 1) {
    return fmt::format("{:.3g} times the statistical bound", noise.max_ratio);
  }
  if (noise.ratio > noise.ratio_limit) {
    return fmt::format("the rms of error / predicted is {:.3g}, its limit {:.3g}", noise.ratio,
                       noise.ratio_limit);
  }
  if (std::abs(noise.bias) > noise.bias_limit) {
    return fmt::format("the mean of error / predicted is {:.3g}, its limit {:.3g}", noise.bias,
                       noise.bias_limit);
  }
  if (std::abs(noise.growth) > noise.bias_limit) {
    return fmt::format(
        "the mean of error / predicted, counted away from 0, is {:.3g}, its limit {:.3g}",
        noise.growth, noise.bias_limit);
  }
  return {};
}

}  // namespace attest
