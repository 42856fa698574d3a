#include "reports/page/evidence.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "reports/groups.h"
#include "reports/text.h"

namespace attest::page {
namespace {

using nlohmann::json;

constexpr std::size_t kMessageKept = 500, kCapturedKept = 400;  // bytes at either end

json worst_elements(const Verdict& v) {
  json rows = json::array();
  for (const auto& [tensor, e] : v.tensors) {
    if (e.compared == 0 && e.max_ratio == 0) continue;  // an empty tensor
    rows.push_back({element_text(tensor, e), number_text(e.actual), number_text(e.exact),
                    number_text(e.bound), ratio_text(e.max_ratio), ratio_text(e.rms),
                    e.elements > e.compared ? fmt::format("{} of {}", e.compared, e.elements)
                                            : std::to_string(e.compared)});
  }
  return rows;
}

json slopes(const Verdict& v) {
  json rows = json::array();
  for (const SlopeEvidence& s : v.slopes) {
    const double apart = std::abs(s.analytic - s.difference);
    rows.push_back({std::string(name(s.tensor)), number_text(s.analytic), number_text(s.difference),
                    number_text(s.allowed), ratio_text(apart == 0 ? 0 : apart / s.allowed)});
  }
  return rows;
}

json schedules(const Verdict& v) {
  json list = json::array();
  for (const ScheduleEvidence& s : v.schedule) {
    list.push_back({{"pass", one_line(s.pass)},
                    {"threads", s.threads},
                    {"blocks", s.blocks},
                    {"masked", s.masked},
                    {"imbalance", ratio_text(s.imbalance)},
                    {"seen", s.seen}});
  }
  return list;
}

json pictures(const Verdict& v) {
  json list = json::array();
  for (const Picture& picture : v.pictures) {
    json letters = json::array();
    for (const std::string& row : picture.letters) letters.push_back(one_line(row));
    list.push_back({{"kind", one_line(picture.kind)},
                    {"of", one_line(picture.of)},
                    {"rows", picture.rows},
                    {"columns", picture.columns},
                    {"letters", letters}});
  }
  return list;
}

}  // namespace

json evidence_json(const Digest& digest, const VerdictRecord& record) {
  const Verdict& v = record.verdict;
  json told = json::object();
  const auto tell = [&](const char* key, const std::string& text) {
    if (!text.empty()) told[key] = text;
  };
  if (is_failure(v.outcome)) {
    tell("message", clean(excerpt(v.message, kMessageKept)));
    tell("captured", clean(excerpt(v.captured, kCapturedKept)));
    tell("blamed", one_line(headline_clause(v)));
    tell("problem", one_line(record.problem));
    if (const KnownFailure* known = known_of(digest, record)) {
      tell("known", one_line(known_text(*known)));
    }
    if (const auto at = digest.diagnoses.find(&record); at != digest.diagnoses.end()) {
      tell("diagnosis", one_line(diagnosis_text(*at->second)));
    }
  }
  if (!v.tensors.empty()) told["worst"] = worst_elements(v);
  if (!v.slopes.empty()) told["slopes"] = slopes(v);
  if (!v.schedule.empty()) told["schedule"] = schedules(v);
  if (!v.pictures.empty()) told["pictures"] = pictures(v);
  return told;
}

}  // namespace attest::page
