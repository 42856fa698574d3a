// A failure in its owner's language: a script of at most 30 lines with the problem, inputs by a
// formula, and the exact value of the worst element, which needs nothing of Attest.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cases/case.h"
#include "harness/process/testee.h"
#include "harness/script/language.h"
#include "spec/verdict.h"

namespace attest {

// The entry with numbers by the formula (class "counted") in place of its own.
nlohmann::json with_formula(nlohmann::json entry);
bool has_formula(const nlohmann::json& entry);

// Whether some number is wrong that can be shown there: torch and jax return no LSE.
bool shows_in(ScriptLanguage language, const Verdict& verdict, const Testee& testee);

// What of that failure cannot be said there, in words: "pages". Empty if all can.
std::string unsayable_in(ScriptLanguage language, const Case& test_case, const Verdict& verdict,
                         const Testee& testee);

// Of a case with numbers by the formula that a testee failed by a number, and that can be said.
std::string script_of(ScriptLanguage language, const Case& test_case, const Verdict& verdict,
                      const Testee& testee);

}  // namespace attest
