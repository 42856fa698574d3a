#include "spec/diagnosis.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <istream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "spec/json_reader.h"
#include "spec/json_text.h"

namespace attest {

std::string diagnosis_text(const Diagnosis& diagnosis) {
  std::vector<std::string> parts;
  if (!diagnosis.headline.empty()) parts.push_back(diagnosis.headline);
  if (!diagnosis.passes_without.empty()) {
    parts.push_back(
        fmt::format("passes without {}", fmt::join(diagnosis.passes_without, "; without ")));
  }
  if (parts.empty()) return "";
  if (!diagnosis.blamed.empty()) parts.push_back("blamed on " + diagnosis.blamed);
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::vector<Diagnosis> read_diagnoses(std::istream& in) {
  const auto json = parse_json(std::string(std::istreambuf_iterator<char>(in), {}));
  std::vector<Diagnosis> diagnoses;
  try {
    for (const auto& group : json.at("groups")) {
      Diagnosis each = {.testee = group.at("testee").get<std::string>(),
                        .case_id = group.at("case").get<std::string>(),
                        .headline = group.at("headline").get<std::string>(),
                        .blamed = group.at("blamed").get<std::string>()};
      for (const auto& relief : group.at("passes_without")) {
        each.passes_without.push_back(relief.at("what").get<std::string>());
      }
      diagnoses.push_back(std::move(each));
    }
  } catch (const nlohmann::json::exception& error) {
    throw InputError("", fmt::format("{}: {}", kDiagnosis, error.what()));
  }
  return diagnoses;
}

}  // namespace attest
