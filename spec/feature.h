// What a problem may need that not every testee has, in one table: the word by which a testee
// declares it, when a problem needs it, the clauses that speak of it, and the profile of each.
//
//   declared   under     needed by       clauses
//   sink       features  problem.sink    SINK-1 (scores); in a backward pass SINK-2 (training-full)
//   f64        dtypes    problem.dtype   FORMAT-1 (double)
//
// What a testee is asked, what a case cites, whom a profile demands, which laws fit a testee, and
// the tables of SPEC.md, all follow from it.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spec/problem.h"

namespace attest {

// Its clauses need not be cited: every testee that claims anything has them.
inline constexpr std::string_view kForwardCore = "forward-core";

// Keys of a testee's description.
inline constexpr std::string_view kOfFeatures = "features", kOfFormats = "dtypes";

struct Feature {
  // A clause that speaks of it, and the profile that has that clause.
  struct Demand {
    std::string_view clause, profile;
    bool (*only_if)(const Problem&) = nullptr;  // null: wherever the feature is needed
  };

  std::string_view name;
  std::string_view needed_when;        // in words, for SPEC.md
  std::string_view key = kOfFeatures;  // under which it is declared
  // One of these: of a problem, of one part of its mask, of the layout of one tensor. With none, no
  // problem needs it.
  bool (*in_problem)(const Problem&) = nullptr;
  bool (*in_mask)(const Mask&) = nullptr;
  bool (*in_layout)(const Layout&) = nullptr;
  std::array<Demand, 4> demanded = {};
  // What it takes to fit a case to a testee without it (cases/fit.h): it is taken out of the
  // problem, or the problem has other sizes. Else such a testee is not asked, or, of layouts, asked
  // in another order.
  void (*take_out)(Problem&) = nullptr;
  bool of_sizes = false;

  std::span<const Demand> demands() const;
};

std::span<const Feature> features();

// More queries or keys than this are the feature "long": a head's scores would take gigabytes.
inline constexpr Index kLong = 16384;

const Feature* find_feature(std::string_view name);  // null if there is none of that name
// Whether a testee without it has other sizes or layouts alone: cases are fitted to it.
bool is_limit_if_absent(const Feature& feature);

// Whether no problem needs it: it says what a testee returns, or how it may be called.
bool is_of_testee(const Feature& feature);

std::vector<const Feature*> features_with(std::string_view clause);

// Those that `problem` needs: of each part of its mask, of itself, of each tensor's layout. So one
// may stand there twice.
std::vector<const Feature*> needed_by(const Problem& problem);

// The clauses that a case of `problem` must cite, or a testee would be failed for a feature that it
// never claimed (spec/profile.h).
std::vector<std::string_view> clauses_needed_by(const Problem& problem);

// All that may be declared as `features`; a declared feature binds (CALL-1). What every testee must
// do (full mask, LSE apart) needs no declaration.
std::vector<std::string> known_features();

// Of these, what `problem` asks for, the pass first; some may stand there twice.
std::vector<std::string> features_of(const Problem& problem);

}  // namespace attest
