// report.json (spec/report.schema.json): the digest for programs. Header, verdicts and evidence
// have the keys that they have in results.jsonl.
#include <nlohmann/json.hpp>

#include "reports/digest.h"
#include "reports/reports.h"
#include "reports/standing.h"
#include "reports/text.h"
#include "spec/json_text.h"

namespace attest {
namespace {

using nlohmann::json;

json line_as_json(const std::string& line) {
  json j = parse_json(line);
  j.erase("kind");
  return j;
}

json counts_json(const Counts& counts) {
  json j = json::object();
  for (const auto& [outcome, count] : counts) j[std::string(name(outcome))] = count;
  return j;
}

json verdict_json(VerdictRecord record) {
  record.verdict.captured = excerpt(record.verdict.captured);
  record.verdict.message = excerpt(record.verdict.message);
  return line_as_json(to_line(record));
}

json evidence_json(const TensorEvidence& evidence) {
  VerdictRecord carrier;  // so that the keys are those of the record, by construction
  carrier.verdict.tensors[TensorName::o] = evidence;
  return line_as_json(to_line(carrier)).at("tensors").front();
}

json profiles_json(const Digest& digest) {
  Footer carrier;
  carrier.profiles = digest.profiles;
  json profiles = line_as_json(to_line(carrier)).at("profiles");
  for (std::size_t i = 0; i < profiles.size(); ++i) {
    profiles[i]["standing"] = standing_text(digest.profiles[i]);
  }
  return profiles;
}

json clauses_json(const TesteeDigest& testee) {
  json j = json::object();
  for (const auto& [id, clause] : testee.clauses) {
    j[id] = {{"counts", counts_json(clause.counts)},
             {"broken", clause.broken},
             {"missed", clause.missed}};
  }
  return j;
}

json worst_json(const TesteeDigest& testee, const Digest& digest) {
  json list = json::array();
  for (const TensorName tensor : digest.tensors) {
    for (const std::string& dtype : digest.dtypes) {
      const auto at = testee.worst.find({tensor, dtype});
      if (at == testee.worst.end()) continue;
      const VerdictRecord& record = *at->second.verdict;
      list.push_back({{"tensor", name(tensor)},
                      {"dtype", dtype},
                      {"case", record.case_id},
                      {"outcome", name(record.verdict.outcome)},
                      {"evidence", evidence_json(*at->second.evidence)}});
    }
  }
  return list;
}

}  // namespace

std::string to_report_json(const Record& record) {
  const Digest d = digest(record);
  json testees = json::array();
  for (const TesteeDigest& testee : d.testees) {
    testees.push_back({{"name", testee.about.name},
                       {"counts", counts_json(testee.counts)},
                       {"wall_s", number_to_json(testee.wall_s)},
                       {"clauses", clauses_json(testee)},
                       {"worst", worst_json(testee, d)}});
  }
  json failures = json::array(), known = json::array();
  for (const VerdictRecord* failure : d.failures) {
    failures.push_back(verdict_json(*failure));
    if (const KnownFailure* why = known_of(d, *failure)) {
      known.push_back(
          {{"case", failure->case_id}, {"testee", failure->testee}, {"why", known_text(*why)}});
    }
  }
  const json report = {{"header", line_as_json(to_line(record.header))},
                       {"state", name(d.state)},
                       {"conclusion", d.conclusion},
                       {"sentence", d.sentence},
                       {"notes", d.notes},
                       {"exit_code", d.exit_code},
                       {"wall_s", number_to_json(d.wall_s)},
                       {"counts", counts_json(d.counts)},
                       {"profiles", profiles_json(d)},
                       {"testees", testees},
                       {"failures", failures},
                       {"known", known}};
  return json_text(report, 1) + "\n";
}

}  // namespace attest
