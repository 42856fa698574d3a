// Random search: random problems, each judged as any case is, until one fails; that one is made as
// small as it gets and becomes an entry of a case file.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/run.h"
#include "harness/testee.h"
#include "spec/record.h"

namespace attest {

struct FuzzOptions {
  std::uint64_t seed = 1;
  std::uint64_t count = 0;         // problems to try; 0: no limit
  double seconds = 0;              // after which no further problem is begun; 0: no limit
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
  std::map<std::string, Index> tried = {};  // problems by the name of their outcome
  std::optional<Find> found = {};
};

// Tries problems until one fails, whose number is then the least of all that do: the same for any
// number of jobs. Stops early once `interrupted` says so. `seen` is told of each verdict.
FuzzResult fuzz(const Testee& testee, const FuzzOptions& options, const MakeExecutor& make_executor,
                const std::function<void(const Verdict&)>& seen,
                const std::function<bool()>& interrupted);

// Makes an entry on which that verdict was given as small as it gets while the outcome and its
// reason stay the same, and says in it what was found, and `by` whom. What does not fail again when
// it is tried alone stays as it is.
Find shrunk(const Find& find, const std::string& by, const Testee& testee,
            const RunOptions& options, const MakeExecutor& make_executor,
            const std::function<bool()>& interrupted);

}  // namespace attest
