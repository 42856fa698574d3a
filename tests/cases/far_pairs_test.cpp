// Kernels go tile by tile, and what one does where two features meet may hold in its first tile
// alone: a bias that segments lose from key 64 on. Every pair of features, and every feature alone,
// is to show in each format, within one case of the standard tier whose numbers are ordinary,
//
//   beyond the first tiles of queries and of keys, in a forward-only and in a backward problem
//   beyond the first tile of keys, for one query
//
//            x x x | x x
//            x x x | x x
//            ------+----  kQueryTile, or for one query the first row
//            x x x | x x   <- here: some pair is visible, and each kind of mask hides one
//            x x x | x x      that is visible without it, and shows one that is not
//              kKeyTile
//
// What no case has is named, and is an error unless no well-formed problem has it.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cases/case.h"
#include "spec/dtype.h"
#include "spec/feature.h"
#include "spec/mask.h"
#include "tests/cases/feature_words.h"

namespace attest {
namespace {

using Kind = Mask::Kind;

constexpr Index kQueryTile = 64, kKeyTile = 128;
constexpr Index kMostRows = 256, kMostKeys = 1024;  // that are looked at, from there on

// A mask of which every part that has the feature is another.
Mask with_instead(Mask mask, const Feature& feature, const Mask& instead) {
  if (feature.in_mask(mask)) return instead;
  for (Mask& part : mask.parts) part = with_instead(std::move(part), feature, instead);
  return mask;
}
// A mask of which every combination of one kind is of the other one.
Mask with_kind(Mask mask, Kind kind, Kind instead) {
  if (mask.kind == kind) mask.kind = instead;
  for (Mask& part : mask.parts) part = with_kind(std::move(part), kind, instead);
  return mask;
}

// The first row that is looked at.
Index first_row(const Lengths& lengths) { return lengths.query == 1 ? 0 : kQueryTile; }

// Whether two masks differ beyond the first tiles of a batch element.
bool differ_far(const Mask& a, const Mask& b, Index element, const Lengths& lengths) {
  const Index first = first_row(lengths);
  const Index rows = std::min(lengths.query, first + kMostRows);
  const Index keys = std::min(lengths.key, kKeyTile + kMostKeys);
  for (Index i = first; i < rows; ++i) {
    for (Index j = kKeyTile; j < keys; ++j) {
      const Position at = {.batch = element, .query = i, .key = j};
      if (a.allows(at, lengths) != b.allows(at, lengths)) return true;
    }
  }
  return false;
}

// Whether what a kernel makes of a feature shows beyond the first tiles.
bool shows_far(const std::string& name, const Problem& p, Index element) {
  const Feature& feature = *find_feature(name);
  const auto differs_from = [&](const Mask& other) {
    return differ_far(p.mask, other, element, p.lengths(element));
  };
  if (feature.in_mask && feature.in_mask({.kind = Kind::all_of})) {
    return differs_from(with_kind(p.mask, Kind::all_of, Kind::any_of));
  }
  if (feature.in_mask && feature.in_mask({.kind = Kind::any_of})) {
    return differs_from(with_kind(p.mask, Kind::any_of, Kind::all_of));
  }
  const Mask nothing = Mask::any_of({});
  if (!feature.in_mask) return differs_from(nothing);
  return differs_from(with_instead(p.mask, feature, nothing)) &&
         differs_from(with_instead(p.mask, feature, Mask::full()));
}

// Whether its numbers are such that faults show: a bias of -inf, or scores of which one is all,
// hide what else there is.
bool is_ordinary(const Case& c) {
  return c.tier != Tier::full && c.data == "normal" && c.hidden == Hidden::plain &&
         c.excerpt == 0 && c.extras.bias_allows.allowed.empty();
}

// The words of a call, the pass last.
using Call = std::vector<std::string>;
Call call_of(const Problem& p, const Lengths& lengths) {
  if (lengths.query == 1) return {"one query", pass_of(p)};
  return {pass_of(p)};
}

Combination joined(Combination words, const DType dtype, const Call& call) {
  words.emplace_back(name(dtype));
  words.insert(words.end(), call.begin(), call.end());
  return words;
}

std::set<Combination> tried_far() {
  std::set<Combination> all;
  for (const Case& c : load_cases(ATTEST_CASES_DIR)) {
    const Problem& p = c.problem;
    if (!is_ordinary(c)) continue;
    const std::set<std::string> present = named_features(p);
    // Where a tensor is empty, nothing but that is tried.
    const bool empty = present.contains("zero-sizes");
    const auto counts = [&](const std::string& word) { return !empty || word == "zero-sizes"; };
    for (Index b = 0; b < p.batch; ++b) {
      const Lengths lengths = p.lengths(b);
      if (lengths.query <= first_row(lengths) || lengths.key <= kKeyTile) continue;
      std::vector<std::string> far;
      for (const std::string& feature : present) {
        if (shows_far(feature, p, b)) far.push_back(feature);
      }
      const Call call = call_of(p, lengths);
      for (const std::string& first : far) {
        if (counts(first)) all.insert(joined({first}, p.dtype, call));
        for (const std::string& second : far) {
          if (!counts(first) && !counts(second)) continue;
          all.insert(joined({first, second}, p.dtype, call));
        }
      }
    }
  }
  return all;
}

void expect_tried_far(const char* what, const Call& call) {
  static const std::set<Combination> kTried = tried_far();
  std::vector<Combination> wanted;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const Combination& words : features_and_pairs()) {
      wanted.push_back(joined(words, dtype, call));
    }
  }
  expect_all_tried(what, wanted, kTried);
}

TEST(FarPairsTest, EveryPairShowsBeyondTheFirstTilesOrIsImpossible) {
  expect_tried_far("pairs beyond the first tiles, forward", {"forward"});
  expect_tried_far("pairs beyond the first tiles, backward", {"backward"});
}

TEST(FarPairsTest, EveryPairShowsBeyondTheFirstTileOfKeysForOneQueryOrIsImpossible) {
  expect_tried_far("pairs beyond the first tile of keys, for one query", {"one query", "forward"});
}

}  // namespace
}  // namespace attest
