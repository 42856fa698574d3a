#include "reports/standing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "reports/text.h"
#include "spec/contains.h"
#include "spec/feature.h"
#include "spec/profile.h"

namespace attest {
namespace {

// "not asked: 42 cases need gqa": what most need, first; empty if only sizes and layouts are
// missing.
std::string not_asked_text(const ProfileRecord& profile) {
  std::vector<std::pair<Index, std::string>> missing;
  for (const auto& [feature, cases] : profile.needs) {
    const Feature* known = find_feature(feature);
    if (!known || !is_limit_if_absent(*known)) missing.emplace_back(cases, feature);
  }
  if (missing.empty()) return "";
  std::stable_sort(missing.begin(), missing.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  constexpr std::size_t kNamed = 5;
  std::vector<std::string> parts;
  for (const auto& [cases, feature] : missing) {
    if (parts.size() == kNamed) break;
    parts.push_back(fmt::format("{} {} {}", count_text(cases, "case"),
                                cases == 1 ? "needs" : "need", one_line(feature)));
  }
  if (missing.size() > kNamed) {
    parts.push_back(fmt::format("others need {} more", missing.size() - kNamed));
  }
  return fmt::format("not asked: {}", fmt::join(parts, ", "));
}

// Why a profile is not met although nothing that was asked failed.
std::string narrow_text(const ProfileRecord& profile) {
  if (std::string text = not_asked_text(profile); !text.empty()) return text;
  std::vector<std::string> parts;
  for (const auto& [clause, cases] : profile.thin) {
    parts.push_back(fmt::format("{} in {}", one_line(clause), count_text(cases, "case")));
  }
  if (!parts.empty()) return fmt::format("too narrow to say: {}", fmt::join(parts, ", "));
  return "not met: only " + proviso_text(profile);
}

}  // namespace

bool met_only_with(const ProfileRecord& profile) {
  const auto takes = [&](std::string_view word) {  // what returns no LSE has more behind its name
    return profile.profile.find(word) != std::string::npos;
  };
  const bool says_enough = std::all_of(profile.thin.begin(), profile.thin.end(),
                                       [](const auto& each) { return each.second == 0; });
  const bool wide_enough = !profile.within_limits || !profile.complete ||
                           (takes(kTakesLimits) && not_asked_text(profile).empty() && says_enough);
  const bool taken = takes(kTakesDeclared) && !contains(profile.with, kProbedDeclaration);
  return !profile.met && profile.asked() > 0 && profile.passed == profile.asked() && wide_enough &&
         !profile.with.empty() && !taken;
}

Met is_met(const ProfileRecord& profile) {
  if (!profile.complete || profile.demanded == 0) return Met::unknown;
  if (!profile.met) return Met::no;
  return proviso_text(profile).empty() ? Met::plainly : Met::otherwise;
}

std::string proviso_text(const ProfileRecord& profile) {
  std::vector<std::string> words;
  if (profile.within_limits) words.emplace_back("within limits");
  std::vector<std::string> outside;
  for (const auto& [clause, cases] : profile.thin) outside.push_back(one_line(clause));
  if (!outside.empty()) words.push_back("which have nothing of " + list_text(outside, ""));
  if (!profile.with.empty()) words.push_back("with " + one_line(list_text(profile.with, "")));
  return list_text(words, "");
}

std::string standing_text(const ProfileRecord& profile) {
  if (profile.demanded == 0) {
    const std::string missing = not_asked_text(profile);
    return missing.empty() ? "no case" : missing;
  }
  if (met_only_with(profile)) return "not met: only " + proviso_text(profile);
  if (profile.met) {
    const std::string proviso = proviso_text(profile);
    return fmt::format("met{}{}", proviso.empty() || profile.within_limits ? "" : ",",
                       proviso.empty() ? "" : " " + proviso);
  }
  const std::string with =
      profile.with.empty() ? "" : ", with " + one_line(list_text(profile.with, ""));
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
