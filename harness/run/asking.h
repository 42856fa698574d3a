// What of each case a testee is asked: the case, the case fitted to its limits (cases/fit.h), or
// nothing, and why. Decided from its declaration alone, before the run.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "cases/case.h"
#include "harness/process/testee.h"
#include "harness/run/dispatched.h"
#include "spec/record.h"
#include "spec/verdict.h"

namespace attest {

class Asking {
 public:
  // Of all cases of a selection, before it is cut into shards. `root` is where they are from; it is
  // read again only if some testee is to be fitted. Once interrupted, it stops looking for forms.
  Asking(
      const std::vector<Case>& cases, const std::vector<Testee>& testees,
      const std::filesystem::path& root,
      const std::function<bool()>& interrupted = [] { return false; });

  // What a testee is asked in place of a case, if not the case itself.
  struct Instead {
    std::shared_ptr<const Case> fitted = {};  // null: nothing
    Verdict verdict = {};                     // if nothing
    // Of nothing: the features that are missing, or else the limit (Fitted::stopped_by).
    std::vector<std::string> stopped_by = {};
  };
  // What it is asked of these cases, as they are or fitted, and besides.
  std::vector<Case> asked(const std::string& testee, const std::vector<Case>& cases) const;

  // What it is asked besides a case: forms of it that are fitted to its own dispatch.
  std::vector<const Case*> besides(const std::string& testee, const std::string& case_id) const;

  // What of its own dispatch they meet, by table.
  std::vector<DispatchMet> dispatch_met(const std::string& testee) const;

  // Of these cases.
  Index count_besides(const std::string& testee, const std::vector<Case>& cases) const;

  // Null: the case itself.
  const Instead* instead(const std::string& testee, const std::string& case_id) const;

 private:
  template <class Entries>  // the cases as entries
  void meet_own_dispatch(const Testee& testee, const std::vector<Case>& cases, Entries& entries,
                         const std::function<bool()>& interrupted);

  // By testee, then by case.
  std::unordered_map<std::string, std::unordered_map<std::string, Instead>> instead_;
  std::unordered_map<std::string, std::vector<DispatchMet>> dispatch_met_;
  using Besides = std::unordered_map<std::string, std::vector<std::shared_ptr<const Case>>>;
  std::unordered_map<std::string, Besides> besides_;  // likewise
};

// What the testees of a run are asked by their own dispatch goes into its header. `cases` are those
// of its shard.
void note_dispatch(const Asking& asking, const std::vector<Case>& cases, Header& header);

// How many verdicts a run has, by its header.
std::size_t verdicts_on(const std::vector<Case>& cases, const Header& header);

}  // namespace attest
