// Profiles: named sets of clauses that a testee must meet to be called conformant to them
// (SPEC.md, chapter "Profiles").
//
// A testee declares the profiles it claims. A case is demanded by a declared profile if it cites a
// clause of that profile and no clause outside all declared profiles: so a backward case under a
// window is demanded of a testee that claims both `training-core` and `masks`, and of no other.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attest {

struct Profile {
  std::string_view name;
  std::string_view about;
  std::span<const std::string_view> clauses;
};

std::span<const Profile> profiles();
const Profile* find_profile(std::string_view name);

// Whether `profile`, one of `declared`, demands a case that cites `cited`.
bool demands(const Profile& profile, std::span<const std::string> declared,
             std::span<const std::string> cited);

}  // namespace attest
