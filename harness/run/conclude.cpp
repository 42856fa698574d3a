#include "harness/run/conclude.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "cases/carrier.h"
#include "cases/fit.h"
#include "harness/run/beyond.h"
#include "harness/run/needs.h"
#include "spec/contains.h"
#include "spec/feature.h"
#include "spec/known_failure.h"
#include "spec/limits.h"
#include "spec/profile.h"

namespace attest {
namespace {

// What a run may conclude at best.
struct Scope {
  bool whole = false;   // all cases of its tier, which are the suite's
  bool proves = false;  // besides of a tier that says enough, and of testees that are contained
};

Scope scope_of(const Header& header) {
  Scope scope;
  scope.whole = header.filters.empty() && header.shard == "1/1" && header.from.empty() &&
                header.shapes.empty() && header.cases.bundled;
  const bool contained = std::all_of(header.testees.begin(), header.testees.end(), is_contained);
  scope.proves = scope.whole && contained && header.vectors.empty() &&
                 (header.tier == "standard" || header.tier == "full");
  return scope;
}

// How one testee stands to one profile, as it was claimed or asked for, in one dtype.
struct Standing {
  ProfileRecord record;
  bool excused = true;  // nothing but known failures keeps it from being met
};

// What is missing of whoever says by a dialect what else rows without keys hold.
constexpr std::string_view kStandardRows = "rows without keys as EMPTY-1 and EMPTY-2 have them";

// Whether the profile demands what rows without keys hold; whoever declares that they hold
// something else doesn't meet it, and fails it where that isn't so (EMPTY-5).
bool demands_empty_rows(const Profile& profile) {
  return contains(profile.clauses, "EMPTY-1") || contains(profile.clauses, "EMPTY-2");
}

// Of the testee's features those that its limits exclude from a format.
std::vector<std::string> lacking_in(const std::string& dtype, const TesteeRecord& testee) {
  if (!dtype_named(dtype)) return {};
  std::vector<DType> formats;
  for (const std::string& each : testee.dtypes) {
    if (const auto known = dtype_named(each)) formats.push_back(*known);
  }
  const KernelLimits limits = parse_limits(testee.limits, "/limits", formats, testee.features);
  std::vector<std::string> lacking;
  for (const auto& [feature, words] : excluded_in(*dtype_named(dtype), limits, testee.features)) {
    lacking.push_back(feature);
  }
  return lacking;
}

bool speaks_of_some(std::string_view clause, const std::vector<std::string>& features) {
  const auto speakers = features_with(clause);
  return std::any_of(speakers.begin(), speakers.end(), [&](const Feature* each) {
    return contains(features, std::string(each->name));
  });
}

// Whether the format lacks what the case needs for another profile, which alone demands it.
bool is_of_another(const Verdict& v, const Profile& profile,
                   const std::vector<std::string>& lacking) {
  if (v.outcome != Outcome::unsupported || v.reason != "limits") return false;
  return std::any_of(v.clauses.begin(), v.clauses.end(), [&](const std::string& clause) {
    return !contains(profile.clauses, clause) && speaks_of_some(clause, lacking);
  });
}

// The demanded cases of one profile, counted.
class Count {
 public:
  // `lacking`: of the testee's features those that this format can't have.
  Count(const Profile& profile, const Header& header, const std::vector<std::string>& lacking,
        ProfileRecord& record)
      : profile_(profile), header_(header), lacking_(lacking), record_(record) {}

  void add(const VerdictRecord& v) {
    const Verdict& verdict = v.verdict;
    const bool unsupported = verdict.outcome == Outcome::unsupported;
    // A form that is asked besides its case may fail, and says nothing else here: a case is one,
    // however many forms of it are asked.
    const bool is_first = cases_.insert(base_id(v.case_id)).second;
    const bool is_besides = !is_first && !fit_of(v.case_id).empty();
    if (is_besides && (unsupported || conforms(verdict.outcome))) return;
    if (unsupported && verdict.reason == "alike") return;  // it runs as another
    ++record_.demanded;
    if (unsupported && verdict.reason == "undeclared") {
      for (const std::string& feature : cut_at(verdict.message, ", ")) ++record_.needs[feature];
    }
    const bool fitted = !is_besides && is_narrowed(v.case_id);
    const bool dialect = unsupported && verdict.reason == "dialect";
    if (dialect) ++record_.needs[std::string(kStandardRows)];
    const bool excluded =
        dialect || (unsupported && (verdict.reason == "undeclared" || verdict.reason == "limits"));
    const bool left_out = excluded || (unsupported && verdict.reason == "not_judgeable");
    record_.within_limits |= fitted || excluded;
    record_.left_out += left_out;
    if (left_out) return;
    record_.passed += conforms(verdict.outcome);
    known_ += find_known(header_.known, v) != nullptr;
    untried_ |= verdict.outcome == Outcome::not_run;
    if (!conforms(verdict.outcome)) return;
    for (const std::string& clause : verdict.clauses) {
      if (!speaks_of_some(clause, lacking_)) ++passed_[clause];
    }
  }

