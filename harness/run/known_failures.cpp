#include "harness/run/known_failures.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/located_json.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"
#include "spec/known_failure.h"
#include "spec/read_file.h"

namespace attest {
namespace {

constexpr Outcome kFaults[] = {Outcome::fail, Outcome::crash, Outcome::timeout,
                               Outcome::protocol_error};

KnownFailure read_known(const nlohmann::json& json, const std::string& pointer) {
  ObjectReader reader(json, pointer);
  KnownFailure known{.cases = reader.get<std::string>("case"),
                     .testee = reader.get_or<std::string>("testee", ""),
                     .reason = {},
                     .link = reader.get_or<std::string>("link", "")};
  const auto text = reader.get<std::string>("outcome");
  const auto outcome = outcome_named(text);
  if (!outcome || !is_fault(*outcome)) {
    std::vector<std::string_view> names;
    for (const Outcome each : kFaults) names.push_back(name(each));
    throw InputError(reader.pointer("outcome"), fmt::format("\"outcome\" is one of {}, not \"{}\"",
                                                            fmt::join(names, ", "), text));
  }
  known.outcome = *outcome;
  known.reason = reader.get_or<std::string>("reason", "");
  if (known.outcome == Outcome::fail && known.reason.empty()) {
    throw InputError(pointer, "an entry of FAIL says with which \"reason\"");
  }
  if (known.cases.empty()) throw InputError(reader.pointer("case"), "\"case\" is empty");
  reader.finish();
  return known;
}

}  // namespace

std::vector<KnownFailure> read_known_failures(const std::filesystem::path& file) {
  const LocatedJson located(read_file(file), file.string());
  try {
    std::string pointer;
    const nlohmann::json* list = &located.root();
    if (list->is_object()) {
      ObjectReader reader(*list, "");
      reader.get_or<std::string>("about", "");
      list = &reader.at("known");
      pointer = reader.pointer("known");
      reader.finish();
    }
    if (!list->is_array()) throw InputError(pointer, "a list of known failures is needed");
    std::vector<KnownFailure> known;
    for (std::size_t i = 0; i < list->size(); ++i) {
      known.push_back(read_known((*list)[i], fmt::format("{}/{}", pointer, i)));
    }
    return known;
  } catch (const InputError& error) {
    throw located.locate(error);
  }
}

std::string known_failures_of(const Record& record) {
  nlohmann::json list = nlohmann::json::array();
  for (const VerdictRecord& v : record.verdicts) {
    if (!is_fault(v.verdict.outcome)) continue;
    const KnownFailure* before = find_known(record.header.known, v);
    list.push_back({{"case", v.case_id},
                    {"testee", v.testee},
                    {"outcome", name(v.verdict.outcome)},
                    {"reason", v.verdict.reason},
                    {"link", before ? before->link : ""}});
  }
  return json_text({{"about", "What failed in a run of Attest " + record.header.suite_version +
                                  ": say in each link where more is told of it."},
                    {"known", list}},
                   2) +
         "\n";
}

}  // namespace attest
