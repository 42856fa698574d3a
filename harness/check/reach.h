// What a testee's declaration leaves out of the cases there are, and what that costs it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "cases/case.h"
#include "harness/process/testee.h"
#include "harness/run/asking.h"
#include "spec/index.h"

namespace attest {

// How far a testee would come that claims a profile, in the formats that it declares.
struct ProfileReach {
  std::string name;
  bool claimed = false;
  Index demanded = 0, asked = 0;  // cases
  // Features and promises that it lacks, and "limits", without which it would be more.
  std::set<std::string> needs = {};
};

struct TesteeReach {
  Index cases = 0;
  Index as_they_are = 0, fitted = 0, alike = 0;  // asked; and those that run as another
  std::map<std::string, Index> formats = {};     // cases of those that are not declared
  std::map<std::string, Index> features = {};    // cases that need one that is not declared
  std::map<std::string, Index> limits = {};      // cases outside one
  std::vector<std::string> bare_formats = {};    // declared, without any arithmetic
  std::vector<DispatchMet> dispatch = {};        // by table of its own
  std::vector<ProfileReach> profiles = {};       // that demand anything in its formats
};

// `asking` is of these cases and that testee.
TesteeReach reach_of(const Testee& testee, const std::vector<Case>& cases, const Asking& asking);

}  // namespace attest
