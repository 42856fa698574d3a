// What broken kernels got through with, though every feature was tried: the same features under
// other numbers, other lengths and other grids. What is tried by a case of the standard tier is
// computed from the cases themselves, and each thing that is not is named.
//
//   few queries over more than 300 keys: every class of inputs; every mask under which the first
//   keys are hidden and later ones are not, with scores that are low, ordinary and high; groups of
//   3, 5 and 7 with lengths beside a multiple of 64; one query with the features of decoding in
//   groups of up to 8; every feature with 64 heads and more
//   windows whose edges lie on the edges of tiles and the diagonal within one; that reach beyond
//   the last key; that see nothing
//   documents of more than a tile whose numbers neither rise nor fall
//   more than 65535 batch elements, heads, queries, packed sequences, and products of these
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "cases/case.h"
#include "cases/generate.h"
#include "spec/description.h"
#include "spec/feature.h"
#include "spec/mask_kind.h"

namespace attest {
namespace {

constexpr Index kTile = 64;  // what edges are counted in; 32 and 16 divide it

const std::vector<Case>& standard_cases() {
  static const auto kCases = [] {
    std::vector<Case> cases = load_cases(ATTEST_CASES_DIR);
    std::erase_if(cases, [](const Case& c) { return c.tier == Tier::full; });
    return cases;
  }();
  return kCases;
}

constexpr const char* kKeyStorages[] = {"dense", "packed", "paged"};
std::string key_storage_of(const Problem& p) {
  return p.paging.page_size > 0 ? "paged" : p.packed ? "packed" : "dense";
}
constexpr const char* kQueries[] = {"one query", "2 to 8 queries"};

// Whether a batch element has few queries over more than 300 keys.
bool decodes(const Problem& p, Index b) {
  const Lengths lengths = p.lengths(b);
  return lengths.query >= 1 && lengths.query <= 8 && lengths.key > 300;
}

using Words = std::vector<std::string>;

// Names what of `wanted` no case has; `add` calls back with all that a case has.
void expect_each_tried(
    const std::vector<Words>& wanted,
    const std::function<void(const Case&, const std::function<void(Words)>&)>& has) {
  std::set<Words> tried;
  for (const Case& c : standard_cases()) {
    has(c, [&](Words words) { tried.insert(std::move(words)); });
  }
  for (const Words& words : wanted) {
    EXPECT_TRUE(tried.contains(words))
        << "no case has " << fmt::format("{}", fmt::join(words, ", "));
  }
}

TEST(HardDecodeTest, EveryClassOfInputsIsTriedInEveryStorage) {
  std::vector<Words> wanted;
  for (const InputClass& inputs : input_classes()) {
    if (inputs.name == "lse_loss") continue;  // another loss, which a forward pass does not know
    if (inputs.name == "equal_huge")
      continue;  // scores so large that no merge of parts has a bound
    for (const char* storage : kKeyStorages) {
      for (const char* queries : kQueries) wanted.push_back({inputs.name, storage, queries});
    }
  }
  expect_each_tried(wanted, [](const Case& c, const auto& add) {
    const Problem& p = c.problem;
    for (Index b = 0; b < p.batch && !p.backward; ++b) {
      if (decodes(p, b)) add({c.data, key_storage_of(p), kQueries[p.lengths(b).query > 1]});
    }
  });
}

// Whether the bias hides a pair (MASK-14).
bool hidden_by_bias(const Case& c, const Position& at) {
  const DenseMask& allows = c.extras.bias_allows;
  return !allows.allowed.empty() && !allows.at(at);
}

std::string kind_of(const Case& c) {
  if (!c.extras.bias_allows.allowed.empty()) return "biases of -inf";
  return std::string(about(c.problem.mask.kind).word);
}

// Whether some row sees no key of the first quarter of more than 300, as many as a part of a split
// may hold, and one of the others.
bool begins_late(const Case& c) {
  const Problem& p = c.problem;
  for (Index b = 0; b < p.batch; ++b) {
    if (!decodes(p, b)) continue;
    for (Index h = 0; h < p.query_heads; ++h) {
      for (Index i = 0; i < p.lengths(b).query; ++i) {
        const Index keys = p.lengths(b).key;
        Index first = 0;
        const auto seen = [&](Index j) {
          const Position at = {.batch = b, .head = h, .query = i, .key = j};
          return visible(p, at) && !hidden_by_bias(c, at);
        };
        while (first < keys && !seen(first)) ++first;
        if (first >= keys / 4 && first < keys) return true;
      }
    }
  }
  return false;
}

TEST(HardDecodeTest, EveryMaskHidesTheFirstKeysUnderEveryLevelOfScores) {
  const std::vector<std::pair<std::string, std::set<std::string>>> levels = {
      {"ordinary scores", {"normal"}}, {"low scores", {"deep"}}, {"high scores", {"huge"}}};
  std::vector<Words> wanted;
  for (const char* kind :
       {"band", "dense", "segments", "block_sparse", "all_of", "any_of", "biases of -inf"}) {
    for (const char* storage : kKeyStorages) {
      for (const char* queries : kQueries) {
        for (const auto& [level, classes] : levels) {
          wanted.push_back({kind, storage, queries, level});
        }
      }
    }
  }
  expect_each_tried(wanted, [&](const Case& c, const auto& add) {
    const Problem& p = c.problem;
    if (p.backward || p.key_len <= 300 || !begins_late(c)) return;
    for (const auto& [level, classes] : levels) {
      if (!classes.contains(c.data)) continue;
      add({kind_of(c), key_storage_of(p), kQueries[p.query_len > 1], level});
    }
  });
}

TEST(HardDecodeTest, GroupsOf3And5And7AreTriedBesideEveryMultipleOf64) {
  std::vector<Words> wanted;
  for (const char* group : {"3", "5", "7"}) {
    for (const char* storage : kKeyStorages) {
      for (const char* rest : {"1", "63"}) {
        for (Index queries = 1; queries <= 8; ++queries) {
          wanted.push_back({group, storage, rest, std::to_string(queries)});
        }
      }
    }
  }
  expect_each_tried(wanted, [](const Case& c, const auto& add) {
    const Problem& p = c.problem;
    for (Index b = 0; b < p.batch && !p.backward; ++b) {
      if (!decodes(p, b) || p.key_heads == 0) continue;
      add({std::to_string(p.group_size()), key_storage_of(p),
           std::to_string(p.lengths(b).key % kTile), std::to_string(p.lengths(b).query)});
    }
  });
}

// As models decode that have sinks, a softcap or windows: gpt-oss has 8 query heads on a key head.
TEST(HardDecodeTest, FeaturesOfDecodingAreTriedInEveryGroupOfUpTo8) {
  std::vector<Words> wanted;
  for (const char* feature : {"sink", "softcap", "window"}) {
    for (const char* group : {"1", "2", "4", "5", "6", "7", "8"}) {
      for (const char* storage : kKeyStorages) {
        for (const char* dtype : {"f16", "bf16"}) {
          wanted.push_back({feature, group, storage, dtype});
        }
      }
    }
  }
  expect_each_tried(wanted, [](const Case& c, const auto& add) {
    const Problem& p = c.problem;
    if (p.backward || c.data != "normal" || p.key_heads < 2) return;
    for (Index b = 0; b < p.batch; ++b) {
      if (!decodes(p, b) || p.lengths(b).query > 1) continue;
      const auto add_feature = [&](const char* feature) {
        add({feature, std::to_string(p.group_size()), key_storage_of(p),
             std::string(name(p.dtype))});
      };
      // A sink shows in O where it is as large as what it is added to.
      if (p.sink && c.extras.sink == "dominant") add_feature("sink");
      if (p.softcap > 0) add_feature("softcap");
      if (is_window(p.mask)) add_feature("window");
    }
  });
}

TEST(HardDecodeTest, EveryFeatureIsTriedWith64HeadsAndMore) {
  std::vector<std::string> features = known_features();
  std::erase_if(features, [](const std::string& feature) {
    return is_of_testee(*find_feature(feature)) || feature == "long" || feature == "backward" ||
           feature == "dbias" || feature == "dlse";
  });
  std::vector<Words> wanted;
  for (const std::string& feature : features) wanted.push_back({feature});
  Description nothing;
  nothing.dtypes.assign(std::begin(kDTypes), std::end(kDTypes));
  expect_each_tried(wanted, [&](const Case& c, const auto& add) {
    const Problem& p = c.problem;
    bool some = false;
    for (Index b = 0; b < p.batch; ++b) some |= decodes(p, b);
    if (p.backward || p.query_heads <= 64 || !some) return;
    std::istringstream words(undeclared(p, nothing));
    for (std::string word; words >> word;) {
      if (word.back() == ',') word.pop_back();
      add({word});
    }
  });
}

// ---- Windows ------------------------------------------------------------------------------------

bool has_an_edge(const Mask& m) {
  return m.kind == Mask::Kind::band &&
         (m.left != kUnbounded || (m.right != kUnbounded && m.right > 0));
}

Index shift_of(const Mask& m, const Lengths& lengths) {
  return m.offset + (m.anchor == Anchor::bottom_right ? lengths.key - lengths.query : 0);
}

Index remainder(Index x) { return (x % kTile + kTile) % kTile; }

TEST(WindowEdgesTest, LieOnTheEdgesOfTilesWhereTheDiagonalDoesNot) {
  std::vector<Words> wanted;
  for (const char* side : {"left", "right"}) {
    for (const char* row : {"first row of a tile", "last row of a tile"}) {
      // The first key of a tile, the next one, the last one.
      for (const char* rest : {"0", "1", "63"}) wanted.push_back({side, row, rest});
    }
    wanted.push_back({side, "as wide as tiles"});
  }
  expect_each_tried(wanted, [](const Case& c, const auto& add) {
    const Problem& p = c.problem;
    if (!has_an_edge(p.mask) || p.backward) return;
    for (Index b = 0; b < p.batch; ++b) {
      const Lengths lengths = p.lengths(b);
      const Index shift = shift_of(p.mask, lengths);
      if (lengths.query <= kTile || lengths.key <= kTile || remainder(shift) == 0) continue;
      for (const auto& [side, reach, width] :
           {std::tuple("left", -p.mask.left, p.mask.left), {"right", p.mask.right, p.mask.right}}) {
        if (width == kUnbounded) continue;
        if (width > 0 && width % kTile == 0) add({side, "as wide as tiles"});
        // Of the second tile of queries, if its edge is within the keys at all.
        for (const auto& [row, name] :
             {std::pair(kTile, "first row of a tile"), {2 * kTile - 1, "last row of a tile"}}) {
          const Index edge = row + shift + reach;
          if (row >= lengths.query || edge <= 0 || edge >= lengths.key - 1) continue;
          add({side, name, std::to_string(remainder(edge))});
        }
      }
    }
  });
}

TEST(WindowEdgesTest, ReachBeyondTheLastKeyWithMoreQueriesThanKeys) {
  std::vector<Words> wanted;
  for (const char* anchor : {"top left", "bottom right"}) {
    for (const char* left : {"with a left edge", "without"}) {
      for (const char* size : {"within a tile", "beyond"}) wanted.push_back({anchor, left, size});
    }
  }
  expect_each_tried(wanted, [](const Case& c, const auto& add) {
    const Mask& m = c.problem.mask;
    const Lengths lengths = {c.problem.query_len, c.problem.key_len};
    if (!has_an_edge(m) || m.right == kUnbounded || m.right <= lengths.key ||
        lengths.query <= lengths.key) {
      return;
    }
    add({m.anchor == Anchor::top_left ? "top left" : "bottom right",
         m.left != kUnbounded ? "with a left edge" : "without",
         lengths.key <= kTile ? "within a tile" : "beyond"});
  });
}

TEST(WindowEdgesTest, HideAllKeysOfAllRows) {
  std::vector<Words> wanted;
  for (const char* pass : {"forward", "backward"}) {
    for (const char* where : {"before the keys", "behind the keys"}) {
      for (const char* storage : kKeyStorages) {
        if (std::string(storage) == "paged" && std::string(pass) == "backward") continue;
        wanted.push_back({pass, where, storage});
      }
    }
  }
  expect_each_tried(wanted, [](const Case& c, const auto& add) {
    const Problem& p = c.problem;
    if (p.mask.kind != Mask::Kind::band || p.key_len <= kTile || p.query_len <= kTile) return;
    bool before = true, behind = true;
    for (Index b = 0; b < p.batch; ++b) {
      const Lengths lengths = p.lengths(b);
      const Index shift = shift_of(p.mask, lengths);
      before &= p.mask.right != kUnbounded && lengths.query - 1 + shift + p.mask.right < 0;
      behind &= p.mask.left != kUnbounded && shift - p.mask.left >= lengths.key;
    }
    const std::string pass = p.backward ? "backward" : "forward";
    if (before) add({pass, "before the keys", key_storage_of(p)});
    if (behind) add({pass, "behind the keys", key_storage_of(p)});
  });
}

// ---- Segments -----------------------------------------------------------------------------------

// Runs of a tile and more, one of whose numbers is less than the one before and one more.
bool in_no_order(const SegmentNumbers& numbers, Index batch, Index length) {
  bool falls = false, rises = false;
  Index begin = 0;
  for (Index j = 1; j <= length; ++j) {
    if (j < length && numbers.at(batch, j) == numbers.at(batch, begin)) continue;
    const bool inner = begin > 0 && j < length;
    if (inner && j - begin < kTile) return false;
    if (j == length) break;
    (numbers.at(batch, j) < numbers.at(batch, begin) ? falls : rises) = true;
    begin = j;
  }
  return falls && rises;
}

TEST(SegmentsTest, OfMoreThanATileAreInNoOrder) {
  std::vector<Words> wanted;
  for (const char* storage : kKeyStorages) wanted.push_back({"forward", storage});
  wanted.push_back({"backward", "dense"});
  expect_each_tried(wanted, [](const Case& c, const auto& add) {
    const Problem& p = c.problem;
    if (p.mask.kind != Mask::Kind::segments) return;
    for (Index b = 0; b < p.batch; ++b) {
      const Lengths lengths = p.lengths(b);
      if (lengths.query > 2 * kTile && lengths.key > 4 * kTile &&
          in_no_order(p.mask.segments->key, b, lengths.key)) {
        add({p.backward ? "backward" : "forward", key_storage_of(p)});
      }
    }
  });
}

// ---- Grids and lengths
// ----------------------------------------------------------------------------

TEST(GridsTest, HaveMoreThan65535OfEverything) {
  const char* const kAxes[] = {
      "batch elements",   "heads", "key heads", "queries", "heads of all batch elements",
      "rows of all heads"};
  std::vector<Words> wanted;
  for (const char* axis : kAxes) wanted.push_back({axis});
  expect_each_tried(wanted, [&](const Case& c, const auto& add) {
    const Problem& p = c.problem;
    if (p.packed || p.backward) return;
    // The last two of sizes that are each within 16 bits.
    const Index heads = std::max(p.batch, p.query_heads) > 65535 ? 0 : p.batch * p.query_heads;
    const Index rows = std::max(heads, p.query_len) > 65535 ? 0 : heads * p.query_len;
    std::size_t axis = 0;
    for (const Index size : {p.batch, p.query_heads, p.key_heads, p.query_len, heads, rows}) {
      if (size > 65535) add({kAxes[axis]});
      ++axis;
    }
  });
}

TEST(LongKeysTest, AreCountedWhereOneShows) {
  std::vector<Words> wanted;
  for (const char* dtype : {"f32", "f16", "bf16"}) wanted.push_back({"exact sums", dtype});
  // Zero scores and integers (NUMERICS.md, "Exact rows").
  expect_each_tried(wanted, [](const Case& c, const auto& add) {
    if (c.data != "q0int" || c.problem.key_len < 131072) return;
    add({"exact sums", std::string(name(c.problem.dtype))});
  });
}

TEST(LongKeysTest, AreHiddenByEveryKindOfMaskBeyond4096) {
  std::vector<Words> wanted;
  for (const char* kind : {"band", "dense", "segments", "full"}) wanted.push_back({kind});
  expect_each_tried(wanted, [](const Case& c, const auto& add) {
    const bool asked = std::find(c.laws.begin(), c.laws.end(), "hidden_keys") != c.laws.end();
    if (asked && c.problem.key_len > 4096) add({kind_of(c)});
  });
}

}  // namespace
}  // namespace attest
