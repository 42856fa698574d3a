// What a testee says of itself: the JSON of `describe` in attest_plugin.h, read strictly.
//
//   {"name": "fa2", "version": "1.0", "vendor": "...", "profiles": ["forward-core"],
//    "dtypes": ["f32", "bf16"], "features": ["causal", "window"], "alignment": 16,
//    "arithmetic": {"f32": {...}, "bf16": {...}}}
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "spec/arithmetic.h"
#include "spec/problem.h"

namespace attest {

// The features that may be declared; a declared feature binds (CALL-1). What every testee must do
// (full mask, LSE apart) needs no declaration.
//   backward  lse  causal  window  dense-mask  mask-and  mask-or  lengths  gqa  value-dim  strides
//   expanded  transposed  zero-sizes
std::vector<std::string> known_features();

struct Description {
  std::string name;
  std::string version;
  std::string vendor;
  std::vector<std::string> profiles;
  std::vector<DType> dtypes;
  std::vector<std::string> features;
  Index alignment = 16;  // of every tensor's first element, in bytes; a power of two up to 512
  std::map<DType, Arithmetic> arithmetic;
  nlohmann::json declared_arithmetic;  // as declared, for the record

  bool has(const std::string& feature) const;
};

// Throws InputError for anything that is not understood, and for arithmetic beyond the caps.
Description parse_description(const nlohmann::json& json);

// The features and the dtype that `problem` asks for and `description` does not declare, in words;
// empty if everything is declared, so that a refusal would break CALL-1.
std::string undeclared(const Problem& problem, const Description& description);

}  // namespace attest
