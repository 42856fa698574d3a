// What keeps a testee from being asked the cases of a profile.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "spec/profile.h"
#include "spec/record.h"

namespace attest {

std::vector<std::string> cut_at(const std::string& text, std::string_view by);

// What a testee would promise that the case is about, if that is why the verdict says nothing.
std::string promise_lacking(const Verdict& verdict);

// Of a profile none of whose cases a testee is asked, in no format: the least that is missing for
// one, most of those that miss so little; each with the number of cases that need it.
std::map<std::string, Index> needs_of(const std::string& testee, const Profile& profile,
                                      const std::vector<std::string>& claimed,
                                      const std::vector<VerdictRecord>& verdicts);

}  // namespace attest
