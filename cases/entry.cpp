#include "cases/entry.h"
#include "spec/json_text.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace attest {
namespace {

using nlohmann::json;

constexpr std::size_t kWidth = 100;

// The order in which files give what an entry says; then the rest, such as fields of a problem.
constexpr std::array<std::string_view, 24> kOrder = {
    "name",      "clauses", "because",    "problem",  "for",         "dtypes",
    "data",      "hidden",  "check",      "excerpt",  "statistical", "laws",
    "pin",       "tier",    "bits",       "batch",    "query_heads", "key_heads",
    "query_len", "key_len", "query_lens", "key_lens", "head_dim",    "value_dim"};

std::vector<std::string> keys_in_order(const json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  std::stable_sort(keys.begin(), keys.end(), [](const std::string& a, const std::string& b) {
    const auto rank = [](const std::string& key) {
      return std::find(kOrder.begin(), kOrder.end(), key);
    };
    return rank(a) < rank(b);
  });
  return keys;
}

std::string on_one_line(const json& value) {
  // What a testee said may be no UTF-8.
  if (!value.is_structured()) return json_text(value);
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (value.is_array()) {
    for (const json& item : value) add(on_one_line(item));
    return "[" + text + "]";
  }
  for (const std::string& key : keys_in_order(value)) {
    add(json_text(key) + ": " + on_one_line(value[key]));
  }
  return "{" + text + "}";
}

// On one line if there is room behind `used` letters, else with its items on lines of their own.
std::string in_lines(const json& value, std::size_t indent, std::size_t used) {
  std::string line = on_one_line(value);
  if (!value.is_structured() || value.empty() || used + line.size() < kWidth) return line;
  const std::string margin(indent + 2, ' ');
  std::string text;
  const auto add = [&](const std::string& label, const json& item) {
    text += (text.empty() ? "\n" : ",\n") + margin + label +
            in_lines(item, indent + 2, indent + 2 + label.size());
  };
  if (value.is_array()) {
    for (const json& item : value) add("", item);
  } else {
    for (const std::string& key : keys_in_order(value)) add(json_text(key) + ": ", value[key]);
  }
  const auto [open, close] = value.is_array() ? std::pair("[", "]") : std::pair("{", "}");
  return open + text + "\n" + std::string(indent, ' ') + close;
}

}  // namespace

std::string to_case_file(const std::string& about, const std::vector<json>& entries) {
  std::string text = "{\n  \"about\": " + on_one_line(about) + ",\n  \"cases\": [";
  const char* separator = "\n    ";
  for (const json& entry : entries) {
    text += separator + in_lines(entry, 4, kWidth);
    separator = ",\n    ";
  }
  return text + "\n  ]\n}\n";
}

}  // namespace attest
