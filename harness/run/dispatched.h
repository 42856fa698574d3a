// Cases fitted to a testee's own dispatch (the key "dispatch" of its description; SPEC.md, Fitted
// cases, 6): each instance that it declares shall be met by cases, by several if there are enough.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "cases/case.h"
#include "cases/entry.h"
#include "spec/description.h"

namespace attest {

// Of a table.
struct DispatchMet {
  std::string table;
  std::size_t met = 0;     // instances that cases are in
  std::size_t fewest = 0;  // cases in one of those
  // Those that no case could be fitted to, each by its classes in words.
  std::vector<std::vector<std::string>> beyond;
};

// A case as a testee is asked it, and whether it may be asked in other sizes instead.
struct AskedCase {
  const Case* asked;
  bool is_movable = false;
};

// Calls move(n, case) for each of `asked` that is to be asked otherwise, unless that says that the
// case is none (false), so that an instance is met that fewer cases are in than in its own. No case
// loses a clause by that which few others cite. `base_of` gives the case itself, of which `asked`
// may be a fitted form.
std::vector<DispatchMet> meet_dispatch(const Description& testee,
                                       const std::vector<AskedCase>& asked,
                                       const std::function<CaseWithEntry(std::size_t n)>& base_of,
                                       const std::function<bool(std::size_t n, Case fitted)>& move);

}  // namespace attest
