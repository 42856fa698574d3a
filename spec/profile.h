// Profiles: named sets of clauses that a testee must meet to be called conformant to them
// (SPEC.md, chapter "Profiles").
//
// A testee declares the profiles it claims. A case is demanded by a declared profile if it cites a
// clause of that profile and no clause outside all declared profiles: so a backward case under a
// window is demanded of a testee that claims both `training-core` and `masks`, and of no other.
//
// By its bare name a profile is met by arithmetic of the default column alone (NUM-2); as
// `forward-core+declared` it takes what is declared beyond that, too. And as `forward-core/limits`
// it takes a testee that is held to it within its limits alone (SPEC.md, chapter "Limits").
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attest {

struct Profile {
  std::string_view name;
  std::string_view about;
  std::vector<std::string_view> clauses = {};
  std::vector<std::string_view> promises =
      {};  // keys of a declaration, without which it is not met
};

inline constexpr std::string_view kTakesDeclared = "+declared";
inline constexpr std::string_view kTakesLimits = "/limits";

std::span<const Profile> profiles();

// By its name, with or without "+declared" and then "/limits" behind it; null if there is none.
const Profile* find_profile(std::string_view name);

// That there is none of that name, and what there is; where words behind a name stand the wrong way
// round, the right one.
std::string no_profile(std::string_view name);

// Whether a profile that is claimed or asked for so takes arithmetic beyond the default column.
bool takes_declared(std::string_view name);

// Whether it is content with what a testee's limits leave of it.
bool takes_limits(std::string_view name);

// Whether `profile`, one of `declared`, demands a case that cites `cited`.
bool demands(const Profile& profile, std::span<const std::string> declared,
             std::span<const std::string> cited);

}  // namespace attest
