// Cases fitted to a testee's own dispatch (the key "dispatch" of its description; SPEC.md, Fitted
// cases, 6): each instance that it declares shall be met by several cases.
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

// A case as a testee is asked it, and whether it may be asked in other sizes as well.
struct AskedCase {
  const Case* asked;
  bool may_be_fitted = false;
};

// Calls add(n, case) for each form of the n-th of `asked` that is to be asked besides, unless that
// says that it is asked already (false), so that an instance is met that few cases are in. What is
// asked stays as it is: who declares much is asked more, and nobody less. `base_of` gives the case
// itself, of which `asked` may be a fitted form. Once interrupted, it leaves the rest.
std::vector<DispatchMet> meet_dispatch(const Description& testee,
                                       const std::vector<AskedCase>& asked,
                                       const std::function<CaseWithEntry(std::size_t n)>& base_of,
                                       const std::function<bool(std::size_t n, Case fitted)>& add,
                                       const std::function<bool()>& interrupted);

}  // namespace attest
