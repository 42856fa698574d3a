#include "reports/digest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>

#include "reports/parts.h"
#include "reports/standing.h"
#include "reports/text.h"
#include "spec/clause.h"
#include "spec/contains.h"
#include "spec/known_failure.h"
#include "spec/tensor_name.h"

namespace attest {
namespace {

void add_once(std::vector<std::string>& items, const std::string& item) {
  if (!contains(items, item)) items.push_back(item);
}

class Digester {
 public:
  explicit Digester(const Record& record) : record_(record) {}

  Digest run() {
    for (const TesteeRecord& testee : record_.header.testees) {
      place_of(testee.name, &testee);
      for (const std::string& dtype : testee.dtypes) add_once(digest_.dtypes, dtype);
    }
    for (const VerdictRecord& verdict : record_.verdicts) absorb(verdict);
    number_failures();
    order();
    if (record_.footer) {
      digest_.profiles = record_.footer->profiles;
      for (const ProfileRecord& p : digest_.profiles) {
        place_of(p.testee, nullptr);
        add_once(digest_.dtypes, p.dtype);
      }
      digest_.wall_s = record_.footer->wall_s;
    }
    conclude();
    return std::move(digest_);
  }

 private:
  // The testee of that name; a verdict may name one that the header has forgotten.
  TesteeDigest& place_of(const std::string& name, const TesteeRecord* about) {
    const auto [at, is_new] = places_.try_emplace(name, digest_.testees.size());
    if (is_new) {
      digest_.testees.push_back({.about = about ? *about : TesteeRecord{.name = name}});
    }
    return digest_.testees[at->second];
  }

  void absorb(const VerdictRecord& record) {
    const Verdict& verdict = record.verdict;
    TesteeDigest& testee = place_of(record.testee, nullptr);
    testee.verdicts.push_back(&record);
    testee.wall_s += verdict.wall_s;
    ++testee.counts[verdict.outcome];
    ++digest_.counts[verdict.outcome];
    if (const KnownFailure* known = find_known(record_.header.known, record)) {
      ++testee.known[verdict.outcome];
      ++digest_.known[verdict.outcome];
      digest_.known_failures[&record] = known;
    }
    add_once(digest_.dtypes, record.dtype);
    const std::vector<std::string> cited = cited_clauses(verdict);
    for (const std::string& id : cited) ++testee.clauses[id].counts[verdict.outcome];
    if (!cited.empty()) {
      ClauseDigest& first = testee.clauses[headline_clause(verdict)];
      if (is_fault(verdict.outcome)) ++first.broken;
      if (verdict.outcome == Outcome::warn) ++first.missed;
    }
    for (const auto& [tensor, evidence] : verdict.tensors) {
      if (evidence.compared == 0 && evidence.max_ratio == 0) continue;  // an empty tensor
      // What misses a recommendation alone is no ratio to what is required.
      if (verdict.outcome == Outcome::warn && worse(evidence.max_ratio, 1)) continue;
      const auto [at, is_new] =
          testee.worst.try_emplace({tensor, record.dtype}, Worst{&record, &evidence});
      if (!is_new && worse(evidence.max_ratio, at->second.evidence->max_ratio)) {
        at->second = {&record, &evidence};
      }
      digest_.tensors.insert(tensor);
    }
    add_slopes(testee, record);
    if (is_failure(verdict.outcome)) {
      digest_.failures.push_back(&record);
      add_diagnosis(record);
    }
  }

  void add_diagnosis(const VerdictRecord& failure) {
    for (const Diagnosis& each : record_.diagnoses) {
      const bool of_it = each.testee == failure.testee && each.case_id == failure.case_id;
      if (of_it && !diagnosis_text(each).empty()) digest_.diagnoses[&failure] = &each;
    }
  }

  static void add_slopes(TesteeDigest& testee, const VerdictRecord& record) {
    std::set<std::string> features(record.verdict.features.begin(), record.verdict.features.end());
    features.erase("backward");  // all have it
    if (features.empty()) features = {"plain"};
    for (const SlopeEvidence& slope : record.verdict.slopes) {
      const double apart = std::abs(slope.analytic - slope.difference);
      const double share = apart == 0 ? 0 : apart / slope.allowed;
      for (const std::string& feature : features) {
        SlopeDigest& known = testee.slopes[{feature, slope.tensor}];
        ++known.count;
        if (worse(share, known.worst)) {
          known.worst = share;
          known.verdict = &record;
          known.evidence = &slope;
        }
      }
    }
  }

  void number_failures() {
    auto& failures = digest_.failures;
    std::stable_partition(failures.begin(), failures.end(), [](const VerdictRecord* failure) {
      return failure->verdict.outcome != Outcome::not_run;
    });
    for (std::size_t i = 0; i < failures.size(); ++i) {
      TesteeDigest& testee = place_of(failures[i]->testee, nullptr);
      for (const std::string& id : cited_clauses(failures[i]->verdict)) {
        testee.clauses[id].failures.push_back(i);
      }
    }
  }

