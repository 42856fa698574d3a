// The laws by name, as cases ask for them ("laws": ["permuted_keys"]). What they mean stands in
// SPEC.md, chapter "Laws"; harness/laws/ tries them.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "spec/problem.h"

namespace attest {

struct LawName {
  std::string_view name;
  std::string_view clause;  // that a broken law breaks
  // Whether it may be asked for beside an "excerpt": it looks at every row and key, but walks over
  // no score matrix, and says something where bounds are coarse.
  bool of_long = false;
};

std::span<const LawName> law_names();

// Null if there is none of that name.
const LawName* find_law(std::string_view name);

// The clauses of what the law's variants of a problem use and the problem itself does not: a testee
// that lacks it cannot be tried (spec/profile.h).
std::vector<std::string_view> clauses_of_variants(const LawName& law, const Problem& problem);

}  // namespace attest
