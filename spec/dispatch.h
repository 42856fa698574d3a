// Which of its compiled kernels a system chooses for a problem: tables of points, each of which
// sorts problems into classes. A fault in one of the kernels, an instance, is there for the
// problems of one class of each point. The key "dispatch" of a description has the testee's own
// (SPEC.md, chapter Description):
//
//   [{"name": "forward", "passes": "forward",
//     "points": [{"of": "dtype", "values": ["f16", "bf16"]},
//                {"of": "head_dim", "up_to": [64, 128, 256]},          [0,64], (64,128], (128,256]
//                {"of": "key_len", "up_to": [512], "open": true},      one more, beyond 512
//                {"of": "query_len", "multiple_of": 128},              those that are, and others
//                {"of": "mask", "values": ["full", "causal"]}]}]
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "spec/index.h"
#include "spec/limits.h"
#include "spec/problem.h"

namespace attest {

class ObjectReader;

struct DispatchPoint {
  std::string of;                        // "head_dim"
  std::vector<std::string> values = {};  // as text: "f16", "true", "1"
  std::vector<Index> up_to = {};         // ascending
  bool open = false;
  Index multiple_of = 0;

  std::size_t classes() const;
  // None of a problem that no kernel of the system takes.
  std::optional<std::size_t> class_of(const Problem& problem) const;
  // Whether it could be in that class with other sizes, and with features left out, as a case is
  // fitted: false where it could not.
  bool may_bring(const Problem& problem, std::size_t to_class) const;
  std::string text(std::size_t of_class) const;  // "head_dim in (64,128]"
};

// One class of each point.
using DispatchClasses = std::vector<std::size_t>;

struct Dispatch {
  std::string name;
  bool backward = false;  // of the backward pass; else of the forward pass, of any problem
  std::vector<DispatchPoint> points = {};

  // The instance that computes a problem; none if none of them does.
  std::optional<DispatchClasses> instance_of(const Problem& problem) const;
  std::vector<DispatchClasses> instances() const;  // all, of which some may take no problem
  std::vector<std::string> words(const DispatchClasses& instance) const;  // by point
};

// Reads "passes" and "points". Throws InputError for whatever is not understood.
void read_dispatch(ObjectReader& reader, Dispatch& dispatch);

// Those of a description: each has its name. Throws InputError likewise, and for a table of more
// than 4,096 instances.
std::vector<Dispatch> parse_dispatches(const nlohmann::json& list, const std::string& pointer);

// The features of which a problem of a class has one; empty if it needs none.
std::vector<std::string> features_needed(const DispatchPoint& point, std::size_t of_class);
// Those that no problem of a class has.
std::vector<std::string> without_features(const DispatchPoint& point, std::size_t of_class);
// Which numbers of a class: all of it; the largest where it has one; or few queries, at most 16 or
// the fewest that it has, so that there may be many keys.
inline constexpr Index kFewQueries = 16;
enum class Numbers { all, largest, few_queries, fewest_queries };

// What "limits" say of a class; null if they can't.
nlohmann::json limit_of(const DispatchPoint& point, std::size_t of_class,
                        Numbers numbers = Numbers::all);

// How many batch elements of so many query heads have the product that an instance says
// (heads_times_batch); none if any have, or none has.
std::optional<SizeSet> batches_of(const Dispatch& dispatch, const DispatchClasses& instance,
                                  Index query_heads);

}  // namespace attest
