// The problems of the measurement: small and random, of every feature, mask and format, on inputs
// of many kinds. Each is made from a seed and its own number, and from nothing else.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest::bounds {

// What NUMERICS.md has terms for beyond the plain formula.
enum Feature {
  kSoftcap,
  kBias,
  kAlibi,
  kSink,
  kDLse,
  kDropout,
  kPacked,
  kStored,
  kBlocks,
  kFeatures
};
std::string feature_name(int feature);  // "plain" for kFeatures

enum class Kind {
  normal,
  logits_10,  // standard deviation of the scores
  logits_50,
  heavy_tails,
  near_ties,
  equal,
  one_hot,
  ascending,
  zero_q,         // and integers in V
  alternating,    // V = +-1000
  halves,         // V = 1000 for the first half of the keys, then -1000
  offset_v,       // V around 100
  offset_scores,  // scores that are large and nearly the same
  huge_scores,    // whose own errors are as large as 1
  late_maximum,   // scores around -5, then around 0
  outliers,
  large,
  tiny,
  subnormal,
};
inline constexpr int kKinds = static_cast<int>(Kind::subnormal) + 1;
std::string kind_name(Kind kind);

struct Subject {
  std::uint64_t seed;
  std::uint64_t number;
  Problem problem;
  Kind kind;
  bool has[kFeatures + 1];               // the last: none of them
  std::optional<std::size_t> size = {};  // in kPlainSizes

  std::string name() const;  // "f12": forward, "b7": with a backward pass
};

Subject make_subject(std::uint64_t seed, bool backward, std::uint64_t number);
// Plain problems as an earlier study of bounds had them, up to 4096 keys, on the first twelve kinds
// of inputs, in all formats but f64; with a backward pass two query heads on one key head, and by
// turns a causal mask and a softcap. Each round of numbers has every format on all inputs in all
// sizes, with as many elements of each tensor in one size as in another.
struct PlainSize {
  bool backward;
  Index batch, query_len, key_len, head_dim;
};
inline constexpr std::array<PlainSize, 9> kPlainSizes = {{{false, 8, 8, 16, 16},
                                                          {false, 4, 8, 64, 32},
                                                          {false, 2, 8, 256, 64},
                                                          {false, 2, 8, 1024, 64},
                                                          {false, 1, 8, 4096, 128},
                                                          {false, 1, 4, 512, 256},
                                                          {true, 64, 16, 16, 16},
                                                          {true, 4, 64, 64, 64},
                                                          {true, 1, 256, 256, 64}}};
std::uint64_t plain_round(bool backward);
Subject make_plain_subject(std::uint64_t seed, bool backward, std::uint64_t number);

Inputs make_inputs(const Subject& subject);

}  // namespace attest::bounds
