#include "reports/html_matrices.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "reports/html_parts.h"
#include "reports/text.h"
#include "spec/clause.h"

namespace attest::html {
namespace {

// What stands in the matrix for one clause and one testee.
Markup clause_cell(const ClauseDigest& clause) {
  const Counts& counts = clause.counts;
  const Index cases = total(counts);
  const Index failed = failures_in(counts);
  const Index refused = count_of(counts, Outcome::unsupported);
  const Index passed = count_of(counts, Outcome::pass) + count_of(counts, Outcome::warn);
  const std::string hover = counts_text(counts);
  const auto cell = [&](const char* style, const Markup& content) {
    return element("td", {{"class", style}, {"title", hover}}, content);
  };
  if (failed > 0) {
    Markup links;
    for (const std::size_t i : clause.failures) {
      links += element("a", {{"href", fmt::format("#{}", anchor(i))}}, std::to_string(i + 1)) +
               Markup(" ");
    }
    const std::string text =
        clause.broken > 0
            ? fmt::format("broken by {} of {}", clause.broken, count_text(cases, "case"))
            : fmt::format("{} of {} not judged", failed, count_text(cases, "case"));
    return cell(clause.broken > 0 ? "bad" : "warn",
                element("details", {}, element("summary", {}, text), links));
  }
  if (refused == cases) return cell("mute", "unsupported");
  std::string text = fmt::format("{} passed", passed);
  if (clause.missed > 0) text += fmt::format(", {} with a warning", clause.missed);
  if (refused > 0) text += fmt::format(", {} unsupported", refused);
  return cell(clause.missed > 0 ? "warn" : "good", text);
}

}  // namespace

Markup clause_matrix(const Digest& d) {
  if (d.clauses.empty()) return quiet("No case cited a clause.");
  Markup head = title("Clause") + title("Level") + title("");
  for (const TesteeDigest& testee : d.testees) head += title(testee.about.name);
  Markup rows;
  for (const std::string& id : d.clauses) {
    const Clause* clause = find_clause(id);
    Markup row =
        id_cell(id) +
        element("td", {{"class", "quiet"}}, clause ? std::string(name(clause->level)) : "") +
        element("td", {}, clause ? std::string(clause->title) : "");
    for (const TesteeDigest& testee : d.testees) {
      const auto at = testee.clauses.find(id);
      row += at == testee.clauses.end() ? element("td", {{"class", "mute"}}, "–")
                                        : clause_cell(at->second);
    }
    rows += element("tr", {}, row);
  }
  std::vector<std::string> untried;
  for (const Clause& clause : clauses()) {
    if (std::find(d.clauses.begin(), d.clauses.end(), clause.id) == d.clauses.end()) {
      untried.emplace_back(clause.id);
    }
  }
  Markup out = quiet(
                   "Broken: a case failed and names this clause. Not judged: a case that cites it "
                   "failed by another clause, or came to no verdict. The numbers lead to the "
                   "failures.") +
               table(head, rows);
  if (!untried.empty())
    out += quiet(fmt::format("Not tried in this run: {}.", list_text(untried, "")));
  return out;
}

Markup worst_ratios(const Digest& d) {
  Markup rows;
  for (const TensorName tensor : d.tensors) {
    for (const std::string& dtype : d.dtypes) {
      for (const TesteeDigest& testee : d.testees) {
        const auto at = testee.worst.find({tensor, dtype});
        if (at == testee.worst.end()) continue;
        const TensorEvidence& e = *at->second.evidence;
        rows += element("tr", {}, id_cell(std::string(name(tensor))), element("td", {}, dtype),
                        id_cell(testee.about.name),
                        element("td", {{"class", e.max_ratio <= 1 ? "number" : "number bad"}},
                                ratio_text(e.max_ratio)),
                        number(number_text(e.actual)), number(number_text(e.exact)),
                        number(number_text(e.bound)), id_cell(element_text(tensor, e)),
                        id_cell(at->second.verdict->case_id));
      }
    }
  }
  if (rows.empty()) return quiet("Nothing was compared.");
  return quiet(
             "The distance of an element from the exact value, over the bound proven for it. At "
             "most 1 is correct; the closer to 1, the more of the allowed error is used.") +
         table(title("Tensor") + title("Format") + title("Testee") + number_title("ratio") +
                   number_title("actual") + number_title("exact") + number_title("bound") +
                   title("Element") + title("Case"),
               rows);
}

Markup slopes(const Digest& d) {
  Markup rows;
  for (const TesteeDigest& testee : d.testees) {
    for (const auto& [key, slope] : testee.slopes) {
      const auto& [feature, tensor] = key;
      const SlopeEvidence& e = *slope.evidence;
      rows += element("tr", {}, id_cell(testee.about.name), id_cell(feature),
                      id_cell(std::string(name(tensor))), number(std::to_string(slope.count)),
                      element("td", {{"class", slope.worst <= 1 ? "number" : "number bad"}},
                              ratio_text(slope.worst)),
                      number(number_text(e.analytic)), number(number_text(e.difference)),
                      number(number_text(e.allowed)), id_cell(slope.verdict->case_id));
    }
  }
  if (rows.empty()) return quiet("No case of this run compared gradients with differences.");
  return quiet(
             "The sum of a gradient along a direction, beside the central difference of the exact "
             "loss along it. How far they are apart, over what the bounds of the gradient's "
             "elements and "
             "the difference's own error allow; of each row the worst.") +
         table(title("Testee") + title("Feature") + title("Gradient") + number_title("directions") +
                   number_title("ratio") + number_title("analytic") + number_title("difference") +
                   number_title("allowed") + title("Case"),
               rows);
}

}  // namespace attest::html
