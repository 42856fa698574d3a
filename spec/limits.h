// What a kernel does not take although it declares the features: the key "limits" of a description
// (SPEC.md, chapter "Limits").
//
//   {"head_dim": [64, 128],                                 D is one of these
//    "key_len": {"min": 1, "max": 4096, "multiple": 16},    Sk
//    "masks": ["causal top_left"], "square": true,          no full mask, Sq = Sk
//    "backward": {"head_dim": 64},                          besides, of a backward pass
//    "dtypes": {"f32": {"features": ["causal"]}},           besides, of a format
//    "never": [{"features": ["softcap", "dropout"]}]}       none with both
//
// Terms are conjunctions: a problem lies within them if it meets each. Of "never" none may be met
// whole. What a testee is asked, and how cases are fitted to it (cases/fit.h), follow from them.
#pragma once

#include <array>
#include <limits>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spec/problem.h"

namespace attest {

// The sizes that may be limited.
enum class Size {
  batch,
  query_heads,
  key_heads,
  group,  // query heads a key head
  query_len,
  key_len,
  head_dim,
  value_dim,
  page_size,    // of paged keys
  mask_offset,  // of a band or a dilation
  pairs,        // Sq Sk
};
inline constexpr std::array kLimitedSizes = {Size::batch,       Size::query_heads, Size::key_heads,
                                             Size::group,       Size::query_len,   Size::key_len,
                                             Size::head_dim,    Size::value_dim,   Size::page_size,
                                             Size::mask_offset, Size::pairs};

std::string_view name(Size size);  // as it is declared: "query_len"

// Which ones a problem has: one, but of mask_offset one for each part that has one, and of
// page_size and group none where there is none.
std::vector<Index> sizes_of(Size size, const Problem& problem);

// A set of sizes: listed, or all multiples within a range. Never empty.
class SizeSet {
 public:
  static SizeSet listed(std::vector<Index> sizes);
  // Throws InputError (at no pointer) if there is none.
  static SizeSet range(Index least, Index most, Index multiple = 1);

  bool has(Index size) const;
  // The smallest that is at least, and the largest that is at most so much; none if there is none.
  std::optional<Index> at_least(Index size) const;
  std::optional<Index> at_most(Index size) const;

  std::string to_string() const;  // "one of 64, 128", "a multiple of 16 within 16..4096"

 private:
  std::vector<Index> listed_ = {};  // ascending; empty: the range
  Index least_ = std::numeric_limits<Index>::min(), most_ = std::numeric_limits<Index>::max();
  Index multiple_ = 1;
};

// A form of a mask, or of a part of it: "full", "causal", "causal bottom_right", "window",
// "window causal" (that sees no key ahead), and each other kind by the name of its feature.
struct MaskForm {
  Mask::Kind kind = Mask::Kind::full;
  bool causal = false;                // of a band: left unbounded, right 0
  bool right_is_zero = false;         // of a window
  std::optional<Anchor> anchor = {};  // none: either

  bool fits(const Mask& part) const;
  std::string to_string() const;
};

// A conjunction. What is absent says nothing.
struct Terms {
  std::map<Size, SizeSet> sizes = {};
  std::vector<std::pair<Index, Index>> head_dims = {};  // [D, Dv]
  bool same_head_dims = false;                          // Dv = D
  bool square = false;                                  // Sq = Sk; of packed sequences, of each
  bool keys_at_least_queries = false;                   // Sk >= Sq, likewise
  std::optional<std::vector<MaskForm>> masks = {};
  std::optional<std::vector<std::string>> lengths = {};    // "key", "query"
  std::optional<std::vector<std::string>> bias_axes = {};  // as case files name them: "hqk"
  std::optional<std::vector<std::string>> layouts = {};    // orders: "bhsd"; dense without gaps if
  bool dense_layouts = false;                              // this is set
  std::optional<std::vector<std::string>> features = {};
  std::optional<std::vector<DType>> dtypes = {};       // of "never" alone
  std::optional<bool> backward = {};                   // of "never" alone
  std::optional<std::vector<std::string>> lacks = {};  // likewise: features, all of them
};

// The first term that `problem` doesn't meet, in words: "key_len 65: takes a multiple of 16".
// Empty if it lies within all. Masks, lengths, axes, layouts and features are bounds: each of the
// problem's is among them.
std::string beyond(const Terms& terms, const Problem& problem);

// Whether `problem` has what "never" speaks of: all sizes within, and of masks, lengths, axes,
// layouts one, of features all.
bool meets(const Terms& never, const Problem& problem);

struct KernelLimits {
  std::vector<Terms> always = {};    // besides what follows from features that are absent
  std::vector<Terms> backward = {};  // of problems with a backward pass
  std::map<DType, std::vector<Terms>> formats = {};
  std::map<DType, std::vector<Terms>> formats_backward = {};
  std::vector<std::pair<Terms, std::string>> never = {};  // each with its text

  bool empty() const;
  // Those terms that bind a problem of that format and pass.
  std::vector<const Terms*> binding(DType dtype, bool backward) const;
};

// Why `problem` lies outside, in words; empty if it lies within.
std::string beyond(const KernelLimits& limits, const Problem& problem);

// The name with which those words begin: "key_len".
std::string limit_named_by(const std::string& why);

// Those of `features` that no problem of that format may need, each with the limit in words.
std::map<std::string, std::string> excluded_in(DType dtype, const KernelLimits& limits,
                                               std::span<const std::string> features);

// Of the key "limits" at `pointer`, of a kernel that declares those formats and features. Throws
// InputError for what is not understood, for what no problem could meet, and for what speaks of
// formats and features that are not declared.
KernelLimits parse_limits(const nlohmann::json& json, const std::string& pointer,
                          std::span<const DType> dtypes, std::span<const std::string> features);

// What the absence of features says in these terms: without "gqa" one query head a key head,
// without "value-dim" Dv = D, without "zero-sizes" no size of 0, without "long" no length beyond
// kLong, and without "strides" dense tensors.
Terms implied_by_absent(std::span<const std::string> features);

}  // namespace attest
