// What a testee declares beyond the default column of NUM-2.
#pragma once

#include <string>
#include <vector>

#include "spec/profile.h"
#include "spec/record.h"

namespace attest {

// Of one format, in words, as far as it concerns the profile: LSE in another form among it; how
// windows are counted where the profile is of windows; how gradients are rounded where it is of
// these.
std::vector<std::string> declared_beyond_default(const TesteeRecord& testee,
                                                 const std::string& dtype, const Profile& profile);

}  // namespace attest
