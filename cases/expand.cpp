#include "cases/expand.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <utility>

#include "spec/json_reader.h"
#include "spec/json_text.h"

namespace attest {
namespace {

// The short names of axes in ids, in the order in which they stand there. Names that a mask or a
// layout uses in braces follow, under their own name.
constexpr std::array<std::pair<std::string_view, std::string_view>, 22> kShortNames = {{
    {"batch", "b"},           {"query_heads", "hq"},   {"key_heads", "hk"},
    {"query_len", "sq"},      {"key_len", "sk"},       {"head_dim", "d"},
    {"value_dim", "dv"},      {"scale", "scale"},      {"mask", "mask"},
    {"key_lens", "klens"},    {"query_lens", "qlens"}, {"layouts", "layouts"},
    {"backward", "backward"}, {"softcap", "cap"},      {"bias", "bias"},
    {"alibi", "alibi"},       {"sink", "sink"},        {"dropout", "dropout"},
    {"packed", "packed"},     {"paging", "paging"},    {"d_lse", "dlse"},
    {"stored", "stored"},
}};

std::size_t rank_of(const std::string& axis) {
  std::size_t rank = 0;
  while (rank < kShortNames.size() && kShortNames[rank].first != axis) ++rank;
  return rank;
}

// A value as it stands in an id, which knows no spaces, slashes, quotes, stars and commas.
std::string text_of(const nlohmann::json& value) {
  if (value.is_array()) {
    std::string text;
    for (const nlohmann::json& item : value) {
      if (!text.empty()) text += '.';
      text += text_of(item);
    }
    return text;
  }
  std::string text;
  for (const char letter : value.is_string() ? value.get<std::string>() : json_text(value)) {
    if (std::isalnum(static_cast<unsigned char>(letter)) || letter == '.' || letter == '-' ||
        letter == '_') {
      text += letter;
    } else if (letter == '*') {
      text += "inf";
    } else if (!text.empty() && text.back() != '_') {
      text += '_';
    }
  }
  while (!text.empty() && text.back() == '_') text.pop_back();
  return text;
}

Point point_of(std::vector<AxisValue> settings) {
  const auto order = [](const AxisValue& a, const AxisValue& b) {
    return std::pair(rank_of(a.axis), a.axis) < std::pair(rank_of(b.axis), b.axis);
  };
  std::sort(settings.begin(), settings.end(), order);
  std::string label;
  for (const AxisValue& setting : settings) {
    const std::size_t rank = rank_of(setting.axis);
    const std::string_view name =
        rank < kShortNames.size() ? kShortNames[rank].second : std::string_view(setting.axis);
    label += fmt::format("{}{}={}", label.empty() ? "" : ",", name, text_of(*setting.value));
  }
  return {.label = std::move(label), .settings = std::move(settings)};
}

void check_count(std::size_t points, const std::string& pointer) {
  if (points <= kMostPoints) return;
  throw InputError(pointer, fmt::format("\"for\" makes {} cases or more of one entry, which has at "
                                        "most {}",
                                        points, kMostPoints));
}

std::vector<Point> product(const nlohmann::json& axes, const std::string& pointer) {
  std::vector<std::vector<AxisValue>> rows = {{}};
  std::vector<std::string> names;
  for (const auto& [axis, values] : axes.items()) names.push_back(axis);
  std::stable_sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return rank_of(a) < rank_of(b);
  });
  for (const std::string& axis : names) {
    const nlohmann::json& values = axes[axis];
    const std::string place = pointer + "/" + axis;
    if (!values.is_array() || values.empty()) {
      throw InputError(
          place, fmt::format("the axis \"{}\" takes a list of at least one value, not {}", axis,
                             json_text(values)));
    }
    check_count(rows.size() * values.size(), place);
    std::vector<std::vector<AxisValue>> longer;
    for (const std::vector<AxisValue>& row : rows) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        longer.push_back(row);
        longer.back().push_back(
            {.axis = axis, .value = &values[i], .pointer = fmt::format("{}/{}", place, i)});
      }
    }
    rows = std::move(longer);
  }
  std::vector<Point> points;
  for (std::vector<AxisValue>& row : rows) points.push_back(point_of(std::move(row)));
  return points;
}

std::vector<std::string> keys_of(const nlohmann::json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

std::vector<Point> listed(const nlohmann::json& list, const std::string& pointer) {
  check_count(list.size(), pointer);
  std::vector<Point> points;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string place = fmt::format("{}/{}", pointer, i);
    if (!list[i].is_object() || list[i].empty() || keys_of(list[i]) != keys_of(list[0])) {
      throw InputError(place, "a list in \"for\" takes objects, all with the same keys");
    }
    std::vector<AxisValue> settings;
    for (const auto& [axis, value] : list[i].items()) {
      settings.push_back({.axis = axis, .value = &value, .pointer = place + "/" + axis});
    }
    points.push_back(point_of(std::move(settings)));
  }
  return points;
}

}  // namespace

bool is_name(const std::string& text) {
  return !text.empty() &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == text.npos;
}

std::vector<Point> expand_axes(const nlohmann::json* axes, const std::string& pointer) {
  if (!axes) return {Point{}};
  if ((!axes->is_object() && !axes->is_array()) || axes->empty()) {
    throw InputError(pointer, "\"for\" takes axes with lists of values, or a list of objects");
  }
  std::vector<Point> points = axes->is_object() ? product(*axes, pointer) : listed(*axes, pointer);
  std::set<std::string_view> labels;
  for (const Point& point : points) {
    for (const AxisValue& setting : point.settings) {
      if (!is_name(setting.axis)) {
        throw InputError(setting.pointer,
                         fmt::format("\"{}\" is no name of an axis: lower-case letters, digits "
                                     "and _ only",
                                     setting.axis));
      }
    }
    if (!labels.insert(point.label).second) {
      throw InputError(pointer, fmt::format("\"for\": {} stands twice", point.label));
    }
  }
  return points;
}

}  // namespace attest
