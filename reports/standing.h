// How a testee stands to a profile, in words.
#pragma once

#include <string>

#include "spec/record.h"

namespace attest {

// "met", "met within limits", "met, with exp of 736 units", "not met: only with exp of 736 units",
// "not met: 12 of 13", "not asked: 42 cases need gqa"; where a run cannot show it "no failure in
// 3", "incomplete: 3 of 13"; "no case". Every page says it in these words.
std::string standing_text(const ProfileRecord& profile);

// Whether it is met: plainly, or within limits or with arithmetic beyond the default column; or
// nobody can say.
enum class Met { plainly, otherwise, unknown, no };
Met is_met(const ProfileRecord& profile);

// "within limits, which have nothing of MASK-3, with exp of 736 units": what keeps it from being
// met plainly; empty if nothing.
std::string proviso_text(const ProfileRecord& profile);

// Whether all that is amiss is arithmetic beyond the default column, which a bare name doesn't
// take.
bool met_only_with(const ProfileRecord& profile);

}  // namespace attest
