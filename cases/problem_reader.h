// Problems as case files write them: the fields of a Problem under their own names, gathered from
// "defaults", "problem" and the axes of an entry; later ones win.
//
// What differs from Problem: value_dim is head_dim unless given; scale is 1/sqrt(head_dim) unless
// given (1 for head_dim 0); layouts is one text for all tensors or an object {"q": "bshd gap=3"};
// query_len and key_len of a packed problem, and key_len of a paged one, are the longest unless the
// entry itself gives them. The features are written
//
//   "softcap": 15    "sink": true or "dominant"    "packed": true    "d_lse": true
//   "bias": {"kind": "ramp", "axes": "hqk", "allows": {"pattern": "hide_first_tile", "tile": 16}}
//   "alibi": {"slopes": "standard" or [0.5, 0.25], "axes": "bh"}
//   "dropout": {"mode": "given", "probability": 0.25, "seed": 7, "offset": 0}
//   "paging": {"page_size": 16, "order": "shuffled", "unused": 2, "spare_entries": 1}
//   "stored": "qkv e4m3", "kv e4m3.e5m2 bh", "qk e5m2 least": tensors, formats, axes of their
//   scales
//
// where a bias is -inf wherever "allows" doesn't allow (MASK-14).
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "cases/case.h"
#include "cases/expand.h"
#include "spec/problem.h"

namespace attest {

class ProblemReader {
 public:
  // Takes over all fields of `object`, which stands at `pointer`.
  void add(const nlohmann::json& object, const std::string& pointer);

  // Takes over an axis; one that is no field is a name for use in braces.
  void add(const AxisValue& setting);

  // The problem, but for its dtype, and what its tensors hold. `seed` is the text from which random
  // masks and page tables are made. Throws InputError for unknown fields, values of the wrong type,
  // unused axes; what the numbers mean is not checked.
  Problem read(std::string_view seed, Extras& extras) const;

  // The same problem as one object without axes.
  nlohmann::json whole() const;

  // Where the value of `field` was written; empty if nowhere.
  std::string pointer_of(const std::string& field) const;

  // The same for the field that is at fault where `clause` is broken.
  std::string culprit_of(std::string_view clause) const;

 private:
  nlohmann::json fields_ = nlohmann::json::object();
  std::map<std::string, std::string> pointers_;
  std::map<std::string, nlohmann::json> names_;  // for use in braces, with their values
};

}  // namespace attest
