// summary.md: one screen for a pull request or a mail.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "reports/declared.h"
#include "reports/digest.h"
#include "reports/groups.h"
#include "reports/reports.h"
#include "reports/standing.h"
#include "reports/text.h"

namespace attest {
namespace {

// Free text: what Markdown or HTML could take for markup is escaped.
std::string prose(std::string_view text) {
  std::string out;
  for (const char c : one_line(text)) {
    if (std::string_view("\\`*_[]<>|#&~").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

// A code span, its fence longer than any run of backticks within. Tables split at bars even in
// code.
std::string code(std::string_view text, bool in_table = false) {
  const std::string line = one_line(text);
  if (line.empty()) return "";
  std::string fence = "`";
  while (line.find(fence) != std::string::npos) fence += '`';
  const std::string_view space = line.front() == '`' || line.back() == '`' ? " " : "";
  std::string out;
  for (const char c : line) {
    if (c == '|' && in_table) out += '\\';
    out += c;
  }
  return fmt::format("{0}{1}{2}{1}{0}", fence, space, out);
}

std::string row(const std::vector<std::string>& cells) {
  std::string out = "|";
  for (const std::string& cell : cells) out += fmt::format(" {} |", cell);
  return out + "\n";
}

// The first `left` columns are text, the others numbers.
std::string head(const std::vector<std::string>& cells, std::size_t left) {
  std::string out = row(cells) + "|";
  for (std::size_t i = 0; i < cells.size(); ++i) out += i < left ? " --- |" : " ---: |";
  return out + "\n";
}

std::string what_was_run(const Record& record, const Digest& d) {
  const Header& h = record.header;
  std::string out =
      fmt::format("Attest {}, tier {}, seed {}, shard {}, {}, {}.\n", prose(h.suite_version),
                  prose(h.tier), h.seed, prose(h.shard), count_text(total(d.counts), "verdict"),
                  record.footer ? duration_text(d.wall_s) : "time unknown");
  std::vector<std::string> filters;
  for (const std::string& filter : h.filters) filters.push_back(code(filter));
  if (!h.from.empty()) {
    out += fmt::format("Cases not of the suite, but from {}.\n", code(h.from));
  }
  for (const std::string& named : h.shapes) out += fmt::format("Shapes of {}.\n", code(named));
  out += fmt::format("Cases: {}. Isolation: {}.\n", list_text(filters, "all of the tier"),
                     h.isolation.empty() ? "not recorded" : prose(h.isolation));
  return out;
}

std::string counts_table(const Digest& d) {
  if (d.testees.empty()) return "No testee.\n";
  std::vector<std::string> titles = {"testee"};
  for (const Outcome outcome : d.outcomes) titles.push_back(prose(name(outcome)));
  std::string out = head(titles, 1);
  for (const TesteeDigest& testee : d.testees) {
    std::vector<std::string> cells = {code(testee.about.name, true)};
    for (const Outcome outcome : d.outcomes) {
      cells.push_back(std::to_string(count_of(testee.counts, outcome)));
    }
    out += row(cells);
  }
  return out;
}

std::string profiles_table(const Digest& d) {
  if (d.profiles.empty()) return "No profile was judged.\n";
  std::vector<std::string> titles = {"testee", "profile"};
  for (const std::string& dtype : d.dtypes) titles.push_back(prose(dtype));
  std::string out = head(titles, titles.size());
  for (const TesteeDigest& testee : d.testees) {
    for (const std::string& profile : judged_profiles(d, testee.about.name)) {
      std::vector<std::string> cells = {code(testee.about.name, true), prose(profile)};
      for (const std::string& dtype : d.dtypes) {
        const ProfileRecord* p = find_profile_record(d, testee.about.name, profile, dtype);
        const std::string words = p ? prose(standing_text(*p)) : "–";
        cells.push_back(p && is_met(*p) == Met::plainly ? fmt::format("**{}**", words) : words);
      }
      out += row(cells);
    }
  }
  return out;
}

// An item for all testees that declare the same.
std::string declared_list(const Digest& d) {
  if (d.testees.empty()) return "No testee.\n";
  std::vector<std::pair<std::vector<DeclaredFact>, std::vector<std::string>>> groups;
  for (const TesteeDigest& testee : d.testees) {
    const std::vector<DeclaredFact> facts = declared_facts(testee.about);
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const auto& each) { return each.first == facts; });
    if (group == groups.end()) group = groups.insert(group, {facts, {}});
    group->second.push_back(code(testee.about.name));
  }
  std::string out;
  for (const auto& [facts, names] : groups) {
    out += fmt::format("- {}\n", list_text(names, ""));
    for (const auto& [what, words] : facts) out += fmt::format("  - {}: {}\n", what, prose(words));
  }
  return out;
}

std::string worst_table(const Digest& d) {
  if (d.tensors.empty()) return "Nothing was compared.\n";
  std::string out =
      head({"testee", "tensor", "dtype", "case", "ratio", "actual", "exact", "bound"}, 4);
  for (const TesteeDigest& testee : d.testees) {
    for (const TensorName tensor : d.tensors) {
      for (const std::string& dtype : d.dtypes) {
        const auto at = testee.worst.find({tensor, dtype});
        if (at == testee.worst.end()) continue;
        const TensorEvidence& e = *at->second.evidence;
        out += row({code(testee.about.name, true), code(element_text(tensor, e), true),
                    prose(dtype), code(at->second.verdict->case_id, true), ratio_text(e.max_ratio),
                    number_text(e.actual), number_text(e.exact), number_text(e.bound)});
      }
    }
  }
  return out;
}

// A row for each feature, a column for each gradient: the worst ratio and how many directions.
std::string slopes_table(const TesteeDigest& testee) {
  std::vector<std::string> features;
  std::vector<TensorName> tensors;
  for (const auto& [key, slope] : testee.slopes) {
    if (features.empty() || features.back() != key.first) features.push_back(key.first);
    if (std::find(tensors.begin(), tensors.end(), key.second) == tensors.end()) {
      tensors.push_back(key.second);
    }
  }
  std::vector<std::string> titles = {"feature"};
  for (const TensorName tensor : tensors) titles.emplace_back(name(tensor));
  std::string out = head(titles, 1);
  for (const std::string& feature : features) {
    std::vector<std::string> cells = {prose(feature)};
    for (const TensorName tensor : tensors) {
      const auto at = testee.slopes.find({feature, tensor});
      cells.push_back(at == testee.slopes.end()
                          ? "–"
                          : fmt::format("{} ({})", ratio_text(at->second.worst), at->second.count));
    }
    out += row(cells);
  }
  return out;
}

// Cases that leave out more than a tenth of a tensor; empty if none does.
std::string left_out_list(const Record& record) {
  std::string out;
  std::set<std::string> named;
  for (const VerdictRecord& v : record.verdicts) {
    for (const auto& [tensor, e] : v.verdict.tensors) {
      const Index all = e.compared + e.unspecified;
      if (e.unspecified * 10 <= all || !named.insert(v.case_id).second) continue;
      out += fmt::format("- {}: {} of {} elements of {}\n", code(v.case_id), e.unspecified, all,
                         prose(name(tensor)));
    }
  }
  return out;
}

std::string failure_item(const Digest& d, const VerdictRecord& record) {
  const Verdict& v = record.verdict;
  std::string out = fmt::format("- **{}**", prose(name(v.outcome)));
  if (!v.reason.empty()) out += fmt::format(" ({})", prose(v.reason));
  if (const std::string clause = headline_clause(v); !clause.empty()) {
    out += fmt::format(" {}", prose(clause));
  }
  out += fmt::format(", {}: {}", code(record.testee), code(record.case_id));
  if (!v.message.empty()) out += fmt::format("  \n  {}", prose(excerpt(v.message)));
  if (const KnownFailure* known = known_of(d, record)) {
    out += fmt::format("  \n  {}", prose(known_text(*known)));
  }
  if (!v.repro.empty()) out += fmt::format("  \n  {}", code(v.repro));
  return out + "\n";
}

// The simplest of those that are alike, with what it is about.
std::string simplest_item(const Digest& d, const FailureGroup& group) {
  const VerdictRecord& record = group.simplest();
  const std::string clause = headline_clause(record.verdict), others = others_text(group);
  std::string out = failure_item(d, record);
  if (!clause.empty()) out += fmt::format("  - {}\n", prose(clause_with_title(clause)));
  if (!record.problem.empty()) out += fmt::format("  - problem: {}\n", prose(record.problem));
  if (!record.because.empty())
    out += fmt::format("  - the case hunts: {}\n", prose(record.because));
  const std::string diagnosis = diagnosis_line(d, group);
  if (!diagnosis.empty()) out += fmt::format("  - {}\n", prose(diagnosis));
  if (!others.empty()) out += fmt::format("  - {}\n", prose(others));
  return out;
}

}  // namespace

std::string to_summary_markdown(const Record& record) {
  const Digest d = digest(record);
  std::string out = fmt::format("# Attest report\n\n**{}**\n\n", prose(d.sentence));
  for (const std::string& note : d.notes) out += fmt::format("{}\n\n", prose(note));
  out += what_was_run(record, d);
  out += "\n## Verdicts\n\n" + counts_table(d);
  out += "\n## Profiles\n\n" + profiles_table(d);
  out += "\n## Declared\n\n" + declared_list(d);
  out += "\n## Worst ratios\n\nThe distance to the exact value over the bound; above 1 fails.\n\n" +
         worst_table(d);
  for (const TesteeDigest& testee : d.testees) {
    if (testee.slopes.empty()) continue;
    out += fmt::format(
        "\n## Gradients of {} against finite differences\n\nHow far sums along directions are "
        "from differences of the exact loss, over what is allowed (how many).\n\n",
        code(testee.about.name, true));
    out += slopes_table(testee);
  }
  if (const std::string left_out = left_out_list(record); !left_out.empty()) {
    out +=
        "\n## Left out\n\nCases of which more than a tenth of a tensor may be anything: it depends "
        "on "
        "a NaN, or on a sum that may overflow.\n\n" +
        left_out;
  }
  out += fmt::format("\n## Failures: {}\n", d.failures.size());
  if (!d.failures.empty()) out += '\n';
  const std::vector<FailureGroup> groups = failure_groups(d);
  for (const FailureGroup& group : groups) out += simplest_item(d, group);
  if (groups.size() < d.failures.size()) out += "\n### All of them\n\n";
  if (groups.size() == d.failures.size()) return out;
  for (const VerdictRecord* failure : d.failures) out += failure_item(d, *failure);
  return out;
}

}  // namespace attest
