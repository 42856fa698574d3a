#include "harness/run/seal.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/run/sha256.h"
#include "spec/json_text.h"

namespace attest {
namespace {

// What no machine, load or number of jobs has a part in.
constexpr std::array kFound = {"case",    "testee",  "dtype",  "outcome", "reason",
                               "clauses", "tensors", "slopes", "features"};

void add(Seal& seal, const std::string& line) { seal.add(line, parse_json(line)); }

}  // namespace

SealedVerdict sealed(std::string_view line, const nlohmann::json& json) {
  nlohmann::json found = nlohmann::json::object();
  for (const char* key : kFound) {
    if (json.contains(key)) found[key] = json.at(key);
  }
  return {.testee = json.at("testee").get<std::string>(),
          .case_id = json.at("case").get<std::string>(),
          .found = sha256(json_text(found)),
          .line = sha256(line)};
}

void Seal::add(std::string_view line, const nlohmann::json& json) {
  const std::string kind = json.at("kind").get<std::string>();
  if (kind == "verdict") {
    add(sealed(line, json));
  } else if (kind == "footer") {
    nlohmann::json rest = json;
    rest.erase("digests");
    others_ += sha256(json_text(rest)) + "\n";
  } else {
    others_ += sha256(line) + "\n";
  }
}

Digests Seal::digests() const {
  std::vector<SealedVerdict> sorted = verdicts_;
  std::sort(sorted.begin(), sorted.end());
  std::string found, lines;
  for (const SealedVerdict& verdict : sorted) {
    found += verdict.found + "\n";
    lines += verdict.line + "\n";
  }
  return {.verdicts = sha256(found), .record = sha256(lines + others_)};
}

void seal(Record& record, Seal verdicts) {
  add(verdicts, to_line(record.header));
  for (const SearchRecord& search : record.searches) add(verdicts, to_line(search));
  add(verdicts, to_line(*record.footer));
  record.footer->digests = verdicts.digests();
}

void seal(Record& record) {
  Seal verdicts;
  for (const VerdictRecord& verdict : record.verdicts) {
    const nlohmann::json json = to_json(verdict);
    verdicts.add(sealed(json_text(json), json));
  }
  seal(record, std::move(verdicts));
}

}  // namespace attest
