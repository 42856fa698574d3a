#include "reports/html_failures.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "reports/html_parts.h"
#include "reports/standard.h"
#include "reports/text.h"
#include "spec/clause.h"

namespace attest::html {
namespace {

constexpr std::size_t kShownGroups = 60, kShownFailures = 100, kShownSayings = 150;

Markup evidence_table(const Digest& d, const std::map<TensorName, TensorEvidence>& tensors) {
  Markup rows;
  for (const TensorName tensor : d.tensors) {
    const auto at = tensors.find(tensor);
    if (at == tensors.end()) continue;
    const TensorEvidence& e = at->second;
    const bool within = e.max_ratio <= 1;
    rows += element(
        "tr", {}, id_cell(element_text(tensor, e)), number(number_text(e.actual)),
        number(number_text(e.exact)), number(number_text(e.bound)),
        element("td", {{"class", within ? "number" : "number bad"}}, ratio_text(e.max_ratio)),
        number(ratio_text(e.rms)),
        number(e.elements > e.compared ? fmt::format("{} of {}", e.compared, e.elements)
                                       : std::to_string(e.compared)));
  }
  return table("Worst elements",
               title("Worst element") + number_title("actual") + number_title("exact") +
                   number_title("bound") + number_title("ratio") + number_title("rms error") +
                   number_title("compared"),
               rows);
}

Markup clause_phrase(const std::string& id) {
  const Clause* clause = find_clause(id);
  return code(id) + Markup(clause ? fmt::format(" {}", clause->title) : "");
}

// What the standard says of a clause, up to where it tells of others.
Markup clause_text(const std::string& id) {
  std::string text(text_of_clause(id));
  if (text.empty()) return {};
  text = text.substr(0, text.find("\n**Elsewhere.**"));
  for (auto at = text.find("**"); at != text.npos; at = text.find("**", at)) text.erase(at, 2);
  return element("details", {}, element("summary", {}, fmt::format("What {} says", id)),
                 element("div", {{"class", "clause"}}, text));
}

Markup failure_facts(const Digest& d, const VerdictRecord& record) {
  const Verdict& v = record.verdict;
  Markup list;
  if (!record.problem.empty()) list += fact("Problem", record.problem);
  if (!record.because.empty()) list += fact("The case hunts", record.because);
  if (const auto at = d.diagnoses.find(&record); at != d.diagnoses.end()) {
    list += fact("Did you mean", diagnosis_text(*at->second));
  }
  if (const KnownFailure* known = known_of(d, record)) list += fact("Known", known_text(*known));
  list += fact("Testee", code(record.testee)) + fact("Format", record.dtype);
  if (!v.reason.empty()) list += fact("Reason", v.reason);
  for (const std::string& id : cited_clauses(v)) list += fact("Clause", clause_phrase(id));
  return element("dl", {{"class", "facts"}}, list, fact("Time", duration_text(v.wall_s)));
}

Markup failure_details(const Digest& d, const VerdictRecord& record, std::size_t number,
                       std::size_t place) {
  const Verdict& v = record.verdict;
  Markup summary = badge(v.outcome) + Markup(" ") + code(record.case_id);
  if (!v.message.empty()) summary += Markup(": ") + Markup(excerpt(v.message, 300));
  if (known_of(d, record)) summary += Markup(" (known)");
  Markup body = failure_facts(d, record);
  if (!v.tensors.empty()) body += evidence_table(d, v.tensors);
  body += element("div", {{"class", "pictures"}, {"data-at", std::to_string(place)}}, "");
  if (!v.repro.empty()) {
    body += Markup("Repeat it with") + block(element("code", {{"class", "repro"}}, v.repro));
  }
  if (!v.captured.empty()) {
    body += Markup("What the testee printed") + block(excerpt(v.captured, 2000));
  }
  Markup attributes = attributes_of({{"class", "failure"}, {"id", anchor(number)}});
  if (number == 0) attributes += Markup(" open");
  return element_of("details", attributes,
                    element("summary", {}, summary) + element("div", {}, body));
}

Markup group_heading(const FailureGroup& group) {
  const VerdictRecord& first = group.simplest();
  const Verdict& v = first.verdict;
  Markup heading = badge(v.outcome) + Markup(" ") + code(first.testee);
  if (const std::string clause = headline_clause(v); !clause.empty()) {
    heading += Markup(v.outcome == Outcome::fail ? " breaks " : " on ") + clause_phrase(clause);
  }
  return element("h3", {}, heading);
}

Markup group_section(const Digest& d, const FailureGroup& group, std::size_t group_number,
                     const Markup& shown, std::size_t shown_count) {
  const VerdictRecord& first = group.simplest();
  const std::string all = count_text(std::ssize(group.failures), "case");
  Markup text = fmt::format("{} of this kind, in {}. ", all, list_text(group.dtypes, ""));
  const std::string number = std::to_string(group_number + 1);
  if (shown_count < group.failures.size()) {
    text += element("a", {{"href", cases_link({{"group", number}})}},
                    fmt::format("All {} in the table of cases", group.failures.size()));
  }
  Markup meant;
  if (const std::string words = diagnosis_line(d, group); !words.empty()) {
    constexpr std::string_view kBefore = "diagnosis: ";
    meant = element("p", {{"class", "meant"}}, element("b", {}, "Did you mean: "),
                    words.substr(kBefore.size()));
  }
  return element("section", {{"class", "group"}, {"id", "group-" + number}}, group_heading(group),
                 element("p", {{"class", "quiet"}}, text), meant,
                 clause_text(headline_clause(first.verdict)), shown);
}

}  // namespace

Markup failures(const Digest& d, const std::vector<FailureGroup>& groups,
                const page::Columns& columns) {
  if (d.failures.empty()) return quiet("None.");
  const std::vector<const VerdictRecord*> told = page::told_first(groups, kShownFailures);
  const std::set<const VerdictRecord*> shown(told.begin(), told.end());
  Markup out;
  std::size_t number = 0;
  for (std::size_t g = 0; g < std::min(kShownGroups, groups.size()); ++g) {
    Markup list;
    std::size_t count = 0;
    for (const VerdictRecord* failure : groups[g].failures) {
      if (!shown.contains(failure)) break;
      list += failure_details(d, *failure, number++, columns.place_of(*failure));
      ++count;
    }
    out += group_section(d, groups[g], g, list, count);
  }
  if (groups.size() > kShownGroups) {
    out += element(
        "p", {},
        fmt::format("{} more are ", count_text(std::ssize(groups) - kShownGroups, "group")),
        element("a", {{"href", cases_link({{"outcome", "failures"}})}}, "in the table of cases"),
        ".");
  }
  return out;
}

Markup refusals_and_warnings(const Digest& d, const page::Columns& columns) {
  struct Said {
    std::string words;
    std::size_t number;
    Index cases = 0;
    std::set<std::string> testees = {};
  };
  std::map<std::pair<Outcome, std::string>, Said> all;
  for (const TesteeDigest& testee : d.testees) {
    for (const VerdictRecord* record : testee.verdicts) {
      const Verdict& v = record->verdict;
      if (v.outcome != Outcome::warn && v.outcome != Outcome::unsupported) continue;
      const std::string before = v.reason.empty() || v.message.empty() ? v.reason : v.reason + ": ";
      const std::string words = before + excerpt(v.message, 300);
      Said& said =
          all.try_emplace({v.outcome, words}, Said{words, columns.said_of(v)}).first->second;
      ++said.cases;
      said.testees.insert(testee.about.name);
    }
  }
  if (all.empty()) return quiet("None.");
  Markup rows;
  std::size_t shown = 0;
  for (const auto& [key, said] : all) {
    if (++shown > kShownSayings) break;
    const std::string outcome(name(key.first));
    const std::string words = said.words.empty() ? "no reason given" : said.words;
    rows +=
        element("tr", {}, element("td", {}, badge(key.first)), element("td", {}, words),
                element("td", {{"class", "number"}},
                        cases_anchor({{"outcome", outcome}, {"said", std::to_string(said.number)}},
                                     fmt::format("{}: {}", words, count_text(said.cases, "case")),
                                     std::to_string(said.cases))),
                number(std::to_string(said.testees.size())));
  }
  return table("Warnings and refusals",
               title("Outcome") + title("What was said") + number_title("Cases") +
                   number_title("Testees"),
               rows) +
         (all.size() > kShownSayings
              ? quiet(fmt::format("{} more are in the table of cases.", all.size() - kShownSayings))
              : Markup());
}

}  // namespace attest::html
