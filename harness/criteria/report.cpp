#include "harness/criteria/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "reports/files.h"
#include "reports/html_parts.h"
#include "reports/markup.h"
#include "reports/text.h"
#include "spec/json_text.h"

namespace attest::criteria {
namespace {

using nlohmann::json;

constexpr std::array kFormats = {DType::f32, DType::f16, DType::bf16};

const Score* find(const std::map<std::string, std::map<DType, Score>>& scores,
                  const std::string& judge, DType dtype) {
  const auto by_dtype = scores.find(judge);
  if (by_dtype == scores.end()) return nullptr;
  const auto score = by_dtype->second.find(dtype);
  return score == by_dtype->second.end() ? nullptr : &score->second;
}

std::size_t wrong(const Score& s) { return s.caught.size() + s.missed.size(); }
std::size_t right(const Score& s) { return s.failed.size() + s.passed.size(); }

std::string share(std::size_t part, std::size_t all) { return fmt::format("{}/{}", part, all); }

// ---- Tables of text -----------------------------------------------------------------------------

// The rows of one side: judge, inputs, caught in each format, right kernels failed in each.
std::vector<std::vector<std::string>> rows_of(const Side& side) {
  std::vector<std::vector<std::string>> rows;
  rows.push_back({"judge", "inputs"});
  for (const DType dtype : kFormats) rows[0].push_back(fmt::format("{} caught", name(dtype)));
  for (const DType dtype : kFormats) rows[0].push_back(fmt::format("{} failed", name(dtype)));
  for (const Judge& judge : judges()) {
    const bool own = side.attest_beside.contains(judge.name);
    std::vector<std::string> row = {judge.name, own ? judge.data : "all"};
    for (const DType dtype : kFormats) {
      const Score* s = find(side.scores, judge.name, dtype);
      row.push_back(s ? share(s->caught.size(), wrong(*s)) : "-");
    }
    for (const DType dtype : kFormats) {
      const Score* s = find(side.scores, judge.name, dtype);
      row.push_back(s ? share(s->failed.size(), right(*s)) : "-");
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string heading(const Side& side) {
  return fmt::format("{} ({})", side.about, count_text(side.cases, "case"));
}

constexpr const char* kLegend =
    "Caught: kernels that are wrong on purpose, of those whose fault concerns the format. Failed: "
    "kernels that are right.";

// ---- JSON ---------------------------------------------------------------------------------------

json to_json(const Score& s) {
  return {{"wrong", wrong(s)},       {"caught", s.caught.size()}, {"missed_names", s.missed},
          {"right", right(s)},       {"failed", s.failed.size()}, {"failed_names", s.failed},
          {"caught_names", s.caught}};
}

json to_json(const Side& side) {
  json result = {{"name", side.name}, {"about", side.about}, {"cases", side.cases}};
  json& rows = result["judges"] = json::array();
  for (const Judge& judge : judges()) {
    json row = {{"name", judge.name}, {"scores", json::object()}};
    if (side.attest_beside.contains(judge.name)) row["inputs"] = judge.data;
    for (const DType dtype : kFormats) {
      const std::string format(name(dtype));
      if (const Score* s = find(side.scores, judge.name, dtype))
        row["scores"][format] = to_json(*s);
      if (const Score* s = find(side.attest_beside, judge.name, dtype)) {
        row["attest_on_the_same"][format] = {{"caught", s->caught.size()},
                                             {"failed", s->failed.size()}};
      }
    }
    rows.push_back(std::move(row));
  }
  return result;
}

// ---- The page -----------------------------------------------------------------------------------

Markup title(std::string_view text) { return element("th", {}, text); }

// A bar of what is caught, with the number beside it.
Markup caught_cell(const Score* s) {
  if (!s) return element("td", {{"class", "mute"}}, "–");
  const auto piece = [](const char* tone, std::size_t count) {
    return element("span", {{"class", tone}, {"style", fmt::format("flex: {}", count)}});
  };
  Markup pieces;
  if (!s->caught.empty()) pieces += piece("good", s->caught.size());
  if (!s->missed.empty()) pieces += piece("mute", s->missed.size());
  return element("td", {}, element("div", {{"class", "bar short"}}, pieces),
                 share(s->caught.size(), wrong(*s)));
}

Markup failed_cell(const Score* s) {
  if (!s) return element("td", {{"class", "mute"}}, "–");
  return element("td", {{"class", s->failed.empty() ? "number good" : "number bad"}},
                 share(s->failed.size(), right(*s)));
}

Markup beside_cell(const Score* s) {
  return s ? element("td", {{"class", "number"}}, share(s->caught.size(), wrong(*s)))
           : element("td", {{"class", "mute"}}, "–");
}

Markup table(const Side& side) {
  const bool beside = !side.attest_beside.empty();
  Markup head = title("Judge");
  if (beside) head += title("Inputs");
  for (const DType dtype : kFormats) head += title(fmt::format("{} caught", name(dtype)));
  for (const DType dtype : kFormats) head += title(fmt::format("{} failed", name(dtype)));
  for (const DType dtype : kFormats) {
    if (beside) head += title(fmt::format("Attest on the same, {}", name(dtype)));
  }
  Markup rows;
  for (const Judge& judge : judges()) {
    Markup row = element("td", {{"title", judge.says}}, judge.name);
    if (beside) row += element("td", {}, judge.data.empty() ? "all" : judge.data);
    for (const DType dtype : kFormats) row += caught_cell(find(side.scores, judge.name, dtype));
    for (const DType dtype : kFormats) row += failed_cell(find(side.scores, judge.name, dtype));
    for (const DType dtype : kFormats) {
      if (beside) row += beside_cell(find(side.attest_beside, judge.name, dtype));
    }
    rows += element("tr", {}, row);
  }
  return html::table(heading(side), head, rows);
}

std::string names_text(const std::set<std::string>& names) {
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

Markup names_of(const Side& side) {
  Markup out;
  for (const Judge& judge : judges()) {
    Markup list;
    for (const DType dtype : kFormats) {
      const Score* s = find(side.scores, judge.name, dtype);
      if (!s) continue;
      list += element("dt", {}, fmt::format("{} missed", name(dtype))) +
              element("dd", {}, names_text(s->missed)) +
              element("dt", {}, fmt::format("{} failed", name(dtype))) +
              element("dd", {}, names_text(s->failed));
    }
    out += element("details", {}, element("summary", {}, judge.name),
                   element("dl", {{"class", "facts"}}, list));
  }
  return out;
}

Markup rules_table() {
  Markup rows;
  for (const Judge& judge : judges()) {
    std::vector<std::string> formats;
    for (const DType dtype : judge.dtypes) formats.emplace_back(name(dtype));
    rows += element("tr", {}, element("td", {}, judge.name), element("td", {}, judge.says),
                    element("td", {}, judge.nan),
                    element("td", {}, fmt::format("{}", fmt::join(formats, ", "))),
                    element("td", {}, fmt::format("{}", fmt::join(judge.lacks, ", "))),
                    element("td", {}, judge.source));
  }
  return html::table("The judges",
                     title("Judge") + title("Passes if") + title("NaN") + title("Formats") +
                         title("Does not try") + title("Read in"),
                     rows);
}

Markup section(std::string_view heading, const Markup& content) {
  return element("section", {}, element("h2", {}, heading), content);
}

}  // namespace

CatchTable catches_of(const Side& side) {
  std::set<std::pair<DType, std::string>> wrong;
  for (const auto& [judge, scores] : side.scores) {
    for (const auto& [dtype, score] : scores) {
      for (const auto& names : {score.caught, score.missed}) {
        for (const std::string& each : names) wrong.emplace(dtype, each);
      }
    }
  }
  CatchTable table = {.title = heading(side), .rows = {}, .columns = {}, .letters = {}};
  for (const auto& [dtype, each] : wrong) {
    table.columns.push_back(fmt::format("{} {}", each, name(dtype)));
  }
  for (const Judge& judge : judges()) {
    std::string letters;
    for (const auto& [dtype, each] : wrong) {
      const Score* s = find(side.scores, judge.name, dtype);
      letters += s && s->caught.contains(each) ? 'c' : s && s->missed.contains(each) ? 'm' : '.';
    }
    if (letters.find_first_not_of('.') == letters.npos) continue;
    table.rows.push_back(judge.name);
    table.letters.push_back(letters);
  }
  return table;
}

std::string to_text(const Comparison& comparison) {
  std::string out;
  for (const Side& side : comparison.sides) {
    const auto rows = rows_of(side);
    std::vector<std::size_t> widths(rows[0].size());
    for (const auto& row : rows) {
      for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
    }
    out += heading(side) + "\n\n";
    for (const auto& row : rows) {
      std::string line;
      for (std::size_t i = 0; i < row.size(); ++i) {
        if (i > 0) line += "  ";
        line += i < 2 ? pad_right(row[i], widths[i]) : pad_left(row[i], widths[i]);
      }
      out += "    " + line.erase(line.find_last_not_of(' ') + 1) + "\n";
    }
    out += "\n";
  }
  return out + kLegend + "\n";
}

std::string to_json(const Comparison& comparison) {
  json rules = json::array();
  for (const Judge& judge : judges()) {
    json formats = json::array();
    for (const DType dtype : judge.dtypes) formats.push_back(std::string(name(dtype)));
    rules.push_back({{"name", judge.name},
                     {"source", judge.source},
                     {"passes_if", judge.says},
                     {"nan", judge.nan},
                     {"dtypes", formats},
                     {"data", judge.data},
                     {"lacks", judge.lacks}});
  }
  json sides = json::array();
  for (const Side& side : comparison.sides) sides.push_back(to_json(side));
  const json all = {{"schema", 1},
                    {"suite_version", comparison.suite_version},
                    {"mutants", comparison.mutants},
                    {"command", comparison.command},
                    {"wall_s", comparison.wall_s},
                    {"judges", rules},
                    {"sides", sides}};
  return json_text(all, 2) + "\n";
}

std::string to_markdown(const Comparison& comparison) {
  std::string out = "# Criteria side by side\n\n";
  out +=
      fmt::format("`{}`, {}. {}\n", comparison.command, duration_text(comparison.wall_s), kLegend);
  for (const Side& side : comparison.sides) {
    out += fmt::format("\n{}:\n\n", heading(side));
    bool head = true;
    for (const auto& row : rows_of(side)) {
      out += fmt::format("| {} |\n", fmt::join(row, " | "));
      if (head) out += "|---|---|--:|--:|--:|--:|--:|--:|\n";
      head = false;
    }
  }
  out += "\n| judge | passes | NaN | does not try |\n|---|---|---|---|\n";
  for (const Judge& judge : judges()) {
    out += fmt::format("| {} | {} | {} | {} |\n", judge.name, judge.says, judge.nan,
                       fmt::join(judge.lacks, ", "));
  }
  return out;
}

std::string to_html(const Comparison& comparison) {
  Markup content =
      element("h1", {}, "Attest: criteria side by side") + element("p", {}, kLegend) +
      element("p", {},
              "One execution of each kernel, the same exact values for all. A rule looks at what "
              "its tests compare; that a kernel crashed, hung or refused what it declares is seen "
              "by all.") +
      element("p", {{"class", "quiet"}},
              fmt::format("Attest {}; {}; {}", comparison.suite_version, comparison.command,
                          duration_text(comparison.wall_s)));
  std::vector<CatchTable> tables;
  for (const Side& side : comparison.sides) {
    const Markup picture = place_of_catches(tables.size());
    tables.push_back(catches_of(side));
    content += section(heading(side), table(side) + element("h3", {}, "What each misses") +
                                          picture + element("h3", {}, "By name") + names_of(side));
  }
  content += section("The judges", rules_table());
  return catches_page("Attest: criteria side by side", content, tables);
}

void write_comparison(const Comparison& comparison, const std::filesystem::path& folder) {
  write_file(folder / "criteria.json", to_json(comparison));
  write_file(folder / "criteria.md", to_markdown(comparison));
  write_file(folder / "criteria.html", to_html(comparison));
}

}  // namespace attest::criteria
