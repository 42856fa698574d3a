#include "harness/run/needs.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "harness/judge/promise.h"
#include "spec/contains.h"

namespace attest {

std::vector<std::string> cut_at(const std::string& text, std::string_view by) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(by, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + by.size();
  }
  return parts;
}

std::string promise_lacking(const Verdict& v) {
  if (v.outcome != Outcome::unsupported || !v.message.starts_with(kNoPromise)) return "";
  return v.message.substr(kNoPromise.size());
}

namespace {

// What keeps a testee from being asked a case of a profile: features and formats that it does not
// declare, a promise that it does not make, other profiles that the case needs and it does not
// claim.
std::set<std::string> missing_for(const Verdict& v, const Profile& profile,
                                  const std::set<std::string_view>& unclaimed) {
  const bool unsupported = v.outcome == Outcome::unsupported;
  const std::string promise = promise_lacking(v);
  if (!promise.empty() &&
      (promise == profile.name || contains(profile.promises, std::string_view(promise)))) {
    return {promise};
  }
  const auto cites = [&](const Profile& each) {
    return std::any_of(v.clauses.begin(), v.clauses.end(),
                       [&](const std::string& clause) { return contains(each.clauses, clause); });
  };
  if (!cites(profile)) return {};
  std::set<std::string> missing;
  if (unsupported && v.reason == "undeclared") {
    for (const std::string& feature : cut_at(v.message, ", ")) missing.insert(feature);
  }
  for (const Profile& each : profiles()) {
    if (unclaimed.contains(each.name) && cites(each)) {
      missing.insert(fmt::format("the profile {}", each.name));
    }
  }
  return missing;
}

}  // namespace

std::map<std::string, Index> needs_of(const std::string& testee, const Profile& profile,
                                      const std::vector<std::string>& claimed,
                                      const std::vector<VerdictRecord>& verdicts) {
  std::set<std::string_view> unclaimed;  // profiles
  for (const Profile& each : profiles()) unclaimed.insert(each.name);
  for (const std::string& name : claimed) unclaimed.erase(find_profile(name)->name);
  std::map<std::string, Index> needs;
  std::map<std::set<std::string>, Index> cases;  // by all that is missing for them
  for (const VerdictRecord& record : verdicts) {
    if (record.testee != testee) continue;
    const std::set<std::string> missing = missing_for(record.verdict, profile, unclaimed);
    if (!missing.empty()) ++cases[missing];
    for (const std::string& each : missing) ++needs[each];
  }
  const auto least = std::min_element(cases.begin(), cases.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.size(), -a.second) < std::pair(b.first.size(), -b.second);
  });
  std::erase_if(needs, [&](const auto& each) { return !least->first.contains(each.first); });
  return needs;
}

}  // namespace attest