  void order() {
    for (const auto& [outcome, count] : digest_.counts) digest_.outcomes.push_back(outcome);
    const auto cited = [&](const std::string& id) {
      return std::any_of(digest_.testees.begin(), digest_.testees.end(),
                         [&](const TesteeDigest& testee) { return testee.clauses.count(id) > 0; });
    };
    for (const std::string& id : clauses_known()) {
      if (cited(id)) digest_.clauses.push_back(id);
    }
    for (const TesteeDigest& testee : digest_.testees) {
      for (const auto& [id, clause] : testee.clauses) add_once(digest_.clauses, id);
    }
  }

  static std::vector<std::string> clauses_known() {
    std::vector<std::string> ids;
    for (const Clause& clause : clauses()) ids.emplace_back(clause.id);
    return ids;
  }

  void take_notes() {
    for (const std::string& words : record_.header.uncontained) {
      digest_.notes.push_back(fmt::format("Not contained: {}.", one_line(words)));
    }
    for (const std::string& words : record_.unverified) {
      digest_.notes.push_back(fmt::format("Not verified: {}.", one_line(words)));
    }
    if (!record_.header.vectors.empty()) {
      digest_.notes.push_back(fmt::format(
          "Not judged, as outputs of files were, and nothing was called: {}.", clauses_of_calls()));
    }
    for (const std::string& words : parts_text(record_)) digest_.notes.push_back(words);
    if (!record_.footer) return;
    for (const std::string& words : record_.footer->known_amiss) {
      digest_.notes.push_back(fmt::format("Known failures: {}.", one_line(words)));
    }
  }

  void conclude() {
    take_notes();
    digest_.conclusion = "incomplete";
    if (!record_.defects.empty()) {
      digest_.state = State::inconsistent;
      digest_.sentence = fmt::format("Inconsistent record: {}; nothing is concluded.",
                                     one_line(fmt::format("{}", fmt::join(record_.defects, "; "))));
      return;
    }
    if (!record_.footer) {
      digest_.state = State::truncated;
      digest_.sentence = fmt::format(
          "Truncated: the run did not end, so nothing is concluded; {} recorded before, {}.",
          count_text(total(digest_.counts), "verdict"), failures_phrase());
      return;
    }
    const Footer& footer = *record_.footer;
    if (Index claimed = 0; !footer_agrees(claimed)) {
      digest_.state = State::inconsistent;
      digest_.sentence = fmt::format(
          "Damaged record: its footer counts {}, it holds {} or other outcomes; nothing is "
          "concluded.",
          count_text(claimed, "verdict"), total(digest_.counts));
      return;
    }
    digest_.state = footer.complete ? State::complete : State::incomplete;
    const bool good = footer.conclusion == "conformant" || footer.conclusion == kNoFailure;
    if (footer.conclusion == "not conformant" || (good && footer.complete)) {
      digest_.conclusion = footer.conclusion;
    }
    if (footer.exit_code != 0 || digest_.conclusion != "incomplete") {
      digest_.exit_code = footer.exit_code;
    }
    digest_.sentence = sentence(footer);
  }

  bool footer_agrees(Index& claimed) const {
    std::map<std::string, Index> counted;
    for (const auto& [outcome, count] : digest_.counts) counted[std::string(name(outcome))] = count;
    std::map<std::string, Index> said;
    for (const auto& [outcome, count] : record_.footer->counts) {
      claimed += count;
      if (count != 0) said[outcome] = count;
    }
    return counted == said;
  }

  std::string failures_phrase() const {
    const Index failed = failures_in(digest_.counts);
    return failed == 0 ? "none of them a failure" : fmt::format("{} of them failures", failed);
  }

  // "fa2 fails 5 of 168 cases, naive fails 1 of 168 cases"; empty if nothing failed.
  std::string who_fails() const {
    constexpr std::size_t kNamed = 4;
    std::vector<std::string> phrases;
    for (const TesteeDigest& testee : digest_.testees) {
      const Index failed = failures_in(testee.counts) - total(testee.known);
      if (failed == 0) continue;
      phrases.push_back(fmt::format("{} does not pass {} of {}", one_line(testee.about.name),
                                    failed, count_text(total(testee.counts), "case")));
    }
    if (phrases.size() > kNamed) {
      const auto more = static_cast<Index>(phrases.size() - kNamed);
      phrases.resize(kNamed);
      phrases.push_back(fmt::format("nor do {}", count_text(more, "other testee")));
    }
    return list_text(phrases, "");
  }

