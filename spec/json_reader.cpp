#include "spec/json_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "spec/contains.h"
#include "spec/json_text.h"
#include "spec/spelling.h"

namespace attest {
void check_name(const std::string& given, const std::vector<std::string>& known,
                std::string_view what, const std::string& pointer) {
  if (contains(known, given)) return;
  throw InputError(
      pointer, fmt::format("there is no {} \"{}\"; {}", what, given, did_you_mean(given, known)));
}

std::vector<std::string> read_names(const nlohmann::json& list, const std::string& pointer,
                                    std::string_view what, const std::vector<std::string>& known) {
  if (!list.is_array() || list.empty()) {
    throw InputError(
        pointer, fmt::format("a list of at least one {} is needed, not {}", what, json_text(list)));
  }
  std::vector<std::string> names;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string place = fmt::format("{}/{}", pointer, i);
    if (!list[i].is_string()) {
      throw InputError(place, fmt::format("{} is no {}", json_text(list[i]), what));
    }
    names.push_back(list[i].get<std::string>());
    check_name(names.back(), known, what, place);
  }
  return names;
}

ObjectReader::ObjectReader(const nlohmann::json& value, std::string pointer)
    : value_(value), pointer_(std::move(pointer)) {
  if (!value.is_object()) {
    throw InputError(pointer_, fmt::format("expected an object, found {}", json_text(value)));
  }
}

const nlohmann::json* ObjectReader::find(const std::string& key) {
  known_.insert(key);
  const auto place = value_.find(key);
  return place == value_.end() ? nullptr : &*place;
}

void ObjectReader::require(const std::vector<std::string>& keys) {
  std::vector<std::string> missing;
  for (const std::string& key : keys) {
    if (!find(key)) missing.push_back(fmt::format("\"{}\"", key));
  }
  if (missing.empty()) return;
  // A misspelt key is both missing and unknown; point to where it stands.
  for (const std::string& key : keys) {
    for (const auto& [other, unused] : value_.items()) {
      if (!value_.contains(key) && key.size() > 3 && !known_.contains(other) &&
          edit_distance(other, key) <= 2) {
        throw InputError(pointer(other),
                         fmt::format("unknown key \"{}\"; did you mean {}?", other, key));
      }
    }
  }
  throw InputError(pointer_,
                   missing.size() == 1
                       ? fmt::format("the key {} is missing", missing.front())
                       : fmt::format("the keys {} are missing", fmt::join(missing, ", ")));
}

const nlohmann::json& ObjectReader::at(const std::string& key) {
  require({key});
  return value_.at(key);
}

void ObjectReader::finish() const {
  for (const auto& [key, value] : value_.items()) {
    if (known_.contains(key)) continue;
    throw InputError(pointer(key), fmt::format("unknown key \"{}\"; {}", key,
                                               did_you_mean(key, {known_.begin(), known_.end()})));
  }
}

void ObjectReader::wrong_type(const nlohmann::json& value, const std::string& key) const {
  throw InputError(pointer(key), fmt::format("the value of \"{}\" is of the wrong type: {}", key,
                                             json_text(value)));
}

nlohmann::json in_whole_numbers(nlohmann::json value) {
  if (value.is_structured()) {
    for (nlohmann::json& each : value) each = in_whole_numbers(std::move(each));
  } else if (value.is_number_float()) {
    const auto number = value.get<double>();
    if (number == std::trunc(number) && number > -0x1p63 && number < 0x1p63) {
      return static_cast<std::int64_t>(number);
    }
  }
  return value;
}

std::string line_of(ObjectReader& reader, const std::string& key) {
  constexpr std::ptrdiff_t kLongest = 200;
  const auto text = reader.get<std::string>(key);
  const auto characters = std::count_if(
      text.begin(), text.end(), [](unsigned char c) { return (c & 0xC0) != 0x80; });  // of UTF-8
  if (characters > kLongest) {
    throw InputError(
        reader.pointer(key),
        fmt::format("\"{}\" has {} characters; at most {} are taken", key, characters, kLongest));
  }
  if (std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 127; })) {
    throw InputError(reader.pointer(key), fmt::format("\"{}\" has control characters", key));
  }
  return text;
}

}  // namespace attest
