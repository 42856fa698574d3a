// Mutants that are wrong in one instance alone: which of them do the cases see that the instance
// selects, and which random problems?
//
// For the problems of its instance such a mutant is the mutant itself, and for all others the
// kernel without a fault: so it is tried on the former alone. Drawn are mutants whose fault shows
// in many problems, so that it would show in an instance too: one in twenty of random ones.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "cases/case.h"
#include "cases/entry.h"
#include "harness/instances/dispatch_table.h"
#include "harness/process/testee.h"
#include "harness/run/run.h"
#include "harness/selfcheck/catalogue.h"

namespace attest::instances {

// What saw it first, in this order.
enum class Seen {
  by_a_case,
  by_a_random_problem,  // of those that are drawn for the whole kernel
  by_a_drawn_one,       // of those that are drawn for the instance
  by_nothing,           // its fault does not show there, as far as is known
};

struct Swept {
  Instance instance;
  std::string mutant;
  std::size_t cases = 0;  // of the instance
  Seen seen = Seen::by_nothing;
  std::string where = {};  // the id
};

struct SweepOptions {
  std::size_t mutants = 0;  // to be drawn
  std::uint64_t seed = 1;
  std::uint64_t problems = 0;  // random ones, for the whole kernel
  // Each kernel declares the dispatch that it is wrong in an instance of: the cases, which lie in
  // this folder, and the random problems are fitted to it. Empty: it declares none.
  std::filesystem::path declared = {};
  RunOptions run = {};
};

struct Sweep {
  std::vector<Swept> swept = {};  // in the order in which they were drawn
  bool interrupted = false;
};

// `testees` are the kernels of the plug-in that the catalogue is of.
Sweep sweep(const std::vector<Case>& cases, const std::vector<CaseWithEntry>& suite,
            const std::vector<DispatchTable>& dispatches, const Catalogue& catalogue,
            const std::vector<Testee>& testees, const SweepOptions& options,
            const MakeExecutor& make_executor, const std::function<void()>& tried,
            const std::function<bool()>& interrupted);

// By table: how many that show are seen by cases, and by random problems too, with the interval
// that holds the rate with 95 % (E. B. Wilson, 1927), apart for tables that were held out; and
// those that are not, by mutant.
std::string to_text(const Sweep& sweep);
std::string to_json(const Sweep& sweep);

struct Rate {
  std::size_t seen = 0, of = 0;
  double low() const;
  double high() const;
};
// Of tables that were held out, if any were, else of all.
Rate by_cases(const Sweep& sweep);
Rate by_random_problems_too(const Sweep& sweep);

}  // namespace attest::instances
