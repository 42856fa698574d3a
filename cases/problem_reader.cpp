#include "cases/problem_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "cases/mask_reader.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

constexpr std::array<std::string_view, 13> kFields = {
    "batch", "query_heads", "key_heads", "query_len",  "key_len",  "head_dim", "value_dim",
    "scale", "mask",        "key_lens",  "query_lens", "backward", "layouts"};

bool is_field(std::string_view name) {
  return std::find(kFields.begin(), kFields.end(), name) != kFields.end();
}

double read_scale(ObjectReader& reader, Index head_dim) {
  const nlohmann::json* value = reader.find("scale");
  if (value && *value != "1/sqrt(d)") {
    if (value->is_number()) return value->get<double>();
    throw InputError("/scale", "\"scale\" takes a number or \"1/sqrt(d)\"");
  }
  return head_dim > 0 ? 1.0 / std::sqrt(static_cast<double>(head_dim)) : 1.0;
}

std::vector<Index> read_lengths(ObjectReader& reader, const std::string& key) {
  const nlohmann::json* value = reader.find(key);
  if (!value) return {};
  std::vector<Index> lengths;
  for (const nlohmann::json& length : *value) {
    if (!value->is_array() || !length.is_number_integer()) {
      throw InputError("/" + key, fmt::format("\"{}\" takes a list of integers", key));
    }
    lengths.push_back(length.get<Index>());
  }
  if (lengths.empty()) throw InputError("/" + key, fmt::format("\"{}\" is empty", key));
  return lengths;
}

Layout read_layout(const nlohmann::json& value, const std::string& pointer) {
  if (!value.is_string()) throw InputError(pointer, "a layout is a text such as \"bshd gap=3\"");
  try {
    return Layout::parse(value.get<std::string>());
  } catch (const InputError& error) {
    throw InputError(pointer, error.what());
  }
}

Layouts read_layouts(ObjectReader& reader) {
  Layouts layouts;
  const nlohmann::json* value = reader.find("layouts");
  if (!value) return layouts;
  const std::pair<const char*, Layout*> tensors[] = {
      {"q", &layouts.q},     {"k", &layouts.k},   {"v", &layouts.v},   {"o", &layouts.o},
      {"d_o", &layouts.d_o}, {"dq", &layouts.dq}, {"dk", &layouts.dk}, {"dv", &layouts.dv}};
  if (value->is_string()) {
    for (const auto& [name, layout] : tensors) *layout = read_layout(*value, "/layouts");
    return layouts;
  }
  ObjectReader each(*value, "/layouts");
  for (const auto& [name, layout] : tensors) {
    if (const nlohmann::json* text = each.find(name))
      *layout = read_layout(*text, each.pointer(name));
  }
  each.finish();
  return layouts;
}

// Exchanges {name} for its value in all texts of `value`, and notes the names used. A text that is
// nothing but {name} becomes the value itself, so that a number stays a number.
void fill_in(nlohmann::json& value, const std::map<std::string, nlohmann::json>& names,
             std::set<std::string>& used) {
  if (value.is_structured()) {
    for (nlohmann::json& item : value) fill_in(item, names, used);
  } else if (value.is_string()) {
    auto text = value.get<std::string>();
    for (const auto& [name, replacement] : names) {
      const std::string braced = "{" + name + "}";
      if (text == braced) {
        used.insert(name);
        value = replacement;
        return;
      }
      const std::string plain =
          replacement.is_string() ? replacement.get<std::string>() : replacement.dump();
      for (auto place = text.find(braced); place != text.npos; place = text.find(braced)) {
        text.replace(place, braced.size(), plain);
        used.insert(name);
      }
    }
    value = text;
  }
}

}  // namespace

void ProblemReader::add(const nlohmann::json& object, const std::string& pointer) {
  ObjectReader check(object, pointer);  // that it is an object
  for (const auto& [field, value] : object.items()) {
    fields_[field] = value;
    pointers_[field] = pointer + "/" + field;
  }
}

void ProblemReader::add(const Setting& setting) {
  if (is_field(setting.axis)) {
    fields_[setting.axis] = *setting.value;
  } else {
    names_[setting.axis] = *setting.value;
  }
  pointers_[setting.axis] = setting.pointer;
}

Problem ProblemReader::read(std::string_view seed) const {
  nlohmann::json fields = fields_;
  std::set<std::string> used;
  for (const char* field : {"mask", "layouts"}) {
    if (fields.contains(field)) fill_in(fields[field], names_, used);
  }
  for (const auto& [name, value] : names_) {
    if (used.contains(name)) continue;
    std::vector<std::string> known(kFields.begin(), kFields.end());
    throw InputError(
        pointers_.at(name),
        fmt::format("unknown axis \"{}\": no field of a problem (similar: {}), nor does "
                    "the mask or a layout use {{{}}}",
                    name, fmt::join(nearest_names(name, known), ", "), name));
  }
  try {
    ObjectReader reader(fields, "");
    Problem problem;
    for (const auto& [field, size] : {std::pair{"batch", &problem.batch},
                                      {"query_heads", &problem.query_heads},
                                      {"key_heads", &problem.key_heads},
                                      {"query_len", &problem.query_len},
                                      {"key_len", &problem.key_len},
                                      {"head_dim", &problem.head_dim}}) {
      *size = reader.get_or<Index>(field, *size);
      if (*size < 0)
        throw InputError(reader.pointer(field), fmt::format("\"{}\" is negative", field));
    }
    problem.value_dim = reader.get_or<Index>("value_dim", problem.head_dim);
    problem.scale = read_scale(reader, problem.head_dim);
    problem.key_lens = read_lengths(reader, "key_lens");
    problem.query_lens = read_lengths(reader, "query_lens");
    problem.backward = reader.get_or("backward", false);
    problem.layouts = read_layouts(reader);
    if (const nlohmann::json* mask = reader.find("mask")) {
      problem.mask = read_mask(*mask, "/mask", problem, seed);
    }
    reader.finish();
    return problem;
  } catch (const InputError& error) {
    // The fields were gathered from several places: say from where this one came.
    const std::string& pointer = error.pointer();
    const auto end = pointer.find('/', 1);
    const std::string field = pointer.empty() ? "" : pointer.substr(1, end - 1);
    throw InputError(pointer_of(field) + (end == pointer.npos ? "" : pointer.substr(end)),
                     error.what());
  }
}

std::string ProblemReader::pointer_of(const std::string& field) const {
  const auto place = pointers_.find(field);
  return place == pointers_.end() ? "" : place->second;
}

}  // namespace attest
