// The clause that a failure is blamed on once more is known than its verdict tells: which mistake
// gives what came back, and what the testee passes without.
//
//   a mistake gives just that         its clause
//   it passes without a softcap       SCORE-2, whatever the verdict blames
//   it fails without a bias too       not SCORE-3
#pragma once

#include <string>
#include <vector>

#include "cases/case.h"
#include "harness/diagnosis/likeness.h"
#include "harness/diagnosis/smaller.h"
#include "spec/verdict.h"

namespace attest {

// How many failing cases were looked at for `alike`. Of one alone, which may be small, a mistake of
// another subject matches as well: what rows tell goes first, and names that it does not cite count
// only where it passes without them.
enum class LookedAt { one, several };

// Empty if the verdict blames nothing.
std::string culprit(const Verdict& verdict, const Case& test_case,
                    const std::vector<Likeness>& alike, const std::vector<Relief>& reliefs,
                    LookedAt looked = LookedAt::several);

// Of mistakes that cannot be told apart, those first whose clause is blamed.
void put_first(std::vector<Likeness>& alike, const std::string& blamed);

}  // namespace attest