  // A case about a promise of the profile that is not given.
  void add_unpromised(const std::string& promise) {
    ++record_.demanded;
    ++record_.left_out;
    ++record_.needs[promise];
    record_.within_limits = true;
  }

  // Clauses of which too little was tried to say that they are met; of a sample, as the smoke tier
  // is, nobody says so. One whose absence is a limit on sizes or layouts is told as such.
  void note_thin(const TesteeRecord& testee) {
    constexpr Index kEnough = 3;
    if (!record_.within_limits || header_.tier == "smoke") return;
    for (const std::string_view clause : profile_.clauses) {
      if (is_promise(clause) || !speaks_of(clause, testee)) continue;
      const Index cases = passed_[std::string(clause)];
      if (cases < kEnough) record_.thin[std::string(clause)] = cases;
    }
  }

  Index known() const { return known_; }
  bool untried() const { return untried_; }

 private:
  // Whether it is fitted to what is missing of this profile: a case that has features of others is
  // none of its cases as it is, and is one more without them.
  bool is_narrowed(const std::string& case_id) const {
    const std::string_view text = fit_of(case_id);
    if (text.empty()) return false;
    Fit fit = Fit::parse(text);
    std::erase_if(fit.without, [&](const std::string& name) {
      const auto demands = find_feature(name)->demands();
      return std::none_of(demands.begin(), demands.end(), [&](const Feature::Demand& each) {
        return contains(profile_.clauses, each.clause);
      });
    });
    return !fit.empty();
  }

  // What binds those alone who promise it, or is judged in every case.
  static bool is_promise(std::string_view clause) {
    return contains(
        std::array<std::string_view, 11>{"CALL-1", "CALL-2", "DET-1", "DET-3", "LAW-5", "NUM-2",
                                         "NUM-3", "SAFE-1", "SAFE-2", "SAFE-3", "SAFE-4"},
        clause);
  }

  // Not of formats and features that are none of the testee's.
  bool speaks_of(std::string_view clause, const TesteeRecord& testee) const {
    for (const Feature* feature : features_with(clause)) {
      const bool is_absent = feature->key == kOfFormats ? feature->name != record_.dtype
                                                        : !contains(testee.features, feature->name);
      // Nothing asks for LSE; who returns none in a format is judged there on O alone.
      if (is_absent || (feature->name == "lse" && contains(lacking_, "lse"))) {
        return false;
      }
    }
    return true;
  }

