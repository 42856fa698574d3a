#include "reports/interval.h"

#include <fmt/format.h>

#include <utility>

namespace attest {

std::string interval_text(const Interval& interval, double unit) {
  if (!interval.is_sure()) return fmt::format("{:.3g} (few calls)", interval.median / unit);
  return fmt::format("{:.3g} ({:.3g} to {:.3g})", interval.median / unit, interval.least / unit,
                     interval.most / unit);
}

std::string time_text(const Interval& seconds) {
  const auto [name, unit] = seconds.median < 1e-3 ? std::pair("us", 1e-6)
                            : seconds.median < 1  ? std::pair("ms", 1e-3)
                                                  : std::pair("s", 1.0);
  return fmt::format("{} {}", interval_text(seconds, unit), name);
}

}  // namespace attest