  std::string what_passed() const {
    std::string text = fmt::format("{} of {} passed", count_of(digest_.counts, Outcome::pass),
                                   count_text(total(digest_.counts), "verdict"));
    const auto add = [&](Outcome outcome, std::string_view word) {
      const Index count = count_of(digest_.counts, outcome);
      if (count > 0) text += fmt::format(", {} {}", count, word);
    };
    add(Outcome::warn, "passed with a warning");
    add(Outcome::unsupported, "unsupported");
    const Index known = total(digest_.known);
    if (known > 0) text += fmt::format(", {} failed as was known", known);
    if (const Index failed = failures_in(digest_.counts) - known)
      text += fmt::format(", {} did not pass", failed);
    return text;
  }

  // "fa2 meets forward-core only with exp of 736 units in bf16", of each standing of that kind.
  template <class Kind>
  std::string standings(const Kind& is_of_kind, std::string_view only) const {
    std::vector<std::string> phrases;
    for (const ProfileRecord& p : digest_.profiles) {
      if (!is_of_kind(p)) continue;
      phrases.push_back(fmt::format("{} meets {} {}{} in {}", one_line(p.testee),
                                    one_line(p.profile), only, proviso_text(p), one_line(p.dtype)));
    }
    return first_of(phrases);
  }

  // "k: training-full is not asked: 42 cases need backward", of profiles without any case.
  std::string not_asked() const {
    std::vector<std::string> phrases;
    for (const ProfileRecord& p : digest_.profiles) {
      if (p.demanded > 0 || p.needs.empty()) continue;
      add_once(phrases, fmt::format("{} of {} is {}", one_line(p.profile), one_line(p.testee),
                                    standing_text(p)));
    }
    return first_of(phrases);
  }

  static std::string first_of(std::vector<std::string> phrases) {
    constexpr std::size_t kNamed = 4;
    if (phrases.size() > kNamed) {
      const std::size_t more = phrases.size() - kNamed;
      phrases.resize(kNamed);
      phrases.push_back(fmt::format("and so {} more", more));
    }
    return list_text(phrases, "");
  }

  // Of a random search.
  std::string what_was_tried(const Footer& footer) const {
    Index problems = 0;
    std::vector<std::string> outcomes;
    for (const auto& [outcome, count] : footer.tried) {
      problems += count;
      outcomes.push_back(fmt::format("{} {}", count, outcome));
    }
    const Index failed = failures_in(digest_.counts);
    const std::string found = failed == 0 ? "Nothing" : count_text(failed, "failure");
    return fmt::format("{} found in {}: {}.", found, count_text(problems, "random problem"),
                       list_text(outcomes, "none"));
  }

  std::string sentence(const Footer& footer) const {
    if (!footer.tried.empty()) return what_was_tried(footer);
    const std::string failing = who_fails();
    const std::string profiles =
        record_.header.profiles.empty()
            ? "every profile declared"
            : fmt::format("every profile asked for ({})",
                          one_line(list_text(record_.header.profiles, "")));
    if (digest_.state == State::complete && footer.conclusion == "conformant") {
      std::vector<std::string> names;
      for (const TesteeDigest& testee : digest_.testees)
        names.push_back(one_line(testee.about.name));
      const std::string with =
          standings([](const ProfileRecord& p) { return is_met(p) == Met::otherwise; }, "");
      return fmt::format("Conformant: {} {} {}{}; {}.", list_text(names, "nothing"),
                         names.size() == 1 ? "meets" : "meet", profiles,
                         with.empty() ? "" : " (" + with + ")", what_passed());
    }
    if (digest_.state == State::complete && footer.conclusion == kNoFailure) {
      return fmt::format("No failure in {}; {}.", how_much(), what_passed());
    }
    if (footer.conclusion == "not conformant") {
      const std::string only = standings(met_only_with, "only ");
      if (failing.empty() && !only.empty()) {
        return fmt::format(
            "Not conformant: no case failed, but {}; a profile takes that if it is claimed, or "
            "asked for, with \"+declared\" behind its name{}.",
            only, footer.complete ? "" : "; and the run is incomplete");
      }
      return fmt::format("Not conformant: {}{}.",
                         !failing.empty() ? failing
                         : footer.known_amiss.empty()
                             ? fmt::format("no case failed, but not {} is met", profiles)
                             : "what was known to fail does not, or never ran",
                         footer.complete ? "" : "; and the run is incomplete");
    }
    if (digest_.counts.empty()) return "Incomplete: no case was run.";
    if (const Index ours = count_of(digest_.counts, Outcome::harness_error)) {
      return fmt::format("Incomplete: Attest itself failed in {}; {}.", count_text(ours, "case"),
                         what_passed());
    }
    if (const Index open = count_of(digest_.counts, Outcome::not_run)) {
      return fmt::format("Incomplete: {} not run; {}.", count_text(open, "case"), what_passed());
    }
    if (const Index open = count_of(digest_.counts, Outcome::inconclusive)) {
      return fmt::format("Incomplete: {} inconclusive; {}.", count_text(open, "verdict"),
                         what_passed());
    }
    if (!footer.complete) {
      return fmt::format("Incomplete: the run did not do all it should; {}.", what_passed());
    }
    const std::string missing = not_asked();
    return fmt::format("Incomplete: no failure in {}, but no profile was judged in full{}; {}.",
                       how_much(), missing.empty() ? "" : fmt::format(" ({})", missing),
                       what_passed());
  }

