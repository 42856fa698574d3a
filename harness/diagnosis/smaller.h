// Smaller problems that pass: a case that fails, with one feature left out or one size reduced.
// Where such a case passes, what it lacks is what is wrong.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cases/entry.h"
#include "harness/process/executor.h"
#include "harness/process/testee.h"
#include "harness/run/run.h"

namespace attest {

inline constexpr const char* kAMask = "a mask";  // as a whole

struct Relief {
  std::string what;                       // "a softcap"
  std::vector<std::string> clauses = {};  // that speak of it
  bool passes = false;                    // without it
  bool is_part = false;                   // of a mask of several
};

// What a failing case was judged without, on that testee; empty for a case that no entry says, such
// as one that was fitted.
std::vector<Relief> reliefs(const Case& test_case, const Testee& testee, Executor& executor,
                            const RunOptions& options, const std::function<bool()>& interrupted);

// What is tried for that. Some entries may be no case at all.
std::vector<nlohmann::json> entries_smaller_than(const CaseWithEntry& whole);

}  // namespace attest
