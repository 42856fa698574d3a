// From verdicts to a conclusion: the profiles met, and the exit code (SPEC.md, chapter "Verdicts").
#pragma once

#include <map>
#include <string>
#include <vector>

#include "spec/record.h"

namespace attest {

enum ExitCode {
  kConformant = 0,
  kNotConformant = 1,
  kUsageOrHarnessError = 2,
  kIncomplete = 3,
};

// The profile that asks for nothing: the cases alone decide.
inline constexpr const char* kNoProfile = "none";

// The footer of a random search that tried so many problems, by outcome name, and found what it has
// verdicts on.
Footer conclude_search(const std::map<std::string, Index>& tried,
                       const std::vector<VerdictRecord>& found);

// The footer of a record whose verdicts are all in. `header.profiles` are those asked for, by
// default all that each testee declares; with filters or a shard no profile can be complete.
Footer conclude(const Header& header, const std::vector<VerdictRecord>& verdicts);

}  // namespace attest
