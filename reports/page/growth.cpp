#include "reports/page/growth.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "reports/page/code.h"
#include "reports/text.h"

namespace attest::page {
namespace {

struct Point {
  Index length = 0;
  double error = -1, bound = 0;
};

using Key = std::tuple<std::string, TensorName, std::string, int>;

bool is_followed(TensorName tensor) {
  return tensor == TensorName::o || tensor == TensorName::dq || tensor == TensorName::dk ||
         tensor == TensorName::dv;
}

}  // namespace

int piece_of(Index length) {
  if (length <= 16) return static_cast<int>(length);
  return 17 + static_cast<int>(std::floor(4 * std::log2(static_cast<double>(length) / 16)));
}

Index length_in(std::string_view case_id) {
  Index longest = 0;
  for (const std::string_view key : {"sq=", "sk="}) {
    for (auto at = case_id.find(key); at != case_id.npos; at = case_id.find(key, at + 1)) {
      if (at > 0 && case_id[at - 1] != '/' && case_id[at - 1] != ',') continue;
      const char* const begin = case_id.data() + at + key.size();
      Index length = 0;
      std::from_chars(begin, case_id.data() + case_id.size(), length);
      longest = std::max(longest, length);
    }
  }
  return longest;
}

nlohmann::json growth(const Record& record, const Digest& digest) {
  std::map<Key, Point> points;
  for (const VerdictRecord& each : record.verdicts) {
    const Index length = length_in(each.case_id);
    if (length == 0 || each.case_id.find("/data=normal/") == std::string::npos) continue;
    for (const auto& [tensor, e] : each.verdict.tensors) {
      const double error = e.max_ratio * e.bound;
      if (!is_followed(tensor) || !std::isfinite(error) || !std::isfinite(e.bound)) continue;
      Point& point = points[{each.testee, tensor, each.dtype, piece_of(length)}];
      if (error > point.error) point = {length, error, e.bound};
    }
  }
  std::map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < digest.testees.size(); ++i) places[digest.testees[i].about.name] = i;
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [key, point] : points) {
    const auto& [testee, tensor, dtype, piece] = key;
    list.push_back({places[testee], static_cast<int>(tensor), one_line(dtype), point.length,
                    code_of(point.error), code_of(point.bound)});
  }
  return list;
}

}  // namespace attest::page