  // "150 of 10403 cases (the smoke tier, with failures that were known)": what was tried, and what
  // keeps it from showing more.
  std::string how_much() const {
    const Header& h = record_.header;
    std::vector<std::string> why;
    const auto add = [&](bool said, const std::string& words) {
      if (said) why.push_back(words);
    };
    add(h.tier == "smoke", "the smoke tier");
    add(!h.from.empty() || !h.cases.bundled,
        h.shapes.empty() ? "cases that are not the suite's own" : "shapes in use");
    add(!h.filters.empty(), "those that --cases names");
    add(h.shard != "1/1", fmt::format("the shard {}", one_line(h.shard)));
    add(h.profiles == std::vector<std::string>{"none"}, "no profile was asked for");
    add(!h.vectors.empty(), "outputs alone");
    std::vector<std::string> free;
    for (const TesteeRecord& t : h.testees) {
      if (!is_contained(t)) free.push_back(one_line(t.name));
    }
    add(!free.empty(), fmt::format("{} could have written the record", list_text(free, "")));
    add(record_.footer->known > 0, "with failures that were known");
    return fmt::format("{} of {}{}", record_.footer->judged, count_text(h.cases.complete, "case"),
                       why.empty() ? "" : fmt::format(" ({})", list_text(why, "")));
  }

  const Record& record_;
  Digest digest_;
  std::unordered_map<std::string, std::size_t> places_;
};

}  // namespace

const Worst* TesteeDigest::worst_of(TensorName tensor) const {
  const Worst* found = nullptr;
  for (const auto& [key, candidate] : worst) {
    if (key.first != tensor) continue;
    if (!found || worse(candidate.evidence->max_ratio, found->evidence->max_ratio)) {
      found = &candidate;
    }
  }
  return found;
}

Digest digest(const Record& record) { return Digester(record).run(); }

bool worse(double ratio, double than) {
  return std::isnan(ratio) ? !std::isnan(than) : ratio > than;
}

std::string headline_clause(const Verdict& verdict) {
  if (!verdict.blamed.empty()) return verdict.blamed;
  return verdict.clauses.empty() ? "" : verdict.clauses.front();
}

std::vector<std::string> cited_clauses(const Verdict& verdict) {
  std::vector<std::string> ids;
  for (const std::string& id : verdict.clauses) add_once(ids, id);
  return ids;
}

Index count_of(const Counts& counts, Outcome outcome) {
  const auto at = counts.find(outcome);
  return at == counts.end() ? 0 : at->second;
}

Index total(const Counts& counts) {
  Index sum = 0;
  for (const auto& [outcome, count] : counts) sum += count;
  return sum;
}

const KnownFailure* known_of(const Digest& digest, const VerdictRecord& verdict) {
  const auto at = digest.known_failures.find(&verdict);
  return at == digest.known_failures.end() ? nullptr : at->second;
}

std::string known_text(const KnownFailure& known) {
  return fmt::format("known: {}{}", text_of(known), known.link.empty() ? "" : ", " + known.link);
}

Index failures_in(const Counts& counts) {
  Index sum = 0;
  for (const auto& [outcome, count] : counts) sum += is_failure(outcome) ? count : 0;
  return sum;
}

const ProfileRecord* find_profile_record(const Digest& digest, const std::string& testee,
                                         const std::string& profile, const std::string& dtype) {
  for (const ProfileRecord& p : digest.profiles) {
    if (p.testee == testee && p.profile == profile && p.dtype == dtype) return &p;
  }
  return nullptr;
}

std::vector<std::string> judged_profiles(const Digest& digest, const std::string& testee) {
  std::vector<std::string> names;
  for (const ProfileRecord& p : digest.profiles) {
    if (p.testee == testee) add_once(names, p.profile);
  }
  return names;
}

std::string_view name(State state) {
  switch (state) {
    case State::complete:
      return "complete";
    case State::incomplete:
      return "incomplete";
    case State::truncated:
      return "truncated";
    case State::inconsistent:
      return "inconsistent";
  }
  return "";
}

}  // namespace attest
