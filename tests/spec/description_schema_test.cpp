// description.schema.json and parse_description know the same keys, at every place of a
// description; and the reader takes and refuses what the table of descriptions.json says.
// descriptions.py holds the schema itself to both.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "spec/description.h"
#include "spec/dtype.h"
#include "spec/json_reader.h"
#include "spec/mask_kind.h"
#include "spec/named_arithmetic.h"
#include "spec/profile.h"

namespace attest {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json json_of(const char* file) {
  std::ifstream in(std::string(ATTEST_SOURCE_DIR) + file);
  return json::parse(in);
}

std::string error_of(const json& description) {
  try {
    parse_description(description);
  } catch (const InputError& error) {
    return error.pointer() + ": " + error.what();
  }
  return "";
}

// A merge patch, but that null is a value; "$absent" takes a key out.
json patched(const json& description, const json& patch) {
  if (!patch.is_object() || !description.is_object()) return patch;
  json result = description;
  for (const auto& [key, value] : patch.items()) {
    if (value == "$absent") {
      result.erase(key);
    } else {
      result[key] = result.contains(key) ? patched(result[key], value) : value;
    }
  }
  return result;
}

// ---- The schema ---------------------------------------------------------------------------------

// The schemas that a value there must meet at once, or of which it must meet one. What is only
// asked, "if" and "not", says nothing of what there may be.
void add_parts(const json& root, const json& schema, std::vector<json>& parts) {
  if (!schema.is_object()) return;
  parts.push_back(schema);
  if (schema.contains("$ref")) {
    const auto reference = schema["$ref"].get<std::string>();
    add_parts(root, root.at(json::json_pointer(reference.substr(1))), parts);
  }
  for (const char* key : {"then", "else"}) {
    if (schema.contains(key)) add_parts(root, schema[key], parts);
  }
  for (const char* key : {"allOf", "anyOf", "oneOf"}) {
    for (const json& each : schema.value(key, json::array())) add_parts(root, each, parts);
  }
}

// Of a value in values: of a key in an object, or of an item of a list.
std::vector<json> step(const json& root, const std::vector<json>& parts, const std::string& key) {
  std::vector<json> found;
  const auto add = [&](const json& schema) { add_parts(root, schema, found); };
  for (const json& part : parts) {
    if (part.contains("properties") && part["properties"].contains(key)) {
      add(part["properties"][key]);
    } else if (part.contains("additionalProperties")) {
      add(part["additionalProperties"]);
    }
    if (part.contains("items")) add(part["items"]);
  }
  return found;
}

// What it says of the value there.
std::vector<json> at(const json& root, const std::string& pointer) {
  std::vector<json> parts;
  add_parts(root, root, parts);
  std::istringstream steps(pointer.empty() ? "" : pointer.substr(1));
  for (std::string key; std::getline(steps, key, '/');) parts = step(root, parts, key);
  return parts;
}

// The texts that it lists there.
std::set<std::string> texts_in_schema(const json& root, const std::string& pointer) {
  std::set<std::string> texts;
  for (const json& part : at(root, pointer)) {
    for (const json& each : part.value("enum", json::array())) texts.insert(each);
  }
  return texts;
}

// The keys that the schema knows there; a false schema forbids one.
std::set<std::string> keys_in_schema(const json& root, const std::string& pointer) {
  std::set<std::string> keys;
  for (const json& part : at(root, pointer)) {
    const json properties = part.value("properties", json::object());
    for (const auto& [key, value] : properties.items()) {
      if (value != false) keys.insert(key);
    }
  }
  return keys;
}

// ---- The reader ---------------------------------------------------------------------------------

// All that could be a key: what stands in quotes in the sources of spec/.
std::set<std::string> words_of_the_sources() {
  std::set<std::string> words;
  static const std::regex quoted("\"([a-z][a-z0-9_]*)\"");
  for (const fs::directory_entry& file : fs::directory_iterator(ATTEST_SOURCE_DIR "/spec")) {
    if (file.path().extension() != ".cpp" && file.path().extension() != ".h") continue;
    std::ifstream in(file.path());
    const std::string text(std::istreambuf_iterator<char>(in), {});
    for (std::sregex_iterator word(text.begin(), text.end(), quoted), end; word != end; ++word) {
      words.insert((*word)[1]);
    }
  }
  return words;
}

// Of these words the keys that the reader knows there: it finds them wrong, not unknown.
std::set<std::string> keys_of_reader(const std::set<std::string>& words, const json& sound,
                                     const std::string& pointer) {
  std::set<std::string> keys;
  for (const std::string& word : words) {
    json description = sound;
    description[json::json_pointer(pointer)][word] = nullptr;
    const std::string unknown = fmt::format("{0}/{1}: unknown key \"{1}\"", pointer, word);
    if (!error_of(description).starts_with(unknown)) keys.insert(word);
  }
  return keys;
}

// Every place of the richest descriptions that has keys of its own, and one of these descriptions.
std::map<std::string, json> places_with_keys() {
  std::map<std::string, json> places;
  const json table = json_of("/tests/spec/descriptions.json");
  const std::set<std::string> of_formats = {"/arithmetic", "/beyond_caps", "/limits/dtypes"};
  for (const json& patch : table["rich"]) {
    const json description = patched(table["base"], patch);
    const std::function<void(const json&, const std::string&)> walk = [&](const json& value,
                                                                          const std::string& at) {
      if (value.is_object() && !of_formats.contains(at)) places.emplace(at, description);
      if (!value.is_structured()) return;
      for (const auto& [key, each] : value.items()) walk(each, at + "/" + key);
    };
    walk(description, "");
  }
  return places;
}

TEST(DescriptionSchemaTest, KnowsEachKeyOfTheReaderAndNoOther) {
  const json schema = json_of("/spec/description.schema.json");
  const std::set<std::string> words = words_of_the_sources();
  const auto places = places_with_keys();
  for (const char* needed : {"",
                             "/schedule",
                             "/memory",
                             "/memory/own",
                             "/lse",
                             "/window",
                             "/empty_rows",
                             "/limits",
                             "/limits/backward",
                             "/limits/dtypes/f16",
                             "/limits/dtypes/f16/backward",
                             "/limits/never/0",
                             "/limits/key_len",
                             "/limits/mask_offset",
                             "/arithmetic/f64",
                             "/arithmetic/f32",
                             "/arithmetic/f16",
                             "/arithmetic/bf16",
                             "/arithmetic/f32/products",
                             "/arithmetic/f32/products/qk"}) {
    EXPECT_TRUE(places.contains(needed)) << "no rich description has " << needed;
  }
  for (const auto& [pointer, description] : places) {
    const std::set<std::string> in_schema = keys_in_schema(schema, pointer);
    std::set<std::string> all = words;
    all.insert(in_schema.begin(), in_schema.end());
    EXPECT_EQ(in_schema, keys_of_reader(all, description, pointer)) << "at \"" << pointer << '"';
  }
}

TEST(DescriptionSchemaTest, KnowsFormatsAndFormsOfMasksAndNamesOfArithmetic) {
  const json schema = json_of("/spec/description.schema.json");
  std::set<std::string> formats, all_names;
  for (const DType dtype : kDTypes) {
    const std::string format(name(dtype));
    formats.insert(format);
    std::set<std::string> names;
    for (const NamedArithmetic& each : named_arithmetics()) {
      if (!each.of(dtype).empty()) names.emplace(each.name);
    }
    all_names.insert(names.begin(), names.end());
    EXPECT_EQ(texts_in_schema(schema, "/arithmetic/" + format), names);
  }
  EXPECT_EQ(texts_in_schema(schema, "/arithmetic"), all_names);
  EXPECT_EQ(texts_in_schema(schema, "/dtypes/0"), formats);
  EXPECT_EQ(texts_in_schema(schema, "/limits/never/0/dtypes/0"), formats);
  std::set<std::string> forms = {
      "causal",        "causal top_left",        "causal bottom_right",
      "window causal", "window causal top_left", "window causal bottom_right"};
  for (const MaskKind& each : mask_kinds()) {
    if (each.combines) continue;
    for (const char* anchor : {"", " top_left", " bottom_right"}) {
      if (*anchor == '\0' || each.is_anchored) forms.insert(std::string(each.declared) + anchor);
    }
  }
  EXPECT_EQ(texts_in_schema(schema, "/limits/masks/0"), forms);
}

TEST(DescriptionSchemaTest, KnowsAxesAndOrdersOfAxes) {
  const json schema = json_of("/spec/description.schema.json");
  std::set<std::string> axes, orders;
  for (unsigned some = 0; some < 16; ++some) {
    std::string text;
    for (unsigned axis = 0; axis < 4; ++axis)
      text += some >> axis & 1 ? std::string(1, "bhqk"[axis]) : "";
    axes.insert(text);
  }
  std::string order = "bdhs";
  do {
    orders.insert(order);
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(texts_in_schema(schema, "/limits/bias_axes/0"), axes);
  EXPECT_EQ(texts_in_schema(schema, "/limits/layouts/0"), orders);
}

TEST(DescriptionSchemaTest, KnowsAllProfiles) {
  const json schema = json_of("/spec/description.schema.json");
  const std::regex profile(schema["$defs"]["profile"]["pattern"].get<std::string>());
  for (const Profile& each : profiles()) {
    const std::string name(each.name);
    EXPECT_TRUE(std::regex_search(name, profile)) << name;
  }
}

TEST(DescriptionSchemaTest, DescriptionsAreReadAsTheTableSays) {
  const json table = json_of("/tests/spec/descriptions.json");
  for (const json& each : table["rich"]) EXPECT_EQ(error_of(patched(table["base"], each)), "");
  for (const json& each : table["cases"]) {
    const std::string error = error_of(patched(table["base"], each["with"]));
    if (!each.contains("error")) {
      EXPECT_EQ(error, "") << each["with"];
    } else {
      EXPECT_THAT(error, testing::HasSubstr(each["error"].get<std::string>())) << each["with"];
    }
  }
}

}  // namespace
}  // namespace attest
