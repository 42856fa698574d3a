#include "reports/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "reports/text.h"

namespace attest {

std::vector<std::string> parts_text(const Record& record) {
  std::set<std::string> cases;
  std::map<TensorName, double> least;  // of each tensor
  for (const VerdictRecord& v : record.verdicts) {
    for (const auto& [tensor, e] : v.verdict.tensors) {
      if (e.compared == 0 || e.compared + e.unspecified >= e.elements) continue;
      cases.insert(v.case_id);
      const double part = double(e.compared) / double(e.elements);
      const auto place = least.emplace(tensor, part).first;
      place->second = std::min(place->second, part);
    }
  }
  if (cases.empty()) return {};
  std::vector<std::string> parts;
  for (const auto& [tensor, part] : least) {
    parts.push_back(fmt::format("{:.2g}% of {}", 100 * part, name(tensor)));
  }
  return {fmt::format("Compared in part: {}, of the least {}.",
                      count_text(std::ssize(cases), "case"), list_text(parts, ""))};
}

}  // namespace attest
