#include "harness/limits/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reports/files.h"
#include "reports/text.h"
#include "spec/json_text.h"

namespace attest::limits {
namespace {

using nlohmann::json;

constexpr const char* kLegend =
    "The least size of each fault that some case sees; in brackets, how many times the largest "
    "that "
    "is admitted. Faults by length: the longest row of keys in which one key is seen.";

std::string size_text(const Kind& kind, double size) {
  if (kind.measure != Measure::length) return fmt::format("{:.1e}", size);
  return fmt::format("1 of {:.0f}", 1 / size);
}

std::string cell(const Limit& limit) {
  if (!limit.seen) return "not seen";
  const std::string size = size_text(*limit.kind, limit.seen->size);
  if (limit.admitted == 0) return size;
  return fmt::format("{} ({:.3g})", size, limit.seen->size / limit.admitted);
}

// Fault, format, and what each declaration has.
std::vector<std::vector<std::string>> rows_of(const Table& table, const Column& column) {
  std::vector<std::vector<std::string>> rows = {{"fault", "format"}};
  for (const Declaration& each : table.declarations) rows[0].push_back(each.name);
  const Kind* kind = nullptr;
  std::optional<DType> dtype;
  for (const Limit& limit : column.limits.limits) {
    if (limit.kind != kind || limit.dtype != dtype) {
      rows.push_back({std::string(limit.kind->name), std::string(name(limit.dtype))});
      rows.back().resize(rows[0].size(), "-");
      kind = limit.kind;
      dtype = limit.dtype;
    }
    rows.back()[2 + limit.declaration] = cell(limit);
  }
  return rows;
}

std::vector<std::string> notes_of(const Column& column) {
  std::vector<std::string> notes;
  for (const std::string& each : column.limits.false_alarms) {
    notes.push_back("FALSE ALARM: without a fault, fails " + each);
  }
  if (column.limits.undrawn > 0) {
    notes.push_back(fmt::format("Not tried, as the kernel draws no dropout of its own: {}",
                                count_text(static_cast<Index>(column.limits.undrawn), "case")));
  }
  if (!column.limits.left_out.empty()) {
    notes.push_back(
        fmt::format("Not tried, as they take long: {}, such as {}",
                    count_text(static_cast<Index>(column.limits.left_out.size()), "case"),
                    column.limits.left_out.front()));
  }
  return notes;
}

std::string heading(const Column& column) {
  return fmt::format("{} ({} cases)", column.about, column.limits.cases);
}

json to_json(const Limit& limit, const std::string& declaration) {
  json j = {{"fault", limit.kind->name},
            {"format", name(limit.dtype)},
            {"declaration", declaration},
            {"admitted", limit.admitted},
            {"seen", nullptr},
            {"missed", limit.missed}};
  if (limit.seen) {
    j["seen"] = {{"size", limit.seen->size},
                 {"case", limit.seen->case_id},
                 {"message", limit.seen->message}};
  }
  return j;
}

json to_json(const Table& table, const Column& column) {
  json rows = json::array();
  for (const Limit& limit : column.limits.limits) {
    rows.push_back(to_json(limit, table.declarations[limit.declaration].name));
  }
  return {{"name", column.name},
          {"about", column.about},
          {"cases", column.limits.cases},
          {"undrawn", column.limits.undrawn},
          {"left_out", column.limits.left_out},
          {"false_alarms", column.limits.false_alarms},
          {"limits", rows}};
}

}  // namespace

std::string to_text(const Table& table) {
  std::string text;
  for (const Column& column : table.columns) {
    const auto rows = rows_of(table, column);
    std::vector<std::size_t> widths(rows[0].size());
    for (const auto& row : rows) {
      for (std::size_t n = 0; n < row.size(); ++n) widths[n] = std::max(widths[n], row[n].size());
    }
    text += fmt::format("\n{}\n\n", heading(column));
    for (const auto& row : rows) {
      std::string line;
      for (std::size_t n = 0; n < row.size(); ++n) {
        line += fmt::format("{:<{}}  ", row[n], widths[n]);
      }
      text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    for (const std::string& note : notes_of(column)) text += note + "\n";
  }
  return text + fmt::format("\n{}\n", kLegend);
}

std::string to_json(const Table& table) {
  json j = {{"suite_version", table.suite_version},
            {"command", table.command},
            {"wall_s", table.wall_s},
            {"faults", json::array()},
            {"declarations", json::array()},
            {"columns", json::array()}};
  for (const Kind& kind : kinds()) {
    j["faults"].push_back({{"name", kind.name}, {"about", kind.about}});
  }
  for (const Declaration& each : table.declarations) {
    j["declarations"].push_back({{"name", each.name},
                                 {"about", each.about},
                                 {"arithmetic", each.testee.declared_arithmetic}});
  }
  for (const Column& column : table.columns) j["columns"].push_back(to_json(table, column));
  return json_text(j, 1) + "\n";
}

std::string to_markdown(const Table& table) {
  std::string text = fmt::format(
      "# Detection limits\n\nMade by `{}`, of version {}. {}\n\n| fault | what it is "
      "|\n|---|---|\n",
      table.command, table.suite_version, kLegend);
  for (const Kind& kind : kinds()) {
    if (kind.site != Site::none) text += fmt::format("| {} | {} |\n", kind.name, kind.about);
  }
  text += "\n| declared | what that is |\n|---|---|\n";
  for (const Declaration& each : table.declarations) {
    text += fmt::format("| {} | {} |\n", each.name, each.about);
  }
  for (const Column& column : table.columns) {
    text += fmt::format("\n## {}\n\n", heading(column));
    const auto rows = rows_of(table, column);
    for (std::size_t n = 0; n < rows.size(); ++n) {
      text += fmt::format("| {} |\n", fmt::join(rows[n], " | "));
      if (n > 0) continue;
      text += "|---|---|";
      for (std::size_t d = 2; d < rows[n].size(); ++d) text += "--:|";
      text += "\n";
    }
    for (const std::string& note : notes_of(column)) text += fmt::format("\n{}.\n", note);
  }
  return text;
}

void write_table(const Table& table, const std::filesystem::path& folder) {
  write_file(folder / "limits.json", to_json(table));
  write_file(folder / "limits.md", to_markdown(table));
}

}  // namespace attest::limits
