// Whether a diagnosis names what is wrong: "did you mean", asked of mutants whose fault is known.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cases/case.h"
#include "harness/process/testee.h"
#include "harness/run/run.h"
#include "harness/selfcheck/catalogue.h"

namespace attest {

// Of each mutant that is asked about, the mistakes that say what it does; none if no mistake
// does, and so none may be named.
using Meant = std::map<std::string, std::vector<std::string>>;

// Throws InputError, naming the file, for unknown keys and mistakes.
Meant read_meant(const std::filesystem::path& file);

// What was named for one mutant.
struct Naming {
  std::string mutant;
  std::string case_id = {};  // of the first case with a name; else of the last that it failed
  Index failed = 0;          // cases whose numbers were wrong
  std::vector<std::string> names = {};
  std::string headline = {};
  bool right = false;

  bool wrong() const { return !names.empty() && !right; }
};

// Asks of each mutant on cases of the clauses that it violates, in their order, until some
// mistake is named of one kind of failures (reports/groups.h); in as many jobs as the options say. Throws InputError for a mutant that the
// catalogue lacks.
std::vector<Naming> name_faults(const std::vector<Case>& cases, const Catalogue& catalogue,
                                const std::vector<Testee>& testees, const Meant& meant,
                                const RunOptions& options, const MakeExecutor& make_executor,
                                const std::function<bool()>& interrupted);

// A line for each mutant, and the share that is named right.
std::string to_text(const std::vector<Naming>& namings);

// Whether at least 80 % are named right, and none wrong.
bool holds(const std::vector<Naming>& namings);

}  // namespace attest
