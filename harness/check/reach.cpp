#include "harness/check/reach.h"

#include <algorithm>

#include "harness/judge/promise.h"
#include "harness/laws/law.h"
#include "spec/contains.h"
#include "spec/dtype.h"
#include "spec/profile.h"

namespace attest {
namespace {

bool is_left_out(const Asking::Instead* instead) {
  return instead && !instead->fitted && instead->verdict.reason != "alike";
}

ProfileReach reach_of_profile(const Profile& profile, const Testee& testee,
                              const std::vector<Case>& cases, const Asking& asking) {
  ProfileReach reach{.name = std::string(profile.name)};
  std::vector<std::string> claimed = testee.description.profiles;
  reach.claimed = std::any_of(claimed.begin(), claimed.end(), [&](const std::string& name) {
    return find_profile(name) == &profile;
  });
  claimed.emplace_back(profile.name);
  claimed.emplace_back(kForwardCore);
  for (const Case& c : cases) {
    if (!contains(testee.description.dtypes, c.problem.dtype)) continue;
    if (!demands(profile, claimed, c.clauses)) continue;
    ++reach.demanded;
    const Asking::Instead* instead = asking.instead(testee.name, c.id);
    if (!is_left_out(instead)) {
      std::vector<std::string> clauses = c.clauses;
      std::string promise = promise_missing(c, testee.description, clauses);
      const auto of_laws = laws::missing_promise(c.laws, c.problem, testee.description,
                                                 testee.description.arithmetic_in(c.problem.dtype));
      const bool counts = of_laws && contains(profile.promises, std::string_view(*of_laws));
      if (promise.empty() && counts) promise = *of_laws;
      if (promise.empty()) {
        ++reach.asked;
      } else {
        reach.needs.insert(promise);
      }
      continue;
    }
    const bool by_limit = instead->verdict.reason != "undeclared";
    for (const std::string& each : instead->stopped_by) {
      reach.needs.insert(by_limit ? "limits" : each);
    }
  }
  return reach;
}

}  // namespace

TesteeReach reach_of(const Testee& testee, const std::vector<Case>& cases, const Asking& asking) {
  const Description& declared = testee.description;
  TesteeReach reach{.cases = std::ssize(cases)};
  for (const Case& c : cases) {
    const Asking::Instead* instead = asking.instead(testee.name, c.id);
    if (!instead) {
      ++reach.as_they_are;
    } else if (instead->fitted) {
      ++reach.fitted;
    } else if (!is_left_out(instead)) {
      ++reach.alike;
    } else if (!contains(declared.dtypes, c.problem.dtype)) {
      ++reach.formats[std::string(name(c.problem.dtype))];
    } else {
      auto& counts = instead->verdict.reason == "undeclared" ? reach.features : reach.limits;
      for (const std::string& each : instead->stopped_by) ++counts[each];
    }
  }
  for (const DType dtype : declared.dtypes) {
    if (!declared.declared_arithmetic.contains(name(dtype))) {
      reach.bare_formats.emplace_back(name(dtype));
    }
  }
  reach.dispatch = asking.dispatch_met(testee.name);
  for (const Profile& profile : profiles()) {
    ProfileReach each = reach_of_profile(profile, testee, cases, asking);
    if (each.demanded > 0) reach.profiles.push_back(std::move(each));
  }
  return reach;
}

}  // namespace attest
