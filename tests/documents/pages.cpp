#include "tests/documents/pages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <regex>
#include <set>
#include <stdexcept>
#include <vector>

#include "cases/case.h"
#include "spec/arithmetic.h"
#include "spec/clause.h"
#include "spec/dtype.h"
#include "spec/feature.h"
#include "spec/profile.h"
#include "tests/documents/document.h"
#include "tests/mutants/catalogue.h"

namespace attest::documents {
namespace {

// A heading as GitHub makes an anchor of it.
std::string anchor_of(const std::string& heading) {
  std::string anchor;
  for (const char c : heading) {
    if (c == ' ' || c == '-') anchor += '-';
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') {
      anchor += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return anchor;
}

// ---- The index of SPEC.md -----------------------------------------------------------------------

// "SHAPE-1, SHAPE-2, LAYOUT-1 to LAYOUT-5": each topic by its first and its last clause.
std::string ranges_of(const std::vector<std::string>& labels) {
  const auto topic = [](const std::string& label) { return label.substr(0, label.find('-')); };
  std::vector<std::string> ranges;
  for (std::size_t i = 0; i < labels.size();) {
    std::size_t last = i;
    while (last + 1 < labels.size() && topic(labels[last + 1]) == topic(labels[i])) ++last;
    const char* between = last == i + 1 ? ", " : " to ";
    ranges.push_back(last == i ? labels[i] : labels[i] + between + labels[last]);
    i = last + 1;
  }
  return fmt::format("{}", fmt::join(ranges, ", "));
}

// What the index has of a chapter, by its lines: "" where nothing.
using Items = std::string (*)(const std::vector<std::string>& lines);

std::string clauses_of(const std::vector<std::string>& lines) {
  std::vector<std::string> labels;
  for (const std::string& line : lines) {
    if (line.starts_with("### ")) labels.push_back(line.substr(4, line.find(" — ") - 4));
  }
  return ranges_of(labels);
}

// What its paragraphs begin with: "**The score.** ..." and "**R**, the number of ...".
std::string subjects_of(const std::vector<std::string>& lines) {
  static const std::regex begin(R"(\*\*([^*]+?)\.?\*\*.*)");
  std::vector<std::string> subjects;
  std::smatch match;
  for (const std::string& line : lines) {
    if (std::regex_match(line, match, begin)) subjects.push_back(match[1]);
  }
  return fmt::format("{}", fmt::join(subjects, "; "));
}

// An item of a list, in lines that fit.
std::string wrapped(const std::string& item) {
  constexpr std::size_t kColumns = 100;
  std::string text, line;
  for (const std::string& word : words_of(item)) {
    if (!line.empty() && width_of(line) + 1 + width_of(word) > kColumns) {
      text += line + "\n";
      line = " ";
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return text + line + "\n";
}

std::string index_of(const std::string& page, Items items) {
  std::string index;
  std::string name;
  std::vector<std::string> lines;
  const auto close = [&] {
    if (name.empty() || name == "Index") return;
    const std::string what = items(lines);
    index += wrapped(
        fmt::format("- [{}](#{}){}{}", name, anchor_of(name), what.empty() ? "" : ": ", what));
  };
  for (const std::string& line : lines_of(page)) {
    if (!line.starts_with("## ")) {
      lines.push_back(line);
      continue;
    }
    close();
    name = line.substr(3);
    lines.clear();
  }
  close();
  return index;
}

// ---- The formats of NUMERICS.md -----------------------------------------------------------------

std::string power_text(int exponent) {
  static const std::vector<std::string> digits = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string text = exponent < 0 ? "2⁻" : "2";
  for (const char c : std::to_string(std::abs(exponent))) text += digits.at(std::size_t(c - '0'));
  return text;
}

// "2⁻²⁴", "1.125 · 2⁻²²".
std::string power_text(double value) {
  const int exponent = std::ilogb(value);
  const double factor = std::ldexp(value, -exponent);
  return (factor == 1 ? "" : fmt::format("{} · ", factor)) + power_text(exponent);
}

std::string format_table() {
  std::string table = "|";
  for (const DType dtype : kDTypes) table += fmt::format(" | {}", name(dtype));
  table += " |\n|---|";
  for (std::size_t i = 0; i < kDTypes.size(); ++i) table += "---|";
  const auto row = [&](const char* what, const auto& cell) {
    table += fmt::format("\n| {}", what);
    for (const DType dtype : kDTypes) table += " | " + cell(dtype, loosest(dtype));
    table += " |";
  };
  const auto narrowing = [](const Narrowing& to) {
    return to.roundoff == 0 ? "0" : power_text(to.roundoff) + ", " + power_text(to.underflow);
  };
  using Loosest = const Arithmetic&;
  row("u of the format, to the nearest",
      [](DType dtype, Loosest) { return power_text(unit_roundoff(dtype)); });
  row("η, half its smallest subnormal number", [](DType dtype, Loosest) {
    const Format format = format_of(dtype);  // that of f64 is no double
    return power_text(format.min_exponent - format.digits);
  });
  row("its smallest normal number",
      [](DType dtype, Loosest) { return power_text(smallest_normal(dtype)); });
  row("undeclared: u, of accumulators",
      [](DType, Loosest a) { return power_text(a.dk.accumulator_roundoff); });
  row("undeclared: u_s", [](DType, Loosest a) { return power_text(a.softmax_roundoff); });
  row("undeclared: e_x", [](DType, Loosest a) { return power_text(a.exp_error); });
  row("undeclared: e_t", [](DType, Loosest a) { return power_text(a.tanh_error); });
  row("undeclared: u_p, η_p", [&](DType, Loosest a) { return narrowing(a.p); });
  row("undeclared: u_dS, η_dS", [&](DType, Loosest a) { return narrowing(a.ds); });
  row("undeclared: u_out", [](DType dtype, Loosest a) {
    const double ulps = a.output_rounding == Rounding::nearest ? 1 : 2;  // in half units
    return power_text(ulps * unit_roundoff(dtype));
  });
  return table + "\n";
}

// ---- The table of clauses -----------------------------------------------------------------------

std::string heading_of(const std::string& spec, std::string_view clause) {
  const std::size_t at = spec.find(fmt::format("\n### {} — ", clause));
  if (at == std::string::npos) throw std::runtime_error(fmt::format("SPEC.md lacks {}", clause));
  const std::size_t heading = at + std::strlen("\n### ");
  return spec.substr(heading, spec.find('\n', heading) - heading);
}

std::string features_named(std::string_view clause) {
  std::vector<std::string> names;
  for (const Feature* feature : features_with(clause)) {
    if (feature->key == kOfFeatures) names.push_back(fmt::format("`{}`", feature->name));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string profile_of(std::string_view clause) {
  for (const Profile& profile : profiles()) {
    const auto& ids = profile.clauses;
    if (std::find(ids.begin(), ids.end(), clause) != ids.end()) {
      return fmt::format("`{}`", profile.name);
    }
  }
  return "";
}

std::size_t count_mutants() {
  return static_cast<std::size_t>(
      std::count_if(mutants::kFaults.begin(), mutants::kFaults.end(), mutants::is_mutant));
}

std::map<std::string, int> mutants_by_clause() {
  std::map<std::string, int> count;
  for (const mutants::Fault& fault : mutants::kFaults) {
    if (!is_mutant(fault)) continue;
    for (const std::string& clause : words_of(fault.clauses)) ++count[clause];
  }
  return count;
}

std::string clause_page(const std::string& spec, const std::vector<Case>& cases) {
  std::map<std::string, int> cited;
  for (const Case& c : cases) {
    for (const std::string& clause : c.clauses) ++cited[clause];
  }
  std::map<std::string, int> violated = mutants_by_clause();
  std::string page = fmt::format(
      "# Clauses\n\n"
      "All {} clauses of [SPEC.md](SPEC.md). Cases are those of the full tier that cite the "
      "clause,\n"
      "mutants the kernels of `tests/mutants/catalogue.h` that violate it. Cases cite whole "
      "clauses; `attest explain "
      "DROP-1` names them, and\n`attest explain DROP-1.3` says what the third sentence is. This "
      "page is written by\n"
      "`build/release/tests/documents_pages --write`; a test fails when it is stale.\n\n"
      "| clause | what it says | level | profile | feature | cases | mutants |\n"
      "|---|---|---|---|---|--:|--:|\n",
      clauses().size());
  for (const Clause& clause : clauses()) {
    const std::string id(clause.id);
    page += fmt::format("| [{}](SPEC.md#{}) | {} | {} | {} | {} | {} | {} |\n", id,
                        anchor_of(heading_of(spec, id)), clause.title, name(clause.level),
                        profile_of(id), features_named(id), cited[id], violated[id]);
  }
  return page;
}

// ---- Profiles and features of SPEC.md -----------------------------------------------------------

// In the order of the standard, whatever the order of `ids`: "LSE-1, LSE-2, LAW-1 to LAW-7".
std::string clauses_in_order(const std::set<std::string_view>& ids) {
  std::vector<std::vector<std::string>> runs;  // of clauses that follow each other
  bool follows = false;
  for (const Clause& clause : clauses()) {
    const std::string id(clause.id), topic = id.substr(0, id.find('-') + 1);
    if (!ids.contains(clause.id)) {
      follows = false;
      continue;
    }
    if (!follows || !runs.back().back().starts_with(topic)) runs.emplace_back();
    runs.back().push_back(id);
    follows = true;
  }
  std::vector<std::string> texts;
  for (const auto& run : runs) {
    texts.push_back(run.size() > 2 ? run.front() + " to " + run.back()
                                   : fmt::format("{}", fmt::join(run, ", ")));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string profile_table() {
  std::string table = "| profile | what it is of | clauses |\n|---|---|---|\n";
  std::set<std::string_view> rest;
  for (const Clause& clause : clauses()) rest.insert(clause.id);
  for (const Profile& profile : profiles()) {
    table += fmt::format("| `{}` | {} | {} |\n", profile.name, profile.about,
                         clauses_in_order({profile.clauses.begin(), profile.clauses.end()}));
    for (const std::string_view id : profile.clauses) rest.erase(id);
  }
  return table + fmt::format("| none | | {} |\n", clauses_in_order(rest));
}

std::string feature_table() {
  std::string table = "| feature | a problem needs it when | clauses |\n|---|---|---|\n";
  for (const Feature& feature : features()) {
    if (feature.key != kOfFeatures) continue;
    std::set<std::string_view> ids;
    for (const auto& demand : feature.demands()) ids.insert(demand.clause);
    table += fmt::format("| `{}` | {} | {} |\n", feature.name, feature.needed_when,
                         clauses_in_order(ids));
  }
  return table;
}

// ---- The figures of README.md -------------------------------------------------------------------

std::string figures(const std::vector<Case>& cases) {
  const auto up_to = [&](Tier tier) {
    return std::count_if(cases.begin(), cases.end(), [&](const Case& c) { return c.tier <= tier; });
  };
  const auto restating =
      std::count_if(mutants::kFaults.begin(), mutants::kFaults.end(),
                    [](const mutants::Fault& fault) { return fault.reference[0] != '\0'; });
  return fmt::format(
      "| clauses | profiles | cases: smoke, standard, full tier | mutants | of reported faults |\n"
      "|--:|--:|--:|--:|--:|\n"
      "| [{}](spec/CLAUSES.md) | {} | {}, {}, {} | {} | {} |\n",
      clauses().size(), profiles().size(), up_to(Tier::smoke), up_to(Tier::standard),
      up_to(Tier::full), count_mutants(), restating);
}

// ---- The rules of other projects, in three lines ------------------------------------------------

// A row of a table of reports/CRITERIA.md: "| ggml | 175 of 1363 (13 %) | ... | 0 of 219 |".
struct Rule {
  std::string name;
  int caught;  // in percent
  int failed;  // legitimate kernels
};

std::vector<Rule> rules_in(const std::string& text) {
  static const std::regex row(
      R"(\| ([^|]+) \| \d+ of \d+ \((\d+) %\) \|(?: [^|]* \|)? (\d+) of \d+ \|)");
  std::vector<Rule> rules;
  std::smatch match;
  for (const std::string& line : lines_of(text)) {
    if (std::regex_match(line, match, row)) {
      rules.push_back({match[1], std::stoi(match[2]), std::stoi(match[3])});
    }
  }
  return rules;
}

struct Comparison {
  int rules = 0, failing = 0;  // of other projects; those that fail legitimate kernels
  int least = 100, most = 0;   // that they catch, in percent
  Rule attest = {};
};

Comparison comparison_in(const std::string& text) {
  Comparison c;
  for (const Rule& rule : rules_in(text)) {
    if (rule.name == "Attest") c.attest = rule;
    if (rule.name.starts_with("Attest")) continue;
    ++c.rules;
    c.failing += rule.failed > 0;
    c.least = std::min(c.least, rule.caught);
    c.most = std::max(c.most, rule.caught);
  }
  if (c.rules == 0 || c.attest.name.empty()) {
    throw std::runtime_error("reports/CRITERIA.md has a table without rules, or without Attest");
  }
  return c;
}

// Of how many mutants the page is, and how many there are if that is another number.
std::string of_mutants(const std::string& page) {
  static const std::regex made_of("The catalogue had (\\d+) mutants[.]");
  std::smatch match;
  if (!std::regex_search(page, match, made_of)) {
    throw std::runtime_error("reports/CRITERIA.md does not say how many mutants there were");
  }
  const bool is_current = match[1] == std::to_string(count_mutants());
  return is_current
             ? fmt::format("of {} mutants", match[1].str())
             : fmt::format("of {} mutants, before there were {}", match[1].str(), count_mutants());
}

std::string criteria_lines() {
  const std::string page = contents("reports/CRITERIA.md");
  const Comparison theirs = comparison_in(chapter(page, "On what those projects try")),
                   ours = comparison_in(chapter(page, "On cases of Attest"));
  const auto line = [](const char* what, const Comparison& c) {
    return fmt::format("| {} | {} to {} % | {} % |\n", what, c.least, c.most, c.attest.caught);
  };
  return fmt::format(
             "| [rule by rule](reports/CRITERIA.md), {} | {} rules of other projects | Attest |\n",
             of_mutants(page), theirs.rules) +
         "|---|--:|--:|\n" + line("mutants caught, on what those projects try", theirs) +
         line("mutants caught, on cases of Attest", ours) +
         fmt::format("| rules that fail correct kernels there, and here | {}, {} | {}, {} |\n",
                     theirs.failing, ours.failing, theirs.attest.failed > 0 ? 1 : 0,
                     ours.attest.failed > 0 ? 1 : 0);
}

}  // namespace

std::map<std::string, std::string> written_pages() {
  const std::string spec = contents("spec/SPEC.md");
  const std::vector<Case> cases = load_cases(std::string(ATTEST_SOURCE_DIR) + "/cases");
  const std::string tables =
      with_part(with_part(spec, "profiles", profile_table()), "features", feature_table());
  const std::string numerics = contents("spec/NUMERICS.md");
  return {{"spec/SPEC.md", with_part(tables, "index", index_of(spec, clauses_of))},
          {"spec/NUMERICS.md", with_part(with_part(numerics, "formats", format_table()), "index",
                                         index_of(numerics, subjects_of))},
          {"spec/CLAUSES.md", clause_page(spec, cases)},
          {"README.md", with_part(with_part(contents("README.md"), "figures", figures(cases)),
                                  "criteria", criteria_lines())}};
}

}  // namespace attest::documents
