#include "harness/script/script.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "harness/script/cpp.h"
#include "harness/script/failure.h"
#include "harness/script/python.h"
#include "reports/groups.h"
#include "spec/contains.h"

namespace attest {
namespace scripts {
namespace {

// What a person reads over.
constexpr Index kMostBits = 256, kMostNumbers = 64;

bool is_missed(const TensorEvidence& evidence) {
  const bool is_exact = evidence.actual == evidence.exact;  // infinite too
  return !evidence.worst.empty() &&
         !(evidence.max_ratio <= 1 && (is_exact || std::isfinite(evidence.actual)));
}

// The tensor that is furthest beyond its bound; LSE, of which fewer kernels tell, if it is the only
// one, and not where it is not returned. Null where there is none.
const std::pair<const TensorName, TensorEvidence>* worst_of(ScriptLanguage language,
                                                            const Verdict& verdict) {
  const bool returns_lse = language == ScriptLanguage::numpy || language == ScriptLanguage::cpp;
  const std::pair<const TensorName, TensorEvidence>* worst = nullptr;
  for (const auto& each : verdict.tensors) {
    const bool is_lse = each.first == TensorName::lse;
    if (!is_missed(each.second) || (is_lse && (worst || !returns_lse))) continue;
    const bool is_further = !worst || each.second.max_ratio > worst->second.max_ratio;
    if (is_further || worst->first == TensorName::lse) worst = &each;
  }
  return worst;
}

// Whether tensors lie so that it cannot be said: torch says it of what is given to its function.
bool lies_otherwise(ScriptLanguage language, const Problem& p) {
  constexpr std::array kGiven = {TensorName::q, TensorName::k, TensorName::v, TensorName::d_o};
  return std::any_of(kLaidOut.begin(), kLaidOut.end(), [&](TensorName tensor) {
    const bool is_given = language == ScriptLanguage::torch && contains(kGiven, tensor);
    return is_given ? p.layouts[tensor].is_wild() : p.layouts[tensor] != Layout();
  });
}

// That of an issue: of whoever has that name.
ScriptLanguage own(ScriptLanguage language, const Testee& testee) {
  if (language != ScriptLanguage::issue) return language;
  return testee.kernel.starts_with("torch") ? ScriptLanguage::torch
         : testee.kernel.starts_with("jax") ? ScriptLanguage::jax
                                            : ScriptLanguage::numpy;
}

std::string issue(ScriptLanguage language, const Failure& failure) {
  const Description& d = failure.testee.description;
  std::string clauses;
  for (const std::string& each : failure.verdict.clauses) {
    clauses += fmt::format("- {}\n", clause_with_title(each));
  }
  return fmt::format(
      "### {} is wrong: {}\n\n`{}` {}{}\n\n{}[{}] is {}; exactly it is {}, and the arithmetic "
      "declared is at most {:.3g} away.\n\n```python\n{}```\n\nWhat it breaks:\n\n{}",
      name(failure.tensor), to_string(failure.problem()), failure.testee.name, d.version,
      d.vendor.empty() ? "" : fmt::format(", {}", d.vendor), name(failure.tensor),
      failure.element(), failure.worst.actual, failure.worst.exact, failure.worst.bound,
      python(language, failure), clauses);
}

}  // namespace

}  // namespace scripts

using nlohmann::json;

json with_formula(json entry) {
  entry["data"] = json::array({"counted"});
  return entry;
}

bool has_formula(const json& entry) { return entry.at("data") == json::array({"counted"}); }

bool shows_in(ScriptLanguage language, const Verdict& verdict, const Testee& testee) {
  return scripts::worst_of(scripts::own(language, testee), verdict) != nullptr;
}

std::string unsayable_in(ScriptLanguage language, const Case& test_case, const Verdict& verdict,
                         const Testee& testee) {
  const Problem& p = test_case.problem;
  if (!shows_in(language, verdict, testee)) return "no number is wrong that is returned there";
  if (test_case.hidden != Hidden::plain) return "what lies hidden in the inputs";
  if (p.packed) return "packed sequences";
  if (p.paging.page_size > 0) return "pages";
  if (p.stored.any()) return "numbers that are stored in 8 bits";
  if (p.dropout.mode != Dropout::Mode::none) return "dropout";
  if (p.slopes_shape) return "ALiBi";
  if (p.sink) return "sinks";
  if (p.d_lse) return "a gradient with respect to LSE";
  language = scripts::own(language, testee);
  if (scripts::lies_otherwise(language, p)) return "tensors that lie otherwise than in order";
  if (p.bias_shape && element_count(*p.bias_shape) > scripts::kMostNumbers) {
    return fmt::format("a bias of {} numbers", element_count(*p.bias_shape));
  }
  const bool is_told = scripts::sees_all(p) || scripts::diagonals_of(p);
  if (!is_told && element_count(p.keep_shape()) > scripts::kMostBits) {
    return fmt::format("a mask of {} elements", element_count(p.keep_shape()));
  }
  const bool has_softcap = language == ScriptLanguage::numpy || language == ScriptLanguage::cpp;
  if (p.softcap != 0 && !has_softcap) return "a softcap, which its function has not";
  return "";
}

std::string script_of(ScriptLanguage language, const Case& test_case, const Verdict& verdict,
                      const Testee& testee) {
  const ScriptLanguage own = scripts::own(language, testee);
  const auto& [tensor, worst] = *scripts::worst_of(own, verdict);
  const scripts::Failure failure = {test_case, verdict, testee, tensor, worst};
  if (language == ScriptLanguage::issue) return scripts::issue(own, failure);
  return own == ScriptLanguage::cpp ? scripts::cpp(failure) : scripts::python(own, failure);
}

}  // namespace attest
