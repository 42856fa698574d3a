// Faults hide where two features meet, in one pass alone, or in one form of a table. What is tried
// by a case of the standard tier is computed from the cases themselves; what is not is printed, and
// is an error unless no well-formed problem has it, for a reason that SPEC.md gives.
//
//   every pair of features, and every feature alone, in a forward-only and in a backward problem
//   every kind of mask, and every table in every form (whole or of size 1 on each axis that may
//   broadcast), with tensors that are dense, packed, paged, and packed with paged keys, in both
//   every feature in every format
//   every feature at the sizes of real models, in both: beyond one tile of queries and of keys with
//   D >= 64, and D >= 128
//   every feature with what kernels have entries or instances of their own for (`kTraits`), in
//   both, in f32
//   a causal mask or a window, over lengths, packed, paged or grouped, with every feature of
//   scores, in both
//   the features that most libraries have, in all that those choose a kernel by
//   every feature in the calls of a server and of a training: one query or more over more than one
//   tile of keys, in each storage of them, with D = 64 and D = 128
//
// A forward-only problem is no lesser copy of a backward one: it is what a testee without a
// backward pass is asked.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cases/case.h"
#include "spec/feature.h"
#include "tests/cases/feature_words.h"

namespace attest {
namespace {

std::string storage_of(const Problem& problem) {
  const bool paged = problem.paging.page_size > 0;
  if (problem.packed) return paged ? "packed and paged" : "packed";
  return paged ? "paged" : "dense";
}
constexpr const char* kStorages[] = {"dense", "packed", "paged", "packed and paged"};

const std::set<std::string>& mask_kinds() {
  static const std::set<std::string> kKinds = [] {
    std::set<std::string> kinds = {"full"};
    for (const Feature& feature : features()) {
      if (feature.in_mask) kinds.emplace(feature.name);
    }
    return kinds;
  }();
  return kKinds;
}

// What a kernel has a path of its own for: beyond one tile in both directions at an ordinary D, and
// a wide D.
constexpr const char* kSizeNames[] = {"beyond a tile, D >= 64", "D >= 128"};
std::set<std::string> sizes_of(const Problem& p) {
  constexpr Index kLargestTile = 256;
  bool beyond = false;  // in one batch element: the queries and keys that there are
  for (Index b = 0; b < p.batch; ++b) {
    const Lengths lengths = p.lengths(b);
    beyond |= lengths.query > kLargestTile && lengths.key > kLargestTile;
  }
  std::set<std::string> sizes;
  if (beyond && p.head_dim >= 64) sizes.insert(kSizeNames[0]);
  if (p.head_dim >= 128) sizes.insert(kSizeNames[1]);
  return sizes;
}

// What no feature is declared by, but a kernel may have an entry or an instance of its own for,
// which may leave out a feature.
struct Instance {
  const char* name;
  bool backward;  // tried in that pass too
  bool (*holds)(const Problem&);
};
std::uint64_t group_of(const Problem& p) {
  return static_cast<std::uint64_t>(p.query_heads / std::max<Index>(p.key_heads, 1));
}
bool has_keys(const Problem& p, Index more_than) {
  for (Index b = 0; b < p.batch; ++b) {
    if (p.lengths(b).key > more_than) return true;
  }
  return false;
}
constexpr Instance kTraits[] = {
    {"a scale not 1/sqrt(D)", true,
     [](const Problem& p) {
       return p.head_dim > 0 &&
              std::abs(p.scale * std::sqrt(static_cast<double>(p.head_dim)) - 1) > 0.01;
     }},
    {"one query over more than 128 keys", true,
     [](const Problem& p) {
       for (Index b = 0; b < p.batch; ++b) {
         const Lengths lengths = p.lengths(b);
         if (lengths.query == 1 && lengths.key > 128) return true;
       }
       return false;
     }},
    {"D >= 192", true, [](const Problem& p) { return p.head_dim >= 192; }},
    {"D not a multiple of 8", true, [](const Problem& p) { return p.head_dim % 8 != 0; }},
    {"one key head for all", true,
     [](const Problem& p) { return p.key_heads == 1 && group_of(p) > 1; }},
    {"a group of no power of 2", true,
     [](const Problem& p) { return group_of(p) > 0 && !std::has_single_bit(group_of(p)); }}};

// Three features of which a kernel may have any two, a word of each list. One way to be "value-dim"
// is not the other.
constexpr const char* kBands[] = {"causal", "window"};
constexpr const char* kSequences[] = {"lengths", "packed", "paged", "gqa"};
constexpr const char* kScores[] = {
    "softcap", "bias", "alibi", "sink", "dlse", "dropout", "dropout-generated", "Dv > D", "Dv < D"};
std::set<std::string> value_dims_of(const Problem& p) {
  if (p.value_dim == p.head_dim) return {};
  return {p.value_dim > p.head_dim ? "Dv > D" : "Dv < D"};
}

// A table, and the axes that may have size 1 in it.
struct Table {
  std::string name;
  std::string axes;
};
const std::vector<Table>& tables() {
  static const std::vector<Table> kTables = {
      {"bias", "bhqk"},
      {"slopes", "b"},
      {"dense mask", "bhqk"},
      {"block-sparse mask", "bh"},
      {"segment numbers", "bB"},  // of the queries, of the keys
      {"prefix", "b"}};
  return kTables;
}
std::string form_name(const std::string& table, const std::string& whole) {
  return whole.empty() ? table + ", one for all" : fmt::format("{} of its own on {}", table, whole);
}
std::set<std::string> forms() {
  std::set<std::string> all;
  for (const Table& table : tables()) {
    for (unsigned chosen = 0; chosen < 1u << table.axes.size(); ++chosen) {
      std::string whole;
      for (std::size_t axis = 0; axis < table.axes.size(); ++axis) {
        if (chosen >> axis & 1) whole += table.axes[axis];
      }
      all.insert(form_name(table.name, whole));
    }
  }
  return all;
}

// An axis of a problem on which nothing can be broadcast shows nothing of it: such a table doesn't
// count.
void add_form(const std::string& table, const std::string& axes, const std::vector<Index>& sizes,
              const std::vector<Index>& whole, std::set<std::string>& forms) {
  std::string own;
  for (std::size_t axis = 0; axis < axes.size(); ++axis) {
    if (whole[axis] < 2) return;
    if (sizes[axis] > 1) own += axes[axis];
  }
  forms.insert(form_name(table, own));
}

void add_forms(const Mask& mask, const Problem& p, std::set<std::string>& forms) {
  const auto first_axes = [](const Shape& shape, std::size_t count) {
    return std::vector<Index>(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(count));
  };
  if (mask.kind == Mask::Kind::dense) {
    add_form("dense mask", "bhqk", first_axes(mask.table->shape, 4), first_axes(p.keep_shape(), 4),
             forms);
  } else if (mask.kind == Mask::Kind::block_sparse) {
    add_form("block-sparse mask", "bh", first_axes(mask.table->shape, 2),
             first_axes(p.keep_shape(), 2), forms);
  } else if (mask.kind == Mask::Kind::segments) {
    add_form("segment numbers", "bB", {mask.segments->query.batches, mask.segments->key.batches},
             {p.batch, p.batch}, forms);
  } else if (mask.kind == Mask::Kind::prefix) {
    add_form("prefix", "b", {static_cast<Index>(mask.prefix_lens.size())}, {p.batch}, forms);
  }
  for (const Mask& part : mask.parts) add_forms(part, p, forms);
}
std::set<std::string> forms_of(const Problem& p) {
  std::set<std::string> forms;
  if (p.bias_shape) {
    const Shape whole = p.keep_shape();
    add_form("bias", "bhqk", {p.bias_shape->begin(), p.bias_shape->end()},
             {whole.begin(), whole.end()}, forms);
  }
  if (p.slopes_shape) add_form("slopes", "b", {p.slopes_shape->front()}, {p.batch}, forms);
  add_forms(p.mask, p, forms);
  return forms;
}

// What libraries choose a kernel by, or a path in one: the widths that they compile, partitions of
// keys, loops over more than a warp of elements or heads, tiles of grouped rows, large pages.
constexpr Instance kInstances[] = {
    {"D = 80", false, [](const Problem& p) { return p.head_dim == 80; }},
    {"D = 96", true, [](const Problem& p) { return p.head_dim == 96; }},
    {"D = 256", true, [](const Problem& p) { return p.head_dim == 256; }},
    {"D = 192, Dv = 128", true,
     [](const Problem& p) { return p.head_dim == 192 && p.value_dim == 128; }},
    {"D = 576, Dv = 512", false,
     [](const Problem& p) { return p.head_dim == 576 && p.value_dim == 512; }},
    {"one query over more than 1024 keys", false,
     [](const Problem& p) { return p.query_len == 1 && has_keys(p, 1024); }},
    {"more queries over more than 1024 keys", true,
     [](const Problem& p) { return p.query_len > 1 && !p.packed && has_keys(p, 1024); }},
    {"more than 1024 packed keys", true,
     [](const Problem& p) { return p.packed && has_keys(p, 1024); }},
    {"more than 512 queries", true, [](const Problem& p) { return p.query_len > 512; }},
    {"more than 512 queries and keys", false,
     [](const Problem& p) { return p.query_len > 512 && has_keys(p, 512); }},
    {"more than 32 padded sequences", true,
     [](const Problem& p) { return p.batch > 32 && !p.packed && !p.key_lens.empty(); }},
    {"more than 32 packed sequences", true,
     [](const Problem& p) { return p.batch > 32 && p.packed; }},
    {"more than 32 heads", true, [](const Problem& p) { return p.query_heads > 32; }},
    {"8 query heads on a key head, 2 to 16 queries", true,
     [](const Problem& p) { return group_of(p) >= 8 && p.query_len > 1 && p.query_len <= 16; }},
    {"pages of 64 or more", false, [](const Problem& p) { return p.paging.page_size >= 64; }}};
// The features that most libraries have.
constexpr const char* kCommon[] = {"causal",     "window",  "gqa",
                                   "softcap",    "sink",    "bias",
                                   "alibi",      "dropout", "dropout-generated",
                                   "dense-mask", "segments"};

// A server's calls: a token has one query over all keys before it, a prompt has more, and so has
// a training.
constexpr const char* kCalls[] = {"one query", "more queries"};
constexpr Index kHeadDims[] = {64, 128};
std::string channels(Index d) { return fmt::format("D = {}", d); }
std::set<std::string> calls_of(const Problem& p) {
  constexpr Index kTile = 128;
  if (!has_keys(p, kTile)) return {};
  return {kCalls[p.query_len > 1]};
}

std::vector<Combination> threes() {
  std::vector<Combination> all;
  for (const char* band : kBands) {
    for (const char* sequence : kSequences) {
      for (const char* score : kScores) all.push_back({band, sequence, score});
      if (std::string(sequence) != "gqa") all.push_back({band, sequence, "gqa"});
    }
  }
  return all;
}

std::set<Combination> tried() {
  std::set<Combination> all;
  for (const Case& c : load_cases(ATTEST_CASES_DIR)) {
    if (c.tier == Tier::full) continue;
    const Problem& p = c.problem;
    const std::string pass = pass_of(p), storage = storage_of(p);
    const std::set<std::string> present = named_features(p);
    // Where a tensor is empty, nothing but that is tried.
    const bool empty = present.contains("zero-sizes");
    const auto counts = [&](const std::string& name) { return !empty || name == "zero-sizes"; };
    for (const std::string& a : present) {
      if (counts(a)) {
        all.insert({a, pass});
        all.insert({a, std::string(name(p.dtype))});
      }
      for (const std::string& b : present) {
        if (counts(a) || counts(b)) all.insert({a, b, pass});
      }
      if (!empty && mask_kinds().contains(a)) all.insert({a, storage, pass});
      for (const std::string& size : sizes_of(p)) {
        if (counts(a)) all.insert({a, size, pass});
      }
      for (const Instance& trait : kTraits) {
        if (p.dtype == DType::f32 && counts(a) && trait.holds(p)) all.insert({a, trait.name, pass});
      }
    }
    if (empty) continue;
    for (const std::string& value_dim : value_dims_of(p)) {
      for (const std::string& size : sizes_of(p)) all.insert({value_dim, size, pass});
    }
    std::set<std::string> of_three = value_dims_of(p);
    of_three.insert(present.begin(), present.end());
    for (const Combination& three : threes()) {
      const auto has = [&](const std::string& word) { return of_three.contains(word); };
      if (std::all_of(three.begin(), three.end(), has)) {
        all.insert({three[0], three[1], three[2], pass});
      }
    }
    for (const Instance& instance : kInstances) {
      if (!instance.holds(p)) continue;
      for (const std::string& a : present) all.insert({a, instance.name, pass});
    }
    for (const std::string& call : calls_of(p)) {
      for (const std::string& a : of_three)
        all.insert({a, call, storage, channels(p.head_dim), pass});
    }
    if (p.mask.kind == Mask::Kind::full) all.insert({"full", storage, pass});
    for (const std::string& form : forms_of(p)) all.insert({form, storage, pass});
  }
  return all;
}

void expect_tried(const char* what, const std::vector<Combination>& wanted) {
  static const std::set<Combination> kTried = tried();
  expect_all_tried(what, wanted, kTried);
}

TEST(FeaturePairsTest, EveryPairIsTriedInEachPassOrImpossible) {
  std::vector<Combination> wanted;
  for (const char* pass : kPasses) {
    for (Combination& combination : features_and_pairs()) {
      combination.emplace_back(pass);
      wanted.push_back(std::move(combination));
    }
  }
  expect_tried("features and pairs of them, in each pass", wanted);
}

TEST(FeaturePairsTest, EveryMaskIsTriedInEveryStorageAndPassOrImpossible) {
  std::vector<Combination> wanted;
  for (const std::string& kind : mask_kinds()) {
    for (const char* storage : kStorages) {
      for (const char* pass : kPasses) wanted.push_back({kind, storage, pass});
    }
  }
  expect_tried("kinds of masks, in each storage and pass", wanted);
}

TEST(FeaturePairsTest, EveryFormOfATableIsTriedInEveryStorageAndPassOrImpossible) {
  std::vector<Combination> wanted;
  for (const std::string& form : forms()) {
    for (const char* storage : kStorages) {
      for (const char* pass : kPasses) wanted.push_back({form, storage, pass});
    }
  }
  expect_tried("forms of tables, in each storage and pass", wanted);
}

TEST(FeaturePairsTest, EveryFeatureIsTriedInEveryFormat) {
  std::vector<Combination> wanted;
  for (const std::string& feature : features_in_pairs()) {
    for (const DType dtype : kDTypes) wanted.push_back({feature, std::string(name(dtype))});
  }
  expect_tried("features, in each format", wanted);
}

TEST(FeaturePairsTest, EveryFeatureIsTriedAtTheSizesOfModelsOrImpossible) {
  std::vector<std::string> names = features_in_pairs();
  names.insert(names.end(), {"Dv > D", "Dv < D"});
  std::vector<Combination> wanted;
  for (const std::string& feature : names) {
    for (const char* size : kSizeNames) {
      for (const char* pass : kPasses) wanted.push_back({feature, size, pass});
    }
  }
  expect_tried("features, at the sizes of models, in each pass", wanted);
}

TEST(FeaturePairsTest, EveryFeatureIsTriedInEveryInstanceOrImpossible) {
  std::vector<Combination> wanted;
  for (const std::string& feature : features_in_pairs()) {
    for (const Instance& trait : kTraits) {
      for (const char* pass : kPasses) wanted.push_back({feature, trait.name, pass});
    }
  }
  expect_tried("features, in instances of their own, in each pass", wanted);
}

TEST(FeaturePairsTest, EveryBandIsTriedOverEverySequenceWithEveryFeatureOfScoresOrImpossible) {
  std::vector<Combination> wanted;
  for (const Combination& three : threes()) {
    for (const char* pass : kPasses) wanted.push_back({three[0], three[1], three[2], pass});
  }
  expect_tried("a causal mask or a window, lengths, and a feature of scores, in each pass", wanted);
}

TEST(FeaturePairsTest, EveryCommonFeatureIsTriedInWhateverLibrariesDispatchOn) {
  std::vector<Combination> wanted;
  for (const char* feature : kCommon) {
    for (const Instance& instance : kInstances) {
      wanted.push_back({feature, instance.name, "forward"});
      if (instance.backward) wanted.push_back({feature, instance.name, "backward"});
    }
  }
  expect_tried("common features, in what libraries dispatch on", wanted);
}

// But for those that are storages of their own, and for empty problems, in which nothing else is
// tried.
std::vector<std::string> features_of_calls() {
  std::vector<std::string> names = features_in_pairs();
  std::erase_if(names, [](const std::string& feature) {
    return feature == "packed" || feature == "paged" || feature == "zero-sizes";
  });
  names.insert(names.end(), {"Dv > D", "Dv < D"});
  return names;
}

TEST(FeaturePairsTest, EveryFeatureIsTriedInEveryCallOfAServerOrImpossible) {
  std::vector<Combination> wanted;
  for (const std::string& feature : features_of_calls()) {
    for (const char* call : kCalls) {
      for (const char* storage : kStorages) {
        for (const Index d : kHeadDims) {
          wanted.push_back({feature, call, storage, channels(d), "forward"});
        }
      }
    }
  }
  expect_tried("features, in the calls of a server", wanted);
}

TEST(FeaturePairsTest, EveryFeatureIsTriedInEveryCallOfATrainingOrImpossible) {
  std::vector<Combination> wanted;
  for (const std::string& feature : features_of_calls()) {
    for (const char* storage : {"dense", "packed"}) {
      for (const Index d : kHeadDims) {
        wanted.push_back({feature, "more queries", storage, channels(d), "backward"});
      }
    }
  }
  expect_tried("features, in the calls of a training", wanted);
}

}  // namespace
}  // namespace attest
