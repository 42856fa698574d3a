#include "tests/bounds/histogram.h"

#include <bit>
#include <cstddef>

namespace attest::bounds {
namespace {

// The exponent of a double and the first four bits of its fraction: sixteen bins for each power of
// two. Bin 0 is for zeros, bin 1 begins at 2^-80 and holds whatever is smaller, too.
constexpr int kDropped = 52 - 4;
constexpr std::uint64_t kFirst = std::bit_cast<std::uint64_t>(0x1p-80) >> kDropped;
constexpr std::uint64_t kEnd = std::bit_cast<std::uint64_t>(4.0) >> kDropped;
constexpr std::size_t kBins = kEnd - kFirst + 2;  // the last: 4 and more

std::size_t bin_of(double value) {
  if (value == 0) return 0;
  if (value < 0x1p-80) return 1;
  if (!(value < 4)) return kBins - 1;
  return (std::bit_cast<std::uint64_t>(value) >> kDropped) - kFirst + 1;
}

double begin_of(std::size_t bin) { return std::bit_cast<double>((kFirst + bin - 1) << kDropped); }

}  // namespace

void Histogram::add(double value) {
  if (count_.empty()) count_.resize(kBins);
  ++count_[bin_of(value)];
}

void Histogram::add(const Histogram& other) {
  if (other.count_.empty()) return;
  if (count_.empty()) count_.resize(kBins);
  for (std::size_t bin = 0; bin < kBins; ++bin) count_[bin] += other.count_[bin];
}

std::optional<double> Histogram::median() const {
  std::int64_t all = 0, up_to = 0;
  for (const std::int64_t each : count_) all += each;
  if (all == 0) return std::nullopt;
  std::size_t bin = 0;
  while (2 * (up_to += count_[bin]) < all) ++bin;
  if (bin == 0) return 0;
  if (bin == kBins - 1) return 4;
  return (begin_of(bin) + begin_of(bin + 1)) / 2;
}

}  // namespace attest::bounds
