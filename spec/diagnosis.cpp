#include "spec/diagnosis.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <istream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "spec/json_reader.h"
#include "spec/json_text.h"

namespace attest {

std::string admitted_text(const std::vector<std::string>& declarations) {
  if (declarations.empty()) return "";
  return fmt::format("within its bounds with {} declared", fmt::join(declarations, ", or "));
}

std::vector<std::string> diagnosis_lines(const Diagnosis& diagnosis) {
  std::vector<std::string> lines;
  if (!diagnosis.headline.empty()) lines.push_back(diagnosis.headline);
  if (const auto text = admitted_text(diagnosis.admitted_by); !text.empty()) lines.push_back(text);
  if (!diagnosis.passes_without.empty()) {
    lines.push_back(
        fmt::format("passes without {}", fmt::join(diagnosis.passes_without, "; without ")));
  }
  if (!lines.empty() && !diagnosis.blamed.empty()) lines.push_back("blamed on " + diagnosis.blamed);
  return lines;
}

std::string diagnosis_text(const Diagnosis& diagnosis) {
  return fmt::format("{}", fmt::join(diagnosis_lines(diagnosis), "; "));
}

std::vector<Diagnosis> read_diagnoses(std::istream& in) {
  const auto json = parse_json(std::string(std::istreambuf_iterator<char>(in), {}));
  std::vector<Diagnosis> diagnoses;
  try {
    for (const auto& group : json.at("groups")) {
      Diagnosis each = {.testee = group.at("testee").get<std::string>(),
                        .case_id = group.at("case").get<std::string>(),
                        .headline = group.at("headline").get<std::string>(),
                        .admitted_by = group.value("admitted_by", std::vector<std::string>()),
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
