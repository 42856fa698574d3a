#include "reports/standing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "reports/text.h"
#include "spec/contains.h"
#include "spec/feature.h"
#include "spec/profile.h"

namespace attest {
namespace {

// Why a profile is not met although nothing that was asked failed.
std::string narrow_text(const ProfileRecord& profile) {
  std::vector<std::string> parts;
  for (const auto& [feature, cases] : profile.needs) {
    const Feature* known = find_feature(feature);
    if (known && is_limit_if_absent(*known)) continue;
    parts.push_back(fmt::format("{} {} {}", count_text(cases, "case"),
                                cases == 1 ? "needs" : "need", one_line(feature)));
  }
  if (!parts.empty()) return fmt::format("not asked: {}", fmt::join(parts, ", "));
  for (const auto& [clause, cases] : profile.thin) {
    parts.push_back(fmt::format("{} in {}", one_line(clause), count_text(cases, "case")));
  }
  if (!parts.empty()) return fmt::format("too narrow to say: {}", fmt::join(parts, ", "));
  return "not met: only within limits";
}

}  // namespace

bool met_only_with(const ProfileRecord& profile) {
  return !profile.met && profile.demanded > 0 && profile.passed == profile.demanded &&
         !profile.with.empty() &&
         (profile.profile.find(kTakesDeclared) == std::string::npos ||
          contains(profile.with, kProbedDeclaration));
}

std::string standing_text(const ProfileRecord& profile) {
  if (profile.demanded == 0) return "no case";
  const std::string words = one_line(list_text(profile.with, ""));
  if (met_only_with(profile)) return fmt::format("not met: only with {}", words);
  const std::string with = words.empty() ? "" : ", with " + words;
  if (profile.met) {
    std::vector<std::string> outside;
    for (const auto& [clause, cases] : profile.thin) outside.push_back(one_line(clause));
    const std::string none =
        outside.empty() ? "" : fmt::format(", which have nothing of {}", list_text(outside, ""));
    return (profile.within_limits ? "met within limits" : "met") + none + with;
  }
  if (profile.complete && profile.passed == profile.asked() && profile.within_limits) {
    return narrow_text(profile);
  }
  if (profile.complete) return fmt::format("not met: {} of {}", profile.passed, profile.asked());
  if (profile.passed == profile.asked()) {
    return fmt::format("no failure in {}{}", profile.asked(), with);
  }
  return fmt::format("incomplete: {} of {}", profile.passed, profile.asked());
}

}  // namespace attest
