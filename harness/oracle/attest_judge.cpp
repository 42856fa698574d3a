#include "spec/attest_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "harness/oracle/given.h"
#include "harness/oracle/oracle.h"
#include "harness/oracle/strided.h"
#include "spec/clause.h"
#include "spec/description_text.h"
#include "spec/json_text.h"
#include "spec/record.h"

namespace {

using nlohmann::json;

constexpr std::size_t kOptionsBytes =
    offsetof(attest_judge_options, skips_diagnosis) + sizeof(std::int32_t);

attest::Description kernel_by(const char* arithmetic, attest::DType dtype) {
  if (!arithmetic) throw attest::InputError("options.arithmetic", "is NULL");
  try {
    return attest::description_by(arithmetic, dtype);
  } catch (const attest::InputError& error) {
    throw attest::InputError("options.arithmetic" + error.pointer(), error.what());
  }
}

int threads_by(std::int32_t wanted) {
  constexpr int kMost = 256;
  if (wanted < 0) {
    throw attest::InputError("options.threads", fmt::format("is {}, less than 0", wanted));
  }
  const auto all = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(wanted > 0 ? wanted : all, 1, kMost);
}

json verdict_of(const attest::Judgement& judgement, const std::string& problem,
                const std::vector<std::string>& beyond_default) {
  const attest::Verdict& verdict = judgement.verdict;
  json j = attest::to_json(
      attest::VerdictRecord{.case_id = "", .testee = "", .dtype = "", .verdict = verdict});
  for (const char* key : {"kind", "case", "testee", "dtype", "because", "wall_s", "repro"}) {
    j.erase(key);
  }
  const attest::Clause* clause = attest::find_clause(verdict.blamed);
  j["blamed"] = verdict.blamed;
  j["title"] = clause ? clause->title : "";
  j["passed"] = attest::conforms(verdict.outcome);
  j["did_you_mean"] = judgement.meant;
  j["sampled"] = judgement.sampled;
  j["unspecified"] = judgement.unspecified;
  j["problem"] = problem;
  j["arithmetic"] = beyond_default;
  return j;
}

json judged(const attest_problem* problem, const attest_inputs* inputs,
            const attest_outputs* outputs, const attest_judge_options* options) {
  const auto how = attest::known_fields(options, kOptionsBytes, "options");
  attest::Given given = attest::read_given(problem, inputs, outputs);
  attest::Description kernel = kernel_by(how.arithmetic, given.problem.dtype);
  if (kernel.dialect.lse.apart) {
    throw attest::InputError("options.arithmetic/lse", "maximum and sum are not judged here");
  }
  kernel.leaves_padding_unwritten |= how.ignores_padding != 0;
  const auto declared = kernel.arithmetic.find(given.problem.dtype);
  const auto beyond = declared == kernel.arithmetic.end()
                          ? std::vector<std::string>()
                          : attest::beyond_default(declared->second);
  const std::string text = attest::to_string(given.problem);
  return verdict_of(attest::judge_given(std::move(given), kernel, threads_by(how.threads),
                                        how.skips_diagnosis == 0),
                    text, beyond);
}

// Memory of malloc, as C has it; NULL if there is none.
char* copied(const std::string& text) {
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy) std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

std::string error_text(const std::string& where, const std::string& what) {
  return attest::json_text({{"error", {{"where", where}, {"what", what}}}});
}

}  // namespace

attest_status attest_judge(const attest_problem* problem, const attest_inputs* inputs,
                           const attest_outputs* outputs, const attest_judge_options* options,
                           char** verdict) {
  if (!verdict) return ATTEST_ERROR;
  *verdict = nullptr;
  // Nothing may leave: whoever calls may be C, or Python.
  try {
    try {
      *verdict = copied(attest::json_text(judged(problem, inputs, outputs, options)));
      return *verdict ? ATTEST_OK : ATTEST_ERROR;
    } catch (const attest::InputError& error) {
      *verdict = copied(error_text(error.pointer(), error.what()));
    } catch (const std::bad_alloc&) {
      *verdict = copied(error_text("memory", "there is not enough to judge this problem"));
    } catch (const std::exception& error) {
      *verdict = copied(error_text("attest", error.what()));
    }
  } catch (...) {  // no memory is left even for that
  }
  return ATTEST_ERROR;
}

void attest_judge_free(char* verdict) { std::free(verdict); }
