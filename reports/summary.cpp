// The table that a run ends with on a terminal.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "reports/digest.h"
#include "reports/groups.h"
#include "reports/reports.h"
#include "reports/standing.h"
#include "reports/table.h"
#include "reports/text.h"

namespace attest {
namespace {

std::string verdicts(const Digest& d) {
  std::vector<std::string> titles = {"testee"};
  for (const Outcome outcome : d.outcomes) titles.emplace_back(name(outcome));
  for (const TensorName tensor : d.tensors) {
    titles.push_back(fmt::format("max {}", name(tensor)));
  }
  Table table(titles, 1);
  for (const TesteeDigest& testee : d.testees) {
    std::vector<std::string> cells = {one_line(testee.about.name)};
    for (const Outcome outcome : d.outcomes) {
      cells.push_back(std::to_string(count_of(testee.counts, outcome)));
    }
    for (const TensorName tensor : d.tensors) {
      const Worst* worst = testee.worst_of(tensor);
      cells.push_back(worst ? ratio_text(worst->evidence->max_ratio) : "-");
    }
    table.add(cells);
  }
  return table.str();
}

std::string profiles(const Digest& d) {
  std::vector<std::string> titles = {"testee", "profile"};
  for (const std::string& dtype : d.dtypes) titles.push_back(one_line(dtype));
  Table table(titles, titles.size());
  for (const TesteeDigest& testee : d.testees) {
    for (const std::string& profile : judged_profiles(d, testee.about.name)) {
      std::vector<std::string> cells = {one_line(testee.about.name), one_line(profile)};
      for (const std::string& dtype : d.dtypes) {
        const ProfileRecord* p = find_profile_record(d, testee.about.name, profile, dtype);
        cells.push_back(p ? standing_text(*p) : "-");
      }
      table.add(cells);
    }
  }
  return table.str();
}

// Of a random search: what became of the problems, with each testee.
std::string searches(const Record& record) {
  std::vector<std::string> outcomes;
  for (const SearchRecord& search : record.searches) {
    for (const auto& [outcome, count] : search.tried) {
      if (std::find(outcomes.begin(), outcomes.end(), outcome) == outcomes.end()) {
        outcomes.push_back(outcome);
      }
    }
  }
  std::vector<std::string> titles = {"testee", "seed", "problems"};
  titles.insert(titles.end(), outcomes.begin(), outcomes.end());
  titles.emplace_back("inconclusive %");
  titles.emplace_back("next number");
  Table table(titles, 1);
  for (const SearchRecord& search : record.searches) {
    Index problems = 0;
    for (const auto& [outcome, count] : search.tried) problems += count;
    std::vector<std::string> cells = {one_line(search.testee), std::to_string(search.seed),
                                      std::to_string(problems)};
    for (const std::string& outcome : outcomes) {
      const auto count = search.tried.find(outcome);
      cells.push_back(std::to_string(count == search.tried.end() ? 0 : count->second));
    }
    const auto silent = search.tried.find(std::string(name(Outcome::inconclusive)));
    const Index count = silent == search.tried.end() ? 0 : silent->second;
    cells.push_back(fmt::format(
        "{:.2f}",
        problems == 0 ? 0.0 : 100.0 * static_cast<double>(count) / static_cast<double>(problems)));
    cells.push_back(std::to_string(search.next));
    table.add(cells);
  }
  return table.str();
}

std::string indented(const std::string& text) {
  return text.empty() ? "" : fmt::format("    {}\n", one_line(text));
}

// What a testee printed before it died, hung or gave up: the last lines tell why.
std::string printed(const Verdict& v, Detail detail) {
  constexpr std::size_t kLines = 12;
  if (v.outcome == Outcome::fail && v.reason != "wrong_refusal") return "";
  std::string out;
  if (detail == Detail::whole) {
    std::istringstream lines(v.captured);
    for (std::string line; std::getline(lines, line);) {
      out += fmt::format("    | {}\n", one_line(line));
    }
  } else {
    out = quoted_lines(v.captured, 0, kLines, "results.jsonl");
  }
  return out.empty() ? out : "    it printed:\n" + out;
}

// One failure of each kind, the simplest first.
std::string failures(const Digest& d, Detail detail) {
  constexpr std::size_t kShown = 10, kMessageBytes = 300;
  std::string out;
  const std::vector<FailureGroup> groups = failure_groups(d);
  for (std::size_t i = 0; i < std::min(kShown, groups.size()); ++i) {
    const VerdictRecord& record = groups[i].simplest();
    const Verdict& v = record.verdict;
    const std::string clause = headline_clause(v);
    out += fmt::format("{}{}{} {} {}\n", name(v.outcome),
                       v.reason.empty() ? "" : fmt::format("({})", one_line(v.reason)),
                       clause.empty() ? "" : " " + one_line(clause), one_line(record.testee),
                       one_line(record.case_id));
    out += indented(detail == Detail::whole ? v.message : excerpt(v.message, kMessageBytes));
    out += printed(v, detail);
    if (!clause.empty()) out += indented(clause_with_title(clause));
    if (!record.problem.empty()) out += indented("problem: " + record.problem);
    if (!record.because.empty()) out += indented("the case hunts: " + record.because);
    if (const KnownFailure* known = known_of(d, record)) out += indented(known_text(*known));
    out += indented(v.repro);
    out += indented(diagnosis_line(d, groups[i]));
    out += indented(others_text(groups[i]));
  }
  if (groups.size() > kShown) {
    out += fmt::format("... and {} more of other kinds; the report lists all\n",
                       groups.size() - kShown);
  }
  return out;
}

}  // namespace

std::string to_summary_text(const Record& record, Detail detail) {
  const Digest d = digest(record);
  std::string out;
  if (detail == Detail::brief) {
    // The sentence says it all.
  } else if (!record.searches.empty()) {
    out += searches(record) + "\n";
  } else if (!d.testees.empty()) {
    out += verdicts(d) + "\n";
  }
  if (detail != Detail::brief) {
    if (!d.profiles.empty()) out += profiles(d) + "\n";
    if (!d.failures.empty()) out += failures(d, detail) + "\n";
  }
  out += d.sentence + "\n";
  for (const std::string& note : d.notes) out += note + "\n";
  return out;
}

std::string to_verification_text(const Record& record) {
  const Digest d = digest(record);
  std::string out = d.sentence + "\n";
  for (const std::string& note : d.notes) out += note + "\n";
  if (!record.footer) return out;
  const Digests& digests = record.footer->digests;
  return out + fmt::format("Digest of the verdicts {}\nDigest of the record   {}\n",
                           one_line(digests.verdicts), one_line(digests.record));
}

}  // namespace attest
