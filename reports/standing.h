// How a testee stands to a profile, in words.
#pragma once

#include <string>

#include "spec/record.h"

namespace attest {

// "met", "met, with exp of 736 units", "not met: only with exp of 736 units", "not met: 12 of 13";
// where a run cannot show it "no failure in 3", "incomplete: 3 of 13"; "no case"
std::string standing_text(const ProfileRecord& profile);

// Whether all that is amiss is arithmetic beyond the default column, which a bare name doesn't
// take.
bool met_only_with(const ProfileRecord& profile);

}  // namespace attest
