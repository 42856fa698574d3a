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

struct CellWords {
  const char* tone;
  std::string brief, whole;
};

// What stands in the matrix for one clause and one testee.
CellWords words_of(const ClauseDigest& clause) {
  const Counts& counts = clause.counts;
  const Index cases = total(counts);
  const Index failed = failures_in(counts);
  const Index refused = count_of(counts, Outcome::unsupported);
  const Index passed = count_of(counts, Outcome::pass) + count_of(counts, Outcome::warn);
  const std::string all = count_text(cases, "case");
  if (clause.broken > 0) {
    return {"bad", fmt::format("✗ {}/{}", clause.broken, cases),
            fmt::format("broken by {} of {}", clause.broken, all)};
  }
  if (failed > 0) {
    return {"warn", fmt::format("? {}/{}", failed, cases),
            fmt::format("{} of {} not judged", failed, all)};
  }
  if (refused == cases) return {"mute", "–", "unsupported"};
  std::string text = fmt::format("{} passed", passed), brief = std::to_string(passed);
  if (clause.missed > 0) {
    text += fmt::format(", {} with a warning", clause.missed);
    brief = fmt::format("! {}/{}", clause.missed, passed);
  }
  if (refused > 0) text += fmt::format(", {} unsupported", refused);
  return {clause.missed > 0 ? "warn" : "good", brief, text};
}

Markup clause_cell(const std::string& id, const std::string& testee, const ClauseDigest& clause) {
  const CellWords words = words_of(clause);
  return element("td", {{"class", words.tone}},
                 cases_anchor({{"clause", id}, {"testee", testee}},
                              fmt::format("{}, {}: {}", id, testee, words.whole), words.brief));
}

Markup testee_titles(const Digest& d) {
  Markup titles;
  for (const TesteeDigest& testee : d.testees) {
    titles += element("th", {{"scope", "col"}, {"class", "testee"}},
                      element("span", {}, testee.about.name));
  }
  return titles;
}

// Of many testees the names stand upright, so that the columns are narrow.
Markup matrix(const Digest& d, std::string_view label, const Markup& head, const Markup& rows) {
  constexpr std::size_t kFew = 6;
  const char* const style = d.testees.size() > kFew ? "scroll matrix narrow" : "scroll matrix";
  return scrolling(style, label,
                   element("table", {}, element("thead", {}, element("tr", {}, head)),
                           element("tbody", {}, rows)));
}

Markup none() { return element("td", {{"class", "mute"}}, "–"); }

Markup row_title(const std::string& id, const std::string& title, const std::string& more) {
  return element("th", {{"scope", "row"}}, code(id),
                 title.empty() ? Markup() : Markup(" ") + element("span", {}, title),
                 more.empty() ? Markup() : Markup(" ") + element("small", {}, more));
}

}  // namespace

Markup clause_matrix(const Digest& d) {
  if (d.clauses.empty()) return quiet("No case cited a clause.");
  const Markup head = title("Clause") + testee_titles(d);
  Markup rows;
  for (const std::string& id : d.clauses) {
    const Clause* clause = find_clause(id);
    const bool is_usual = !clause || clause->level == Level::required;
    Markup row = row_title(id, clause ? std::string(clause->title) : "",
                           is_usual ? "" : std::string(name(clause->level)));
    for (const TesteeDigest& testee : d.testees) {
      const auto at = testee.clauses.find(id);
      row += at == testee.clauses.end() ? none() : clause_cell(id, testee.about.name, at->second);
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
                   "How many cases passed that cite the clause. ✗: so many of them failed and name "
                   "it. ?: failed by another clause, or came to no verdict. !: passed with a "
                   "warning. –: not tried, or unsupported. Each leads to its cases.") +
               matrix(d, "Clauses and testees", head, rows);
  if (!untried.empty())
    out += quiet(fmt::format("Not tried in this run: {}.", list_text(untried, "")));
  return out;
}

Markup worst_ratios(const Digest& d) {
  Markup rows;
  for (const TensorName tensor : d.tensors) {
    for (const std::string& dtype : d.dtypes) {
      Markup cells;
      bool some = false;
      for (const TesteeDigest& testee : d.testees) {
        const auto at = testee.worst.find({tensor, dtype});
        some |= at != testee.worst.end();
        if (at == testee.worst.end()) {
          cells += none();
          continue;
        }
        const std::string ratio = ratio_text(at->second.evidence->max_ratio);
        const VerdictRecord& verdict = *at->second.verdict;
        const bool within = at->second.evidence->max_ratio <= 1;
        cells += element("td", {{"class", within ? "number" : "number bad"}},
                         cases_anchor({{"case", verdict.case_id}, {"of", testee.about.name}},
                                      fmt::format("{} in {}, {}: {}", name(tensor), dtype,
                                                  testee.about.name, ratio),
                                      ratio));
      }
      if (some) rows += element("tr", {}, row_title(std::string(name(tensor)), dtype, ""), cells);
    }
  }
  if (rows.empty()) return quiet("Nothing was compared.");
  return quiet(
             "The distance of an element from the exact value, over the bound proven for it. At "
             "most 1 is correct; the closer to 1, the more of the allowed error is used. Each "
             "leads to its case, with the element.") +
         matrix(d, "Worst ratios", title("Tensor") + testee_titles(d), rows);
}

Markup slopes(const Digest& d) {
  Markup rows;
  for (const TensorName tensor : kGradients) {
    Markup cells;
    bool some = false;
    for (const TesteeDigest& testee : d.testees) {
      const SlopeDigest* worst = nullptr;
      for (const auto& [key, slope] : testee.slopes) {
        if (key.second != tensor) continue;
        if (!worst || worse(slope.worst, worst->worst)) worst = &slope;
      }
      some |= worst != nullptr;
      if (!worst) {
        cells += none();
        continue;
      }
      const std::string ratio = ratio_text(worst->worst);
      cells += element(
          "td", {{"class", worst->worst <= 1 ? "number" : "number bad"}},
          cases_anchor({{"case", worst->verdict->case_id}, {"of", testee.about.name}},
                       fmt::format("{}, {}: {}", name(tensor), testee.about.name, ratio), ratio));
    }
    if (some) rows += element("tr", {}, row_title(std::string(name(tensor)), "", ""), cells);
  }
  if (rows.empty()) return quiet("No case of this run compared gradients with differences.");
  return quiet(
             "The sum of a gradient along a direction, beside the central difference of the exact "
             "loss along it. How far they are apart, over what the bounds of the gradient's "
             "elements and the difference's own error allow; the worst of all.") +
         matrix(d, "Gradients beside differences", title("Gradient") + testee_titles(d), rows);
}

}  // namespace attest::html
