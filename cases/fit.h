// Cases fitted to a kernel's limits (SPEC.md, chapter "Limits").
//
// A case is an intent: what it tries is said by its clauses, and sizes that none of them speaks of
// may be others. Where they lie outside the limits they become the smallest that is allowed at or
// above them, else the largest below, and never more than 8 times the Sq Sk D of the case. What a
// kernel doesn't declare of packing, pages, lengths, softcap, sink, dropout and dLSE is left out.
// Masks, biases, the pass and the format stay, but for the corner of a band, for the full mask of a
// kernel that is causal only, and for Q, K and V of one that takes them in 8 bits only, with
// scales; and so does a size that the entry pins, for the case is about it.
//
// The id of a fitted case ends with what was changed, in a fixed order, so that it alone gives the
// problem; its numbers are made from the id of the case itself:
//   mask/causal/rows/sq=65,sk=80/dtype=f16/data=normal/s=1/fit=sq:128,sk:128,d:64
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cases/case.h"
#include "cases/entry.h"
#include "spec/limits.h"

namespace attest {

// What is changed; what is absent stays.
struct Fit {
  // How the lengths of each packed sequence are related: as they are, Sk = Sq, or Sk >= Sq.
  enum class Relation { as_given, square, keys_at_least_queries };

  std::map<Size, Index> sizes = {};
  Relation packed = Relation::as_given;
  std::optional<Anchor> anchor = {};       // of all bands and dilations
  std::optional<Anchor> causal = {};       // in place of the full mask, at that corner
  std::optional<std::string> order = {};   // of the axes of all tensors, which lie without gaps
  std::optional<std::string> stored = {};  // how Q, K and V are, which were not: "kv e4m3"
  std::vector<std::string> without = {};   // features

  bool empty() const;
  std::string to_string() const;            // "sq:128,sk:128,d:64"
  static Fit parse(std::string_view text);  // throws InputError for anything else
};

// The case with other sizes. Throws InputError if it has no such form: a table that is written out,
// nothing left to hide, a size that its entry pins.
Case with_fit(const CaseWithEntry& base, const Fit& fit);

// Its entry, under the name and pins of the base; what has no such form, reading it tells.
nlohmann::json entry_with_fit(const CaseWithEntry& base, const Fit& fit);

struct Fitted {
  std::optional<Case> asked = {};  // the case itself if nothing had to change
  std::string why = {};            // of none: which limit is in the way
  // Of none: that limit's name, or what the case would lose of what it tries: "corner".
  std::string stopped_by = {};
  // Of none: the features that are not declared and can't be left out, if that is why.
  std::vector<std::string> missing = {};
};

// What of `base` can be asked of a kernel with those limits and features. Clauses that the sizes
// carried are struck from what is fitted, which takes no more work than a few times the case does,
// or than `allowed_work`: pairs of a query and a key, times channels, of all heads.
Fitted fitted(const CaseWithEntry& base, const KernelLimits& limits,
              const std::vector<std::string>& features, double allowed_work = 0);

// How Q, K and V must be stored for a kernel that takes them no other way, as an entry says it:
// what its "never" lack, else the first tensors of qkv, qk, kv, and the first format of e4m3, e5m2
// and int8, that it takes. None where it takes the case as it is, or the case cannot be stored so.
std::optional<std::string> stored_for(const CaseWithEntry& base, const KernelLimits& limits,
                                      const std::vector<std::string>& features);

// Those features that a case can be asked without, in the order in which an id has them.
const std::vector<std::string_view>& features_to_leave_out();

// Of the features that a case needs, and that are not among these: what it can be asked without, in
// the order of an id, and what is in the way.
struct Absent {
  std::vector<std::string> left_out = {}, missing = {};
};
Absent absent_in(const Case& c, const std::vector<std::string>& features);

// The problem without them.
Problem without(Problem problem, std::span<const std::string> features);

// The case itself, of a fitted one.
std::string_view base_id(std::string_view id);

// What was changed, as its id says; empty of a case itself.
std::string_view fit_of(std::string_view id);

}  // namespace attest
