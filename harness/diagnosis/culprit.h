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

// What a mistake that matches is worth: it goes first where it is told beside what is blamed; where
// one problem alone was looked at, which may be small, a mistake of another subject may match as
// well, so that what rows tell goes first, and then names that the case cites or that are cured.
enum class Names { first, doubted };

// Empty if the verdict blames nothing.
std::string culprit(const Verdict& verdict, const Case& test_case,
                    const std::vector<Likeness>& alike, const std::vector<Relief>& reliefs,
                    Names names = Names::first);

// Of mistakes that cannot be told apart, those first whose clause is blamed.
void put_first(std::vector<Likeness>& alike, const std::string& blamed);

}  // namespace attest
