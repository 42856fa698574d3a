// What the failures of a run have in common: groups of like ones, and for the simplest of them what
// the testee computes instead, and what it passes without. Decides no verdict.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "harness/diagnosis/likeness.h"
#include "harness/diagnosis/smaller.h"
#include "spec/record.h"

namespace attest {

// Failures of one testee that have outcome, reason, features and wrong tensors in common, whatever
// their format.
struct Group {
  std::string testee;
  Outcome outcome;
  Reason reason;
  std::vector<std::string> features;  // that the problem needs
  std::vector<std::string> tensors;   // that are wrong
  Index failures = 0;
  std::string case_id;  // of the simplest
  std::vector<Likeness> alike = {};
  std::vector<Relief> reliefs = {};
  std::string blamed = {};  // by all of that
};

// More groups than that are not looked at: the simplest are told.
inline constexpr std::size_t kMostGroups = 20;

// Of a record of a run on some of `cases`. Ends early, with what it has, once `interrupted` says
// so.
std::vector<Group> diagnose(const Record& record, const std::vector<Case>& cases,
                            const std::vector<Testee>& testees, const RunOptions& options,
                            const MakeExecutor& make_executor,
                            const std::function<bool()>& interrupted);

nlohmann::json to_json(const std::vector<Group>& groups);

// A line for each group of which something is known; empty if there is none.
std::string to_text(const std::vector<Group>& groups);

}  // namespace attest
