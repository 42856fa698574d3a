// Random search: random problems, each judged as any case is; what fails is made as small as it
// gets and becomes an entry of a case file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cases/entry.h"
#include "harness/process/testee.h"
#include "harness/run/run.h"
#include "spec/record.h"

namespace attest {

struct FuzzOptions {
  std::uint64_t seed = 1;
  std::uint64_t first = 0;         // the number of the first problem
  std::uint64_t count = 0;         // problems to try; 0: no limit
  double seconds = 0;              // after which no further problem is begun; 0: no limit
  std::size_t finds = 1;           // distinct ones, after which the search ends
  bool finite = false;             // no NaN and no infinity among the inputs
  std::vector<DType> dtypes = {};  // empty: all that the testee declares
  RunOptions run = {};
};

// A case that fails.
struct Find {
  nlohmann::json entry;
  Verdict verdict;
};

// What one search came to.
struct FuzzResult {
  SearchRecord record = {};
  std::vector<Find> found = {};  // in the order of their numbers
};

// Tries problems, some of them made of entries of `suite`, until so many distinct causes are found:
// the same for any number of jobs. Stops early once `interrupted` says so. `seen` is told of each
// verdict.
//
// Finds are of one cause if they are of one form when they are small: of the same outcome and
// reason, format, class of numbers and features, whatever their sizes. Of those that the form of an
// earlier find explains, no more than a few are made small.
FuzzResult fuzz(const Testee& testee, const std::vector<CaseWithEntry>& suite,
                const FuzzOptions& options, const MakeExecutor& make_executor,
                const std::function<void(const VerdictRecord&)>& seen,
                const std::function<bool()>& interrupted);

// Makes an entry on which that verdict was given as small as it gets while the outcome and its
// reason stay the same, and says in it what was found, and `by` whom. What does not fail again when
// it is tried alone stays as it is; once `interrupted` says so, what is smallest then. What is not
// `wanted` counts as no failure.
Find shrunk(
    const Find& find, const std::string& by, const Testee& testee, const RunOptions& options,
    const MakeExecutor& make_executor, const std::function<bool()>& interrupted,
    const std::function<bool(const Find&)>& wanted = [](const auto&) { return true; });

// A search's find, as a verdict on the case that `file` has.
VerdictRecord record_of(const Find& find, const Testee& testee, RunOptions options,
                        const std::filesystem::path& file);

}  // namespace attest
