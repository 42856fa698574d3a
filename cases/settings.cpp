#include "cases/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cases/generate.h"
#include "cases/laws.h"
#include "spec/json_text.h"
#include "spec/limits.h"

namespace attest {
namespace {

std::string read_name(const nlohmann::json& value, const std::string& pointer,
                      std::string_view what, const std::vector<std::string>& known) {
  return read_names(nlohmann::json::array({value}), pointer, what, known).front();
}

const std::vector<std::string> kTierNames = {"smoke", "standard", "full"};
const std::vector<std::string> kHiddenNames = {
    "plain",   "huge",      "nan",          "nan_rows", "nan_masked", "nan_query",
    "nan_key", "nan_value", "nan_gradient", "large",    "nan_scales"};
const std::vector<std::string> kCheckNames = {"none",        "threads", "neighbours",
                                              "schedule",    "memory",  "stream",
                                              "two_streams", "graph",   "new_shapes"};

std::size_t index_of(const std::vector<std::string>& names, const std::string& name) {
  return static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

std::vector<std::string> dtype_names() {
  std::vector<std::string> names;
  for (const DType dtype : kDTypes) names.emplace_back(name(dtype));
  return names;
}

std::vector<std::string> data_names() {
  std::vector<std::string> names;
  for (const InputClass& input_class : input_classes()) names.push_back(input_class.name);
  return names;
}

// Those that a problem has one of.
std::vector<std::string> known_sizes() {
  std::vector<std::string> names;
  for (const Size size : {Size::batch, Size::query_heads, Size::key_heads, Size::query_len,
                          Size::key_len, Size::head_dim, Size::value_dim, Size::page_size}) {
    names.emplace_back(name(size));
  }
  return names;
}

std::vector<std::string> known_laws() {
  std::vector<std::string> names;
  for (const LawName& law : law_names()) names.emplace_back(law.name);
  return names;
}

Index read_count(const nlohmann::json& value, const std::string& pointer, const char* what) {
  if (!value.is_number_integer() || value < 1) {
    throw InputError(pointer, fmt::format("{}, at least 1, not {}", what, json_text(value)));
  }
  return value.get<Index>();
}

// 24, or {"groups": 24, "query_heads": 32, "key_heads": 2}.
void read_excerpt(const nlohmann::json& value, const std::string& pointer, Settings& settings) {
  settings.excerpt_heads.reset();
  if (!value.is_object()) {
    settings.excerpt = read_count(value, pointer, "\"excerpt\" is a number of groups");
    return;
  }
  ObjectReader reader(value, pointer);
  const auto count = [&](const char* key, const char* what) {
    return read_count(reader.at(key), reader.pointer(key), what);
  };
  settings.excerpt = count("groups", "\"groups\" is a number of groups");
  settings.excerpt_heads = {.query = count("query_heads", "\"query_heads\" is a number of heads"),
                            .key = count("key_heads", "\"key_heads\" is a number of heads")};
  reader.finish();
}

}  // namespace

std::vector<std::string> read_distinct_names(const nlohmann::json& list, const std::string& pointer,
                                             std::string_view what,
                                             const std::vector<std::string>& known) {
  std::vector<std::string> names = read_names(list, pointer, what, known);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]) !=
        names.begin() + static_cast<std::ptrdiff_t>(i)) {
      throw InputError(fmt::format("{}/{}", pointer, i),
                       fmt::format("{} \"{}\" stands twice", what, names[i]));
    }
  }
  return names;
}

void Settings::read(ObjectReader& reader) {
  if (const auto* value = reader.find("dtypes")) {
    dtypes = read_distinct_names(*value, reader.pointer("dtypes"), "dtype", dtype_names());
  }
  if (const auto* value = reader.find("data")) {
    data = read_distinct_names(*value, reader.pointer("data"), "data class", data_names());
  }
  if (const auto* value = reader.find("hidden")) {
    hidden = static_cast<Hidden>(index_of(
        kHiddenNames, read_name(*value, reader.pointer("hidden"), "way to hide", kHiddenNames)));
  }
  if (const auto* value = reader.find("check")) {
    check = static_cast<Check>(
        index_of(kCheckNames, read_name(*value, reader.pointer("check"), "check", kCheckNames)));
  }
  if (const auto* value = reader.find("excerpt")) {
    read_excerpt(*value, reader.pointer("excerpt"), *this);
  }
  if (reader.find("statistical")) statistical = reader.get<bool>("statistical");
  if (const auto* value = reader.find("laws")) {
    laws = read_distinct_names(*value, reader.pointer("laws"), "law", known_laws());
  }
  if (const auto* value = reader.find("pin")) {
    pin = read_distinct_names(*value, reader.pointer("pin"), "size", known_sizes());
  }
  if (const auto* value = reader.find("tier")) {
    tier = static_cast<Tier>(
        index_of(kTierNames, read_name(*value, reader.pointer("tier"), "tier", kTierNames)));
  }
}

void Settings::write(nlohmann::json& entry) const {
  const auto at = [](const auto& names, auto value) {
    return names[static_cast<std::size_t>(value)];
  };
  if (hidden != Hidden::plain) entry["hidden"] = at(kHiddenNames, hidden);
  if (check != Check::none) entry["check"] = at(kCheckNames, check);
  if (excerpt_heads) {
    entry["excerpt"] = {{"groups", excerpt},
                        {"query_heads", excerpt_heads->query},
                        {"key_heads", excerpt_heads->key}};
  } else if (excerpt > 0) {
    entry["excerpt"] = excerpt;
  }
  if (statistical) entry["statistical"] = true;
  if (!laws.empty()) entry["laws"] = laws;
  if (!pin.empty()) entry["pin"] = pin;
}

}  // namespace attest
