#include "harness/run/asking.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cases/entry.h"
#include "cases/fit.h"
#include "spec/contains.h"
#include "spec/feature.h"

namespace attest {
namespace {

Verdict unsupported(const Case& test_case, std::string reason, std::string why) {
  const bool is_long = is_too_long_alone(test_case.problem, reason, why);
  return {.outcome = Outcome::unsupported,
          .reason = std::move(reason),
          .message = std::move(why),
          .clauses = is_long ? std::vector<std::string>() : test_case.clauses};
}

// Whether cases differ in their ids, clauses and random numbers alone.
bool is_alike(const Case& a, const Case& b) {
  return a.problem == b.problem && a.data == b.data && a.hidden == b.hidden && a.check == b.check &&
         a.excerpt == b.excerpt && a.excerpt_heads == b.excerpt_heads &&
         a.statistical == b.statistical && a.laws == b.laws && a.extras == b.extras;
}

std::string without_seed(const std::string& id) { return id.substr(0, id.rfind("/s=")); }

// The cases as entries, once they are needed.
class Entries {
 public:
  explicit Entries(const std::filesystem::path& root) : root_(root) {}
  const nlohmann::json& of(const Case& test_case) {
    if (entries_.empty()) {
      for (CaseWithEntry& each : load_entries(root_)) {
        entries_[without_seed(each.test_case.id)] = std::move(each.entry);
      }
    }
    return entries_.at(without_seed(test_case.id));
  }

 private:
  const std::filesystem::path& root_;
  std::unordered_map<std::string, nlohmann::json> entries_;
};

bool has_all(const std::vector<std::string>& clauses, const std::vector<std::string>& some) {
  return std::all_of(some.begin(), some.end(),
                     [&](const std::string& each) { return contains(clauses, each); });
}

// The same limits, of a testee that declares these features as well.
KernelLimits with_features(KernelLimits limits, const std::vector<std::string>& more) {
  for (auto& [dtype, terms] : limits.formats) {
    for (Terms& each : terms) {
      if (each.features) each.features->insert(each.features->end(), more.begin(), more.end());
    }
  }
  return limits;
}

// Of an exclusion, what a testee lacks: features, of which there may be several, or a limit.
std::vector<std::string> named_by(const Exclusion& excluded) {
  if (excluded.reason != "undeclared") return {limit_named_by(excluded.what)};
  std::vector<std::string> features;
  for (std::size_t begin = 0; begin <= excluded.what.size();) {
    const std::size_t end = std::min(excluded.what.find(", ", begin), excluded.what.size());
    features.push_back(excluded.what.substr(begin, end - begin));
    begin = end + 2;
  }
  return features;
}

Asking::Instead nothing(const Case& c, const Exclusion& excluded,
                        std::vector<std::string> stopped_by) {
  return {.verdict = unsupported(c, excluded.reason, excluded.what),
          .stopped_by = std::move(stopped_by)};
}

// Why nothing is asked instead of a case that is not fitted: features that are missing and can't be
// left out; else a limit, if it would be in the way of who had them all; else that they are absent.
Asking::Instead cause(const CaseWithEntry& base, const Fitted& fit, const Exclusion& excluded,
                      const Description& testee) {
  const Case& c = base.test_case;
  if (!fit.missing.empty()) {
    const std::string missing = fmt::format("{}", fmt::join(fit.missing, ", "));
    return nothing(c, {.reason = "undeclared", .what = missing}, fit.missing);
  }
  if (excluded.reason != "undeclared") {
    return nothing(c, {.reason = excluded.reason, .what = fit.why}, {fit.stopped_by});
  }
  std::vector<std::string> absent = features_of(c.problem);
  std::erase_if(absent, [&](const std::string& each) { return testee.has(each); });
  std::vector<std::string> all = testee.features;
  all.insert(all.end(), absent.begin(), absent.end());
  const Fitted whole = fitted(base, with_features(testee.limits, absent), all);
  if (whole.asked) return nothing(c, excluded, named_by(excluded));
  return nothing(c, {.reason = "limits", .what = whole.why}, {whole.stopped_by});
}

std::optional<Asking::Instead> other_than(const Case& c, const Description& testee,
                                          Entries& entries) {
  const auto excluded = exclusion(c.problem, testee);
  if (!excluded) return std::nullopt;
  const auto& formats = testee.dtypes;
  const bool of_format =
      std::find(formats.begin(), formats.end(), c.problem.dtype) != formats.end();
  if (!of_format || c.as_it_is) {
    return nothing(c, *excluded, named_by(*excluded));
  }
  const CaseWithEntry base = {c, entries.of(c)};
  Fitted fit = fitted(base, testee.limits, testee.features);
  if (fit.asked)
    return Asking::Instead{.fitted = std::make_shared<const Case>(*std::move(fit.asked))};
  return cause(base, fit, *excluded, testee);
}

// Cases by what most differ in, to find those that are alike.
class Alike {
 public:
  // The first that is alike; the case itself, which is kept, if there was none before.
  const Case* first_like(const Case& c) {
    std::vector<const Case*>& near = cases_[to_string(c.problem) + " " + c.data];
    for (const Case* const each : near) {
      if (is_alike(*each, c)) return each;
    }
    return near.emplace_back(&c);
  }

