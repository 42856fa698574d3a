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

// What the header of a random search has as its tier.
inline constexpr const char* kSearchTier = "fuzz";

// The footer of a random search that tried so many problems, by outcome name, and found what it has
// verdicts on.
Footer conclude_search(const std::map<std::string, Index>& tried,
                       const std::vector<VerdictRecord>& found);

// The footer of a record whose verdicts are all in, without times and digests. `header.profiles`
// are those asked for, by default all that each testee declares; with filters or a shard, or on
// other cases than those of the suite, no profile can be complete. Only the complete standard or
// full tier, of contained testees, is conformant; whatever else has no failure says just that.
Footer conclude(const Header& header, const std::vector<VerdictRecord>& verdicts);

// Makes the footer that of testees whose files changed during the run, in words: nothing can be
// concluded then. No words: it stays.
void note_changes(Footer& footer, const std::vector<std::string>& changed);

}  // namespace attest
