#include "harness/criteria/subjects.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>

#include "harness/selfcheck/catalogue.h"

namespace attest::criteria {
namespace {

// Catalogues name kernels with or without their family.
bool is_called(const Testee& testee, const std::string& name) {
  return testee.kernel == name || testee.kernel.ends_with("/" + name);
}

std::vector<DType> common(const std::vector<DType>& a, const std::vector<DType>& b) {
  std::vector<DType> both;
  std::copy_if(a.begin(), a.end(), std::back_inserter(both),
               [&](DType dtype) { return std::find(b.begin(), b.end(), dtype) != b.end(); });
  return both;
}

}  // namespace

std::vector<Subject> subjects_of(const std::vector<Testee>& testees,
                                 const std::filesystem::path& mutants) {
  std::vector<Subject> subjects;
  std::optional<Catalogue> catalogue;
  for (const Testee& testee : testees) {
    std::error_code none;
    const std::vector<DType>& dtypes = testee.description.dtypes;
    if (testee.plugin.empty() || !std::filesystem::equivalent(testee.plugin, mutants, none)) {
      subjects.push_back({.testee = testee, .wrong = false, .dtypes = dtypes});
      continue;
    }
    if (!catalogue) catalogue = load_catalogue(mutants);
    for (const Mutant& mutant : catalogue->mutants) {
      if (!is_called(testee, mutant.name)) continue;
      subjects.push_back({.testee = testee,
                          .wrong = true,
                          .dtypes = mutant.dtypes.empty() ? dtypes : common(mutant.dtypes, dtypes),
                          .clauses = mutant.clauses});
    }
    for (const std::string& control : catalogue->controls) {
      if (!is_called(testee, control)) continue;
      subjects.push_back({.testee = testee, .wrong = false, .dtypes = dtypes});
    }
  }
  return subjects;
}

}  // namespace attest::criteria
