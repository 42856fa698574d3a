#include "harness/conclude.h"

#include <algorithm>
#include <set>

#include "spec/arithmetic.h"
#include "spec/profile.h"

namespace attest {
namespace {

// What of a format's arithmetic lies beyond the default column, in words.
std::vector<std::string> declared_beyond_default(const TesteeRecord& testee,
                                                 const std::string& dtype) {
  const auto format = dtype_named(dtype);
  if (!format || !testee.arithmetic.contains(dtype)) return {};
  return beyond_default(
      parse_arithmetic(testee.arithmetic.at(dtype), *format, "/arithmetic/" + dtype));
}

// How one testee stands to one profile, as it was claimed or asked for, in one dtype.
ProfileRecord stand(const TesteeRecord& testee, const std::string& profile_name,
                    const std::string& dtype, const std::vector<std::string>& claimed, bool whole,
                    const std::vector<VerdictRecord>& verdicts) {
  const Profile& profile = *find_profile(profile_name);
  ProfileRecord record{.testee = testee.name,
                       .profile = profile_name,
                       .dtype = dtype,
                       .with = declared_beyond_default(testee, dtype)};
  const auto& features = testee.features;
  if (std::find(features.begin(), features.end(), "lse") == features.end())
    record.profile += " (O-only)";
  for (const VerdictRecord& v : verdicts) {
    if (v.testee != testee.name || v.dtype != dtype) continue;
    if (!demands(profile, claimed, v.verdict.clauses)) continue;
    ++record.demanded;
    record.passed += conforms(v.verdict.outcome);
    whole = whole && v.verdict.outcome != Outcome::not_run;
  }
  record.complete = whole && record.demanded > 0;
  const bool taken = record.with.empty() || takes_declared(profile_name);
  record.met = record.complete && record.passed == record.demanded && taken &&
               !testee.beyond_caps.contains(dtype);
  return record;
}

}  // namespace

Footer conclude_search(const std::map<std::string, Index>& tried,
                       const std::vector<VerdictRecord>& found) {
  Footer footer;
  footer.tried = tried;
  const auto count = [&](Outcome outcome) {
    const auto place = tried.find(std::string(name(outcome)));
    return place == tried.end() ? 0 : place->second;
  };
  bool harness_error = false;
  for (const VerdictRecord& v : found) {
    ++footer.counts[std::string(name(v.verdict.outcome))];
    harness_error |= v.verdict.outcome == Outcome::harness_error;
  }
  if (harness_error) {
    footer.conclusion = "incomplete";
    footer.exit_code = kUsageOrHarnessError;
  } else if (!found.empty()) {
    footer.conclusion = "not conformant";
    footer.exit_code = kNotConformant;
  } else if (count(Outcome::pass) + count(Outcome::warn) == 0) {
    footer.conclusion = "incomplete";
    footer.exit_code = kIncomplete;
  } else {
    footer.conclusion = "passed";
    footer.exit_code = kConformant;
  }
  return footer;
}

Footer conclude(const Header& header, const std::vector<VerdictRecord>& verdicts) {
  Footer footer;
  std::set<std::string> judged;  // testees with a verdict on what they did
  bool failed = false, harness_error = false, inconclusive = false;
  for (const VerdictRecord& v : verdicts) {
    ++footer.counts[std::string(name(v.verdict.outcome))];
    switch (v.verdict.outcome) {
      case Outcome::pass:
      case Outcome::warn:
        judged.insert(v.testee);
        break;
      case Outcome::fail:
      case Outcome::crash:
      case Outcome::timeout:
      case Outcome::protocol_error:
        failed = true;
        break;
      case Outcome::harness_error:
        harness_error = true;
        break;
      case Outcome::inconclusive:
      case Outcome::not_run:
        inconclusive = true;
        break;
      case Outcome::unsupported:
        break;
    }
  }
  const bool no_profile = header.profiles == std::vector<std::string>{kNoProfile};
  const bool whole = header.filters.empty() && header.shard == "1/1" && header.from.empty();
  bool met = true, complete = true;
  for (const TesteeRecord& testee : header.testees) {
    // Asked for and not declared: it claims nothing, so it is held to it here.
    std::vector<std::string> claimed = testee.profiles;
    for (const std::string& asked : header.profiles) claimed.push_back(asked);
    const auto& wanted = header.profiles.empty() ? testee.profiles : header.profiles;
    if (no_profile) {
      complete = complete && judged.contains(testee.name);
      continue;
    }
    if (wanted.empty()) complete = false;
    for (const std::string& profile_name : wanted) {
      bool anywhere = false;
      for (const std::string& dtype : testee.dtypes) {
        const ProfileRecord record = stand(testee, profile_name, dtype, claimed, whole, verdicts);
        // A profile may have nothing to say on a dtype, as `double` has on bf16.
        if (record.demanded == 0) continue;
        anywhere = true;
        complete = complete && record.complete;
        met = met && record.met;
        footer.profiles.push_back(record);
      }
      complete = complete && anywhere;
    }
  }
  if (harness_error) {
    footer.conclusion = "incomplete";
    footer.exit_code = kUsageOrHarnessError;
  } else if (failed) {
    footer.conclusion = "not conformant";
    footer.exit_code = kNotConformant;
  } else if (judged.empty() || inconclusive || !complete) {
    footer.conclusion = "incomplete";
    footer.exit_code = kIncomplete;
  } else if (!met) {
    footer.conclusion = "not conformant";
    footer.exit_code = kNotConformant;
  } else {
    footer.conclusion = no_profile ? "passed" : "conformant";
    footer.exit_code = kConformant;
  }
  return footer;
}

}  // namespace attest
