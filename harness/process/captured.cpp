#include "harness/process/captured.h"

#include <fmt/format.h>

#include <algorithm>

namespace attest {
namespace {

constexpr std::size_t kHeadBytes = std::size_t(4) << 10;

}  // namespace

void Captured::add(std::string_view printed) {
  const std::size_t first = std::min(printed.size(), kHeadBytes - head_.size());
  head_ += printed.substr(0, first);
  tail_ += printed.substr(first);
  if (tail_.size() <= 2 * kCaptureBytes) return;  // seldom moved
  const std::size_t too_many = tail_.size() - kCaptureBytes;
  tail_.erase(0, too_many);
  left_out_ += too_many;
}

std::string Captured::text() const {
  if (left_out_ == 0 && head_.size() + tail_.size() <= kCaptureBytes) return head_ + tail_;
  // The line is as long whatever number it holds.
  const auto line = [](std::size_t bytes) {
    return fmt::format("\n[... {:>20} bytes left out ...]\n", bytes);
  };
  const std::size_t kept = kCaptureBytes - head_.size() - line(0).size();
  const std::size_t cut = tail_.size() - kept;
  return head_ + line(left_out_ + cut) + tail_.substr(cut);
}

std::string as_captured(std::string_view text) {
  Captured captured;
  captured.add(text);
  return captured.text();
}

}  // namespace attest
