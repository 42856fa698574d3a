// Smaller problems that pass: a case that fails, with one feature left out or one size reduced.
// Where such a case passes, what it lacks is what is wrong.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/process/executor.h"
#include "harness/process/testee.h"
#include "harness/run/run.h"

namespace attest {

struct Relief {
  std::string what;                       // "softcap": it passes without that
  std::vector<std::string> clauses = {};  // that speak of it
};

// An entry of a case with one thing less.
struct Smaller {
  Relief relief;
  nlohmann::json entry;
};

// All of an entry. Some may be no case at all.
std::vector<Smaller> smaller_than(const nlohmann::json& entry);

// What a failing case passes without, on that testee; empty for a case that no entry says, such as
// one that was fitted.
std::vector<Relief> reliefs(const Case& test_case, const Testee& testee, Executor& executor,
                            const RunOptions& options, const std::function<bool()>& interrupted);

}  // namespace attest