  const Profile& profile_;
  const Header& header_;
  const std::vector<std::string>& lacking_;
  std::set<std::string_view> cases_ = {};
  ProfileRecord& record_;
  std::map<std::string, Index> passed_ = {};
  Index known_ = 0;
  bool untried_ = false;
};

// Features whose absence is a limit on sizes or layouts, not a part of the profile that is missing.
bool only_limits(const std::map<std::string, Index>& needs) {
  return std::all_of(needs.begin(), needs.end(), [](const auto& each) {
    const Feature* feature = find_feature(each.first);
    return feature && is_limit_if_absent(*feature);
  });
}

// Whether enough is said of what the limits admit: clauses of forms that no problem within them
// has, and laws that need other problems than these, are named beside what is met; else, where it
// is too little, the others alone.
bool says_enough(std::map<std::string, Index>& thin) {
  const auto outside = [](const auto& each) {
    return each.second == 0 && may_lie_outside(each.first);
  };
  if (std::all_of(thin.begin(), thin.end(), outside)) return true;
  std::erase_if(thin, outside);
  return false;
}

// `verdicts` are the testee's in `dtype`.
Standing stand(const TesteeRecord& testee, const std::string& profile_name,
               const std::string& dtype, const std::vector<std::string>& claimed,
               const Header& header, const Scope& scope,
               const std::vector<const VerdictRecord*>& verdicts) {
  const Profile& profile = *find_profile(profile_name);
  ProfileRecord record{.testee = testee.name,
                       .profile = profile_name,
                       .dtype = dtype,
                       .with = declared_beyond_default(testee, dtype, profile)};
  const std::vector<std::string> lacking = lacking_in(dtype, testee);
  const bool returns_lse = contains(testee.features, "lse") && !contains(lacking, "lse");
  if (!returns_lse) record.profile += " (O-only)";
  Count count(profile, header, lacking, record);
  for (const VerdictRecord* v : verdicts) {
    if (is_of_another(v->verdict, profile, lacking)) continue;
    const std::string promise = promise_lacking(v->verdict);
    if (contains(profile.promises, std::string_view(promise))) {
      count.add_unpromised(promise);
      continue;
    }
    const bool breaks_dialect =
        v->verdict.clauses == std::vector<std::string>{"EMPTY-5"} && demands_empty_rows(profile);
    if (breaks_dialect || demands(profile, claimed, v->verdict.clauses)) count.add(*v);
  }
  count.note_thin(testee);
  if (testee.probed) record.with.emplace_back(kProbedDeclaration);
  const bool taken = !testee.probed && (record.with.empty() || takes_declared(profile_name));
  const bool within_caps = !testee.beyond_caps.contains(dtype);
  const bool sample = header.tier == "smoke";  // of which nobody says how much is left
  const bool enough = says_enough(record.thin);
  const bool limits_alone = takes_limits(profile_name) && only_limits(record.needs);
  // A sample, too, shows which features are missing for what somebody asks for by name.
  const bool in_sample = header.profiles.empty() || record.needs.empty() || limits_alone;
  const bool wide_enough = !record.within_limits || (sample ? in_sample : limits_alone && enough);
  const bool all_that_it_takes = taken && within_caps && wide_enough;
  record.complete = scope.proves && record.demanded > 0 && !count.untried();
  record.met = record.complete && record.passed == record.asked() && all_that_it_takes;
  const bool excused = record.passed + count.known() == record.asked() && all_that_it_takes;
  return {.record = std::move(record), .excused = excused};
}

// What was known and is not so. Of a part of the cases nobody knows which entries it should have.
std::vector<std::string> amiss(const Header& header, const Scope& scope,
                               const std::vector<VerdictRecord>& verdicts) {
  std::vector<std::string> words;
  for (const KnownFailure& known : header.known) {
    bool ran = false;
    for (const VerdictRecord& v : verdicts) {
      if (v.verdict.outcome == Outcome::not_run || !speaks_of(known, v)) continue;
      ran = true;
      if (!conforms(v.verdict.outcome)) continue;
      words.push_back(fmt::format("{} passes {}, which is known to give {}", v.testee, v.case_id,
                                  text_of(known)));
    }
    if (ran || !scope.whole || header.tier == "smoke") continue;
    words.push_back(fmt::format("{}{} is known to give {}, and never ran", known.cases,
                                known.testee.empty() ? "" : " with " + known.testee,
                                text_of(known)));
  }
  return words;
}

// What the verdicts come to by themselves, whatever anybody claims.
struct Findings {
  std::set<std::string> judged;  // testees with a verdict on what they did
  bool failed = false, harness_error = false, inconclusive = false;
};

// Counts them in the footer, too.
Findings findings_of(const Header& header, const std::vector<VerdictRecord>& verdicts,
                     Footer& footer) {
  Findings found;
  std::set<std::string_view> passed;  // cases
  for (const VerdictRecord& v : verdicts) {
    ++footer.counts[std::string(name(v.verdict.outcome))];
    const bool known = find_known(header.known, v) != nullptr;
    footer.known += known;
    switch (v.verdict.outcome) {
      case Outcome::pass:
      case Outcome::warn:
        found.judged.insert(v.testee);
        passed.insert(v.case_id);
        break;
      case Outcome::fail:
      case Outcome::crash:
      case Outcome::timeout:
      case Outcome::protocol_error:
        found.failed = found.failed || !known;
        break;
      case Outcome::harness_error:
        found.harness_error = true;
        break;
      case Outcome::inconclusive:
      case Outcome::not_run:
        found.inconclusive = true;
        break;
      case Outcome::unsupported:
        break;
    }
  }
  footer.judged = static_cast<Index>(passed.size());
  return found;
}

bool asks_for_none(const Header& header) {
  return header.profiles == std::vector<std::string>{kNoProfile};
}

bool all_judged(const Header& header, const Findings& found) {
  return std::all_of(header.testees.begin(), header.testees.end(), [&](const TesteeRecord& testee) {
    return found.judged.contains(testee.name);
  });
}

// How all testees stand to all profiles that they claim or are asked for.
struct Demands {
  bool complete = true;  // enough were tried, on all that they demand
  bool met = true;
  bool excused = true;  // nothing but known failures keeps one from being met
};

// Writes each into the footer, too.
Demands judge_profiles(const Header& header, const Scope& scope,
                       const std::vector<VerdictRecord>& verdicts, Footer& footer) {
  Demands demands;
  // There may be a million, of a hundred testees.
  std::map<std::pair<std::string_view, std::string_view>, std::vector<const VerdictRecord*>> of;
  for (const VerdictRecord& v : verdicts) of[{v.testee, v.dtype}].push_back(&v);
  // Of what a testee claims the smoke tier has a sample, and of one format perhaps no case.
  const bool each = header.tier != "smoke" || !header.profiles.empty();
  for (const TesteeRecord& testee : header.testees) {
    // Asked for and not declared: it claims nothing, so it is held to it here.
    std::vector<std::string> claimed = testee.profiles;
    for (const std::string& asked : header.profiles) claimed.push_back(asked);
    const auto& wanted = header.profiles.empty() ? testee.profiles : header.profiles;
    Index tried = 0;  // profiles
    for (const std::string& profile_name : wanted) {
      bool anywhere = false, asked = false;
      for (const std::string& dtype : testee.dtypes) {
        const Standing standing =
            stand(testee, profile_name, dtype, claimed, header, scope, of[{testee.name, dtype}]);
        // A profile may have nothing to say on a dtype, as `double` has on bf16.
        if (standing.record.demanded == 0) continue;
        anywhere = true;
        asked = asked || standing.record.asked() > 0;
        demands.excused = demands.excused && standing.excused;
        demands.met = demands.met && standing.record.met;
        footer.profiles.push_back(standing.record);
      }
      tried += header.tier == "smoke" ? asked : anywhere;
      // Named all the same: nothing that it demands is of what this testee claims and has.
      if (!anywhere && each && !testee.dtypes.empty()) {
        footer.profiles.push_back(
            {.testee = testee.name,
             .profile = profile_name,
             .dtype = testee.dtypes.front(),
             .needs = needs_of(testee.name, *find_profile(profile_name), claimed, verdicts)});
      }
    }
    const bool enough = each ? tried == std::ssize(wanted) : tried > 0;
    demands.complete = demands.complete && enough && !wanted.empty() && scope.whole;
  }
  return demands;
}

void end_with(Footer& footer, const char* conclusion, ExitCode code) {
  footer.conclusion = conclusion;
  footer.exit_code = code;
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
    end_with(footer, "incomplete", kUsageOrHarnessError);
  } else if (!found.empty()) {
    end_with(footer, "not conformant", kNotConformant);
  } else if (count(Outcome::pass) + count(Outcome::warn) == 0) {
    end_with(footer, "incomplete", kIncomplete);
  } else {
    end_with(footer, kNoFailure, kConformant);
  }
  return footer;
}

Footer conclude(const Header& header, const std::vector<VerdictRecord>& verdicts) {
  Footer footer;
  Findings found = findings_of(header, verdicts, footer);
  const Scope scope = scope_of(header);
  footer.known_amiss = amiss(header, scope, verdicts);
  found.failed = found.failed || !footer.known_amiss.empty();
  const bool no_profile = asks_for_none(header);
  const Demands demands = no_profile ? Demands{.complete = all_judged(header, found)}
                                     : judge_profiles(header, scope, verdicts, footer);
  if (found.harness_error) {
    end_with(footer, "incomplete", kUsageOrHarnessError);
  } else if (found.failed) {
    end_with(footer, "not conformant", kNotConformant);
  } else if (found.judged.empty() || found.inconclusive || !demands.complete) {
    end_with(footer, "incomplete", kIncomplete);
  } else if (!demands.excused) {
    end_with(footer, "not conformant", kNotConformant);
  } else {
    // A failure that is known is still one, whatever the profiles demand.
    const bool conformant = scope.proves && demands.met && !no_profile && footer.known == 0;
    end_with(footer, conformant ? "conformant" : kNoFailure, kConformant);
  }
  return footer;
}

void note_changes(Footer& footer, const std::vector<std::string>& changed) {
  if (changed.empty()) return;
  footer.changed = changed;
  end_with(footer, "incomplete", kIncomplete);
}

}  // namespace attest
