// What the failures of a run have in common: of each group of like ones (reports/groups.h) what the
// testee computes instead, and what it passes without. Decides no verdict.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "harness/diagnosis/likeness.h"
#include "harness/diagnosis/smaller.h"
#include "spec/diagnosis.h"
#include "spec/record.h"

namespace attest {

struct Group {
  std::string testee;
  Outcome outcome;
  Reason reason;
  std::vector<TensorName> tensors;  // that are wrong
  Index failures;
  std::string case_id;                // of the simplest that shows what is told of it
  std::vector<std::string> features;  // that its problem needs
  std::vector<Likeness> alike = {};
  std::vector<std::string> admitted_by = {};  // declarations, if no mistake explains them
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

// A failure by itself, which its group may hide: what explains all that is wrong in it.
struct Explained {
  std::string testee;
  std::string case_id;
  std::vector<Likeness> alike = {};           // sure or not
  std::vector<std::string> admitted_by = {};  // as looser_declarations() of looser.h
};

// Of each failure of the record of which numbers are wrong, in its order, `options.jobs` at a time;
// none of what is too large for that. Ends early once `interrupted` says so.
std::vector<Explained> explain_each(const Record& record, const std::vector<Case>& cases,
                                    const std::vector<Testee>& testees, const RunOptions& options,
                                    const MakeExecutor& make_executor,
                                    const std::function<bool()>& interrupted);

nlohmann::json to_json(const std::vector<Group>& groups);
nlohmann::json to_json(const std::vector<Explained>& failures);

// As reports tell it.
std::vector<Diagnosis> diagnoses_of(const std::vector<Group>& groups);

// What is known of groups, of those alike once; empty if there is nothing.
std::string to_text(const std::vector<Group>& groups);

}  // namespace attest
