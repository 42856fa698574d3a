#include "harness/diagnosis/looser.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "harness/judge/checks.h"
#include "harness/judge/subject.h"
#include "harness/process/nobody.h"
#include "spec/contains.h"
#include "spec/diagnosis.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"
#include "spec/named_arithmetic.h"

namespace attest {
namespace {

constexpr const char* kAnything = "anything";
constexpr const char* kWhatever = "\"anything\"";
constexpr const char* kKeyBlock = "key_block";  // which others need beside them

class Rejudging {
 public:
  Rejudging(PreparedCase& prepared, Description testee, const Trial& trial)
      : prepared_(prepared), testee_(std::move(testee)), trial_(trial) {}

  // What the bounds of a declaration say (PASS if nothing), and how near the worst element is to
  // its own.
  struct Ruling {
    Outcome outcome;
    double ratio;
  };
  Ruling ruling_under(const nlohmann::json& declaration) {
    const DType dtype = prepared_.problem().dtype;
    Arithmetic& arithmetic = testee_.arithmetic[dtype];
    const LseForm lse = arithmetic.lse;
    arithmetic = parse_arithmetic(declaration, dtype, "");
    arithmetic.lse = lse;
    Nobody nobody;
    const std::string name;
    Subject subject(prepared_, testee_, name, nobody, 1);
    const auto finding = check_bounds(subject, trial_, prepared_);
    double ratio = 0;
    for (const auto& [tensor, evidence] : subject.verdict.tensors) {
      ratio = std::max(ratio, evidence.max_ratio);
    }
    return {finding ? finding->outcome : Outcome::pass, ratio};
  }

 private:
  PreparedCase& prepared_;
  Description testee_;
  const Trial& trial_;
};

// `declared` with one key as the default has it or as `loosest` does, and how that is said.
struct Change {
  nlohmann::json declaration;
  std::string said;
};

bool is_declaration(const nlohmann::json& json, DType dtype) {
  try {
    parse_arithmetic(json, dtype, "");
    return true;
  } catch (const InputError&) {  // a key lacks another beside it
    return false;
  }
}

std::vector<Change> changes(const nlohmann::json& declared, const nlohmann::json& loosest,
                            DType dtype) {
  std::vector<Change> all;
  for (const auto& [key, value] : declared.items()) {
    Change without = {declared, fmt::format("no \"{}\"", key)};
    without.declaration.erase(key);
    all.push_back(std::move(without));
  }
  for (const auto& [key, value] : loosest.items()) {
    if (declared.value(key, nlohmann::json()) == value) continue;
    Change with = {declared, fmt::format("\"{}\": {}", key, json_text(value))};
    with.declaration[key] = value;
    if (!is_declaration(with.declaration, dtype)) {
      with.declaration[kKeyBlock] = loosest.at(kKeyBlock);
      with.said += fmt::format(" and \"{}\"", kKeyBlock);
    }
    all.push_back(std::move(with));
  }
  std::erase_if(all, [&](const Change& each) { return !is_declaration(each.declaration, dtype); });
  return all;
}

}  // namespace

std::vector<std::string> looser_declarations(PreparedCase& prepared, const Description& testee,
                                             const Trial& trial,
                                             const std::function<bool()>& interrupted) {
  if (trial.stopped || trial.returned.empty() || is_too_large(prepared.test_case())) return {};
  const DType dtype = prepared.problem().dtype;
  const auto declared = testee.declared_arithmetic.value(name(dtype), nlohmann::json::object());
  const nlohmann::json anything = declaration_named(kAnything, dtype);
  std::optional<PreparedCase> own;
  if (trial.keep) own = prepared.with_keep(*trial.keep);
  Rejudging bounds(own ? *own : prepared, testee, trial);
  if (bounds.ruling_under(declared).outcome != Outcome::fail) return {};
  if (bounds.ruling_under(anything).outcome == Outcome::fail) return {};
  std::vector<std::pair<double, std::string>> admitting;
  for (const Change& change : changes(declared, anything, dtype)) {
    if (interrupted()) return {};
    const auto [outcome, ratio] = bounds.ruling_under(change.declaration);
    if (outcome != Outcome::fail) admitting.emplace_back(ratio, change.said);
  }
  std::stable_sort(admitting.begin(), admitting.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> all;
  for (auto& [ratio, said] : admitting) all.push_back(std::move(said));
  if (all.empty()) all.push_back(kWhatever);
  return all;
}

std::string explanation(const std::vector<Likeness>& meant, PreparedCase& prepared,
                        const Description& testee, const Trial& trial,
                        const std::function<bool()>& interrupted) {
  if (!meant.empty()) return headline(meant);
  return admitted_text(looser_declarations(prepared, testee, trial, interrupted));
}

void Admitting::add(std::vector<std::string> declarations) {
  failures_.push_back(std::move(declarations));
}

bool Admitting::is_hopeless() const {
  return std::any_of(failures_.begin(), failures_.end(),
                     [](const auto& each) { return each.empty(); });
}

std::vector<std::string> Admitting::all() const {
  if (failures_.empty() || is_hopeless()) return {};
  std::vector<std::string> shared = failures_[0];
  for (const auto& each : failures_) {
    std::erase_if(shared, [&](const auto& one) { return !contains(each, one); });
  }
  if (!shared.empty()) return shared;
  // Of each that is not admitted yet, the tightest.
  std::vector<std::string> together;
  for (const auto& each : failures_) {
    const bool is_admitted = std::any_of(each.begin(), each.end(),
                                         [&](const auto& one) { return contains(together, one); });
    if (!is_admitted) together.push_back(each[0]);
  }
  if (contains(together, std::string(kWhatever))) return {kWhatever};
  return {fmt::format("{}", fmt::join(together, " and "))};
}

}  // namespace attest
