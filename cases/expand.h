// The axes of an entry: how one entry of a case file becomes many cases. Here and nowhere else.
//
//   "for": {"query_len": [1, 17], "key_len": [5, 6]}         all four pairs
//   "for": [{"query_len": 1, "key_len": 5}, {"query_len": 17, "key_len": 6}]   these two
//
// An axis is a field of the problem, or a name that the mask or the layouts use in braces:
//   "mask": "window -{left}..{right}", "for": {"left": [0, 16], "right": [0, 3]}
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace attest {

// One value on one axis.
struct AxisValue {
  std::string axis;  // "query_len"
  const nlohmann::json* value;
  std::string pointer;  // where it stands
};

// One case's place on all axes.
struct Point {
  std::string label;  // "sq=17,sk=5"; empty without axes
  std::vector<AxisValue> settings;
};

// How many cases one entry may have: more than any has, and no more than a person may have meant.
inline constexpr std::size_t kMostPoints = 10'000;

// Whether a text may stand in an id as the name of an entry or an axis.
bool is_name(const std::string& text);

// All points of `axes` ("for"; null: a single point without settings). Throws InputError for an
// empty list, for a list of objects with unlike keys, for a point that stands twice, and for more
// than kMostPoints. `axes`
// must outlive the points.
std::vector<Point> expand_axes(const nlohmann::json* axes, const std::string& pointer);

}  // namespace attest
