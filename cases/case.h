// A case: a problem, its inputs, the clauses that it tries, and why it exists.
//
// Cases are data (cases/**/*.json). The id of a case is its path; it is stable, and the bits of the
// inputs derive from it alone:
//   mask/causal/bottom_right/sq=129,sk=4097,d=64/dtype=bf16/data=ascending/s=1
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest {

enum class Tier { smoke, standard, full };  // each contains the ones before it

// What lies where a result must not depend on it. Whatever is NaN or Inf leaves those results
// unspecified that depend on it; the others are as without it.
enum class Hidden {
  plain,         // numbers like all others
  huge,          // finite, near the largest that keep every score finite: keys nobody sees (HIDE-1)
  nan,           // NaN and Inf: keys beyond a length, unused slots and pages (HIDE-2, PAGE-2)
  nan_rows,      // NaN and Inf in Q, dO and dLSE: queries beyond a length (HIDE-2, MASK-6)
  nan_masked,    // NaN and Inf: keys within the length that the mask hides from every row (HIDE-3)
  nan_query,     // NaN and Inf: some rows of Q (FINITE-1, and FINITE-3 for gradients)
  nan_key,       // NaN and Inf: some keys of K (FINITE-2, and HIDE-3 for rows that don't see them)
  nan_value,     // NaN and Inf: some keys of V (the same)
  nan_gradient,  // NaN and Inf: some rows of dO (FINITE-2)
  large,         // as huge, of scores that stay finite in the format of the inputs, too (HIDE-1)
  nan_scales,    // NaN: scales of nothing but what `nan` fills; the numbers themselves are finite
};

// What is asked beside: how a case is run again, to give the same bits, and what is looked at then.
enum class Check {
  none,
  threads,      // with other numbers of threads (DET-3)
  neighbours,   // each batch element alone (DET-2)
  schedule,     // the blocks that are reported (SCHED-1 to SCHED-3)
  memory,       // what is taken, also at two and four times the lengths (MEM-1, MEM-2)
  stream,       // in a stream other than the default one (DEV-1)
  two_streams,  // beside calls in another stream (DEV-2)
  graph,        // as a graph that is replayed (DEV-3)
  new_shapes,   // after calls of other shapes and strides (DEV-4)
};

// Of how many heads, counted over all batch elements, an excerpt is compared.
struct ExcerptHeads {
  Index query = 0;  // whose O, LSE and dQ
  Index key = 0;    // whose dK and dV, which take all rows of their group
  friend bool operator==(const ExcerptHeads&, const ExcerptHeads&) = default;
};

// What the tensors beside Q, K and V hold.
struct Extras {
  std::string bias = "normal";      // one of bias_kinds() in side_inputs.h
  bool least_numbers = false;       // of what is stored in 8 bits, subnormal ones alone
  DenseMask bias_allows = {};       // of the bias's shape: -inf where it is 0; empty: all finite
  std::vector<double> slopes = {};  // of ALiBi, in dense order; empty: the standard ones
  std::string sink = "normal";      // one of sink_kinds()
  friend bool operator==(const Extras&, const Extras&) = default;
};

struct Case {
  std::string id;
  std::vector<std::string> clauses;
  std::string because;  // one sentence: what breaks here
  Tier tier = Tier::standard;
  Problem problem;
  std::string data;  // the input class, one of input_classes() in generate.h
  Hidden hidden = Hidden::plain;
  Check check = Check::none;
  Index excerpt = 0;  // how many groups of 8 queries, and of 8 keys, are compared; 0: all
  std::optional<ExcerptHeads> excerpt_heads = {};  // of which heads; without: of all, the same ones
  bool statistical = false;            // random roundings are judged as such too (NUM-3)
  std::vector<std::string> laws = {};  // that are tried beside, by their names in laws.h
  Extras extras = {};
  std::uint64_t seed = 1;  // the N of s=N
  std::string bits = {};   // what its numbers derive from, if not from its id
  bool as_it_is = false;   // a shape that somebody uses: never fitted to a kernel's limits
  std::string file = {};   // where it is written, for messages
  int line = 0;
};

// All cases below `root`, or in it if it is a file, of all tiers, in a stable order, with
// s = `seed`. Throws InputError, whose text names file, line and key, for whatever is not
// understood.
std::vector<Case> load_cases(const std::filesystem::path& root, std::uint64_t seed = 1);

// Of these those that are wanted, in less time: of all others nothing but the id is made, and they
// are counted.
struct CaseChoice {
  std::function<bool(Tier tier, const std::string& id)> wants;
  std::map<Tier, Index> counts = {};  // of all cases, added to
};
std::vector<Case> load_cases(const std::filesystem::path& root, std::uint64_t seed,
                             CaseChoice& choice);

// The case of that id among `cases`, whatever its s=N says (the copy has that seed). Throws
// InputError with the nearest ids if there is none.
Case find_case(const std::vector<Case>& cases, const std::string& id);

}  // namespace attest