 private:
  std::unordered_map<std::string, std::vector<const Case*>> cases_;
};

// What is long is about that, and costs much.
bool may_be_fitted(const Case& c) {
  constexpr Index kLong = 1024;
  return !c.as_it_is && std::max(c.problem.query_len, c.problem.key_len) <= kLong;
}

// Whether a testee that takes its problem is judged on the case, whatever it promises: a verdict on
// a promise or a law may be UNSUPPORTED, and shows nothing of an instance.
bool is_of_numbers(const Case& c, const Description& testee) {
  if (c.check != Check::none || !c.laws.empty()) return false;
  return testee.returns_lse(c.problem.dtype) ||
         !std::all_of(c.clauses.begin(), c.clauses.end(), [](const std::string& clause) {
           const auto demands = find_feature("lse")->demands();
           return std::any_of(demands.begin(), demands.end(),
                              [&](const auto& demand) { return demand.clause == clause; });
         });
}

// Those that have become alike run once, if that one has all their clauses.
void leave_out_alike(const std::vector<Case>& cases,
                     std::unordered_map<std::string, Asking::Instead>& instead) {
  Alike asked;
  for (const Case& c : cases) {
    if (!instead.contains(c.id)) asked.first_like(c);
  }
  for (const Case& c : cases) {
    const auto place = instead.find(c.id);
    if (place == instead.end() || !place->second.fitted) continue;
    const Case& fitted = *place->second.fitted;
    const Case* const other = asked.first_like(fitted);
    if (other == &fitted || !has_all(other->clauses, fitted.clauses)) continue;
    place->second.verdict = unsupported(fitted, "alike", other->id);
    place->second.fitted = nullptr;
  }
}

}  // namespace

Asking::Asking(const std::vector<Case>& cases, const std::vector<Testee>& testees,
               const std::filesystem::path& root, const std::function<bool()>& interrupted) {
  Entries entries(root);
  for (const Testee& testee : testees) {
    auto& instead = instead_[testee.name];
    for (const Case& c : cases) {
      if (auto other = other_than(c, testee.description, entries)) instead[c.id] = *other;
    }
    const bool fits = std::any_of(instead.begin(), instead.end(),
                                  [](const auto& each) { return each.second.fitted != nullptr; });
    if (fits) leave_out_alike(cases, instead);
    if (!testee.description.dispatch.empty()) {
      meet_own_dispatch(testee, cases, entries, interrupted);
    }
  }
}

template <class Entries>
void Asking::meet_own_dispatch(const Testee& testee, const std::vector<Case>& cases,
                               Entries& entries, const std::function<bool()>& interrupted) {
  std::vector<AskedCase> asked;
  std::vector<const Case*> bases;
  Alike known;
  for (const Case& c : cases) {
    const Instead* const other = instead(testee.name, c.id);
    if (other && !other->fitted) continue;
    const Case& as_asked = other ? *other->fitted : c;
    known.first_like(as_asked);
    if (!is_of_numbers(c, testee.description)) continue;
    asked.push_back({.asked = &as_asked, .may_be_fitted = may_be_fitted(c)});
    bases.push_back(&c);
  }
  Besides& besides = besides_[testee.name];
  dispatch_met_[testee.name] = meet_dispatch(
      testee.description, asked,
      [&](std::size_t n) {
        return CaseWithEntry{*bases[n], entries.of(*bases[n])};
      },
      [&](std::size_t n, Case fitted) {
        auto form = std::make_shared<const Case>(std::move(fitted));
        if (known.first_like(*form) != form.get()) return false;
        besides[bases[n]->id].push_back(std::move(form));
        return true;
      },
      interrupted);
}

std::vector<Case> Asking::asked(const std::string& testee, const std::vector<Case>& cases) const {
  std::vector<Case> all;
  for (const Case& c : cases) {
    const Instead* other = instead(testee, c.id);
    if (!other) {
      all.push_back(c);
    } else if (other->fitted) {
      all.push_back(*other->fitted);
    }
    for (const Case* const each : besides(testee, c.id)) all.push_back(*each);
  }
  return all;
}

std::vector<const Case*> Asking::besides(const std::string& testee,
                                         const std::string& case_id) const {
  std::vector<const Case*> forms;
  const auto of_testee = besides_.find(testee);
  if (of_testee == besides_.end()) return forms;
  const auto place = of_testee->second.find(case_id);
  if (place == of_testee->second.end()) return forms;
  for (const auto& each : place->second) forms.push_back(each.get());
  return forms;
}

std::vector<DispatchMet> Asking::dispatch_met(const std::string& testee) const {
  const auto place = dispatch_met_.find(testee);
  return place == dispatch_met_.end() ? std::vector<DispatchMet>() : place->second;
}

Index Asking::count_besides(const std::string& testee, const std::vector<Case>& cases) const {
  Index count = 0;
  for (const Case& c : cases) count += std::ssize(besides(testee, c.id));
  return count;
}

void note_dispatch(const Asking& asking, const std::vector<Case>& cases, Header& header) {
  for (TesteeRecord& testee : header.testees) {
    for (const DispatchMet& each : asking.dispatch_met(testee.name)) {
      testee.dispatch.push_back({.table = each.table,
                                 .instances = static_cast<Index>(each.met + each.beyond.size()),
                                 .met = static_cast<Index>(each.met),
                                 .fewest = static_cast<Index>(each.fewest)});
    }
    testee.besides = asking.count_besides(testee.name, cases);
  }
}

std::size_t verdicts_on(const std::vector<Case>& cases, const Header& header) {
  std::size_t verdicts = cases.size() * header.testees.size();
  for (const TesteeRecord& testee : header.testees) {
    verdicts += static_cast<std::size_t>(testee.besides);
  }
  return verdicts;
}

const Asking::Instead* Asking::instead(const std::string& testee,
                                       const std::string& case_id) const {
  const auto& of_testee = instead_.at(testee);
  const auto place = of_testee.find(case_id);
  return place == of_testee.end() ? nullptr : &place->second;
}

}  // namespace attest
