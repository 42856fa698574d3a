// A case file whose only entry is a covering array, and what its rows are as cases.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cases/case.h"
#include "cases/cover.h"
#include "cases/entry_reader.h"
#include "spec/json_reader.h"
#include "tests/cases/feature_matters.h"
#include "tests/cases/work.h"

namespace attest {

// What one row may cost, in multiply-adds; what is dearer is not tried.
inline constexpr double kMostWorkOfRow = 2e7;

// A row in which all that it has is seen, for what it may cost.
inline bool is_worth_a_case(const Case& c) {
  if (work_of_case(c.problem) > kMostWorkOfRow || !matters::tells(c)) return false;
  const auto shown = matters::shown_in(c, [](const std::string&) { return false; });
  return std::all_of(shown.begin(), shown.end(), [](const auto& each) { return each.second; });
}

class CoverFile {
 public:
  explicit CoverFile(const std::string& path) : path_(path) {
    std::ifstream file(path);
    text_ = {std::istreambuf_iterator<char>(file), {}};
    json_ = nlohmann::json::parse(text_);
    cover_ = read_cover(json_.at("cases").at(0).at("cover"), "/cases/0/cover");
    json_["cases"][0]["cover"]["rows"] = nlohmann::json::array();
  }

  const std::string& path() const { return path_; }
  const std::string& text() const { return text_; }
  const Cover& cover() const { return cover_; }

  // None where no problem is so.
  std::optional<Case> case_of(const std::string& row) {
    if (is_too_large(cover_.fields_of(row, fmt::format("cover/dispatch/all/r={}", row),
                                      nlohmann::json::object())))
      return std::nullopt;
    json_["cases"][0]["cover"]["rows"] = {row};
    FileRead source = {.stem = "cover/dispatch", .json = nullptr, .seed = 1};
    ObjectReader defaults(json_.at("defaults"), "/defaults");
    source.defaults.read(defaults);
    std::vector<Case> cases;
    try {
      read_entry(json_["cases"][0], "/cases/0", source, cases);
    } catch (const InputError&) {
      return std::nullopt;
    }
    return std::move(cases.front());
  }

 private:
  // Before tables are made for it: all sequences as long as the longest.
  static bool is_too_large(const nlohmann::json& fields) {
    const auto size = [&](const char* name, const char* lens) {
      const auto list = fields.find(lens);
      if (list == fields.end()) return fields.value<double>(name, 1);
      double most = 0;
      for (const auto& each : *list) most = std::max(most, each.get<double>());
      return most;
    };
    return size("batch", "") * size("query_heads", "") * size("query_len", "query_lens") *
               size("key_len", "key_lens") * size("head_dim", "") >
           kMostWorkOfRow;
  }

  std::string path_, text_;
  nlohmann::json json_;
  Cover cover_;
};

}  // namespace attest
