#include "cases/shape_lines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "spec/index.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

using nlohmann::json;

// What a column holds, and the field of a problem that it is.
enum class Holds { size, number, flag, text };
struct Column {
  const char* name;
  const char* field;
  Holds holds;
  bool optional = true;  // whether a cell may be empty
};
constexpr Column kColumns[] = {
    {"B", "batch", Holds::size, false},
    {"Hq", "query_heads", Holds::size, false},
    {"Hkv", "key_heads", Holds::size, false},
    {"Sq", "query_len", Holds::size, false},
    {"Sk", "key_len", Holds::size, false},
    {"D", "head_dim", Holds::size, false},
    {"Dv", "value_dim", Holds::size},
    {"mask", "mask", Holds::text},
    {"backward", "backward", Holds::flag},
    {"softcap", "softcap", Holds::number},
    {"sink", "sink", Holds::flag},
    {"scale", "scale", Holds::number},
    {"page_size", "page_size", Holds::size},
    {"name", "name", Holds::text},
};
constexpr std::size_t kUsual = 8;

std::string_view trimmed(std::string_view text) {
  constexpr const char* kBlank = " \t\r";
  const auto begin = text.find_first_not_of(kBlank);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> cells;
  while (true) {
    const auto comma = line.find(',');
    cells.emplace_back(trimmed(line.substr(0, comma)));
    if (comma == line.npos) return cells;
    line.remove_prefix(comma + 1);
  }
}

[[noreturn]] void complain(int line, const std::string& what) {
  throw InputError("", fmt::format("{}: {}", line, what));
}

json value_of(const Column& column, const std::string& cell, int line) {
  const char* const end = cell.data() + cell.size();
  if (column.holds == Holds::text) return cell;
  if (column.holds == Holds::flag) {
    if (cell == "true" || cell == "1" || cell == "yes") return true;
    if (cell == "false" || cell == "0" || cell == "no") return false;
    complain(line, fmt::format("{} takes true or false, not {}", column.name, cell));
  }
  if (column.holds == Holds::number) {
    double number = 0;
    const auto [stop, error] = std::from_chars(cell.data(), end, number);
    if (error == std::errc() && stop == end) return number;
    complain(line, fmt::format("{} takes a number, not {}", column.name, cell));
  }
  Index number = 0;
  const auto [stop, error] = std::from_chars(cell.data(), end, number);
  if (error != std::errc() || stop != end || number < 1) {
    complain(line, fmt::format("{} takes a number of at least 1, not {}", column.name,
                               cell.empty() ? "nothing" : cell));
  }
  return number;
}

const Column* column_named(std::string_view name) {
  const auto found = std::find_if(std::begin(kColumns), std::end(kColumns),
                                  [&](const Column& each) { return each.name == name; });
  return found == std::end(kColumns) ? nullptr : found;
}

// The columns that a header names.
std::vector<const Column*> header(const std::vector<std::string>& cells, int line) {
  std::vector<const Column*> columns;
  std::vector<std::string> names;
  for (const Column& each : kColumns) names.emplace_back(each.name);
  for (const std::string& cell : cells) {
    const Column* column = column_named(cell);
    if (!column) {
      complain(line,
               fmt::format("there is no column {}; there are {}", cell, fmt::join(names, ", ")));
    }
    if (std::find(columns.begin(), columns.end(), column) != columns.end()) {
      complain(line, fmt::format("the column {} stands twice", cell));
    }
    columns.push_back(column);
  }
  for (const char* needed : {"B", "Hq", "Hkv", "Sq", "Sk", "D"}) {
    if (std::find(columns.begin(), columns.end(), column_named(needed)) == columns.end()) {
      complain(line, fmt::format("the column {} is missing", needed));
    }
  }
  return columns;
}

// "b1_h32_8_q8192_k8192_d128_128_causal": what tells one line from another.
std::string name_of(const json& fields) {
  std::string name = fmt::format("b{}_h{}_{}_q{}_k{}_d{}_{}", fields["batch"].get<Index>(),
                                 fields["query_heads"].get<Index>(),
                                 fields["key_heads"].get<Index>(), fields["query_len"].get<Index>(),
                                 fields["key_len"].get<Index>(), fields["head_dim"].get<Index>(),
                                 fields.value("value_dim", fields["head_dim"].get<Index>()));
  for (const std::string more : {"mask", "softcap", "scale", "page_size"}) {
    if (!fields.contains(more) || fields[more] == "full") continue;
    const std::string text =
        fields[more].is_string() ? fields[more].get<std::string>() : fields[more].dump();
    name += "_" + (more == "mask" ? as_name(text) : more + as_name(text));
  }
  for (const char* flag : {"backward", "sink"}) {
    if (fields.value(flag, false)) name += std::string("_") + flag;
  }
  return name;
}

json entry_of(const std::vector<const Column*>& columns, const std::vector<std::string>& cells,
              int line) {
  json fields = json::object();
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (cells[i].empty() && columns[i]->optional) continue;
    fields[columns[i]->field] = value_of(*columns[i], cells[i], line);
  }
  json entry;
  entry["name"] =
      fields.contains("name") ? as_name(fields["name"].get<std::string>()) : name_of(fields);
  fields.erase("name");
  if (fields.contains("page_size")) {
    const auto batch = fields["batch"].get<std::size_t>();
    fields["key_lens"] = std::vector<Index>(batch, fields["key_len"].get<Index>());
    fields["paging"] = {{"page_size", fields["page_size"]}};
    fields.erase("page_size");
  }
  entry["problem"] = fields;
  return entry;
}

}  // namespace

std::vector<ShapeEntry> read_shape_lines(std::string_view text) {
  std::vector<const Column*> columns;
  for (std::size_t i = 0; i < kUsual; ++i) columns.push_back(&kColumns[i]);
  std::vector<ShapeEntry> entries;
  std::map<std::string, int> lines;  // of names
  bool first = true, with_header = false;
  for (int line = 1; !text.empty(); ++line) {
    const auto end = std::min(text.find('\n'), text.size());
    const std::string_view here = trimmed(text.substr(0, std::min(end, text.find('#'))));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (here.empty()) continue;
    const std::vector<std::string> cells = cells_of(here);
    if (std::exchange(first, false) && column_named(cells[0])) {
      columns = header(cells, line);
      with_header = true;
      continue;
    }
    const bool mask_left_out = !with_header && cells.size() == kUsual - 1;
    if (cells.size() != columns.size() && !mask_left_out) {
      complain(line, fmt::format("{} columns where {} have {}", cells.size(),
                                 with_header ? "the header's" : "B,Hq,Hkv,Sq,Sk,D,Dv,mask",
                                 columns.size()));
    }
    entries.push_back({entry_of(columns, cells, line), line});
    const auto [other, fresh] = lines.emplace(entries.back().entry["name"], line);
    if (!fresh) complain(line, fmt::format("the shape of line {} once more", other->second));
  }
  return entries;
}

}  // namespace attest
