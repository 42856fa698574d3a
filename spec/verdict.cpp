#include "spec/verdict.h"

#include <array>

namespace attest {
namespace {

constexpr std::array<std::string_view, 10> kNames = {
    "PASS",  "WARN",    "FAIL",           "UNSUPPORTED",   "INCONCLUSIVE",
    "CRASH", "TIMEOUT", "PROTOCOL_ERROR", "HARNESS_ERROR", "NOT_RUN"};

}  // namespace

std::string_view name(Outcome outcome) { return kNames[static_cast<std::size_t>(outcome)]; }

std::optional<Outcome> outcome_named(std::string_view text) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == text) return static_cast<Outcome>(i);
  }
  return std::nullopt;
}

}  // namespace attest
