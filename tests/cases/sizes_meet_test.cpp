// Kernels are chosen by sizes: by the pass, how K and V are stored, the width of heads, how many
// queries and keys there are, how heads share keys, the batch, the kind of mask and the format; and
// each kernel has faults of its own. Of these, any three that a problem of kMostWork can have are
// tried together by a case of the standard tier, as computed from the cases themselves.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <vector>

#include "cases/case.h"

namespace attest::sizes {
namespace {

// Multiply-adds of both products of the forward pass, and for each element of Q, K, V and O as many
// as it costs to make and to judge; a backward pass counts 3.5 times.
constexpr double kMostWork = 4e7;
constexpr double kWorkOfElement = 20;

// What a problem has of one factor: a name, and what it adds to the work of the least that has it.
struct Level {
  std::string name;
  double times;
};

// Sizes up to and with `last`, of which `typical` is a usual one.
struct Sizes {
  Index last;
  Index typical;
};
constexpr Index kNoEnd = kUnbounded;
constexpr std::array kQueryClasses = {Sizes{1, 1},     Sizes{16, 7},    Sizes{64, 40},
                                      Sizes{256, 133}, Sizes{512, 300}, Sizes{kNoEnd, 560}};
constexpr std::array kKeyClasses = {Sizes{64, 40},    Sizes{256, 133},   Sizes{512, 300},
                                    Sizes{1024, 600}, Sizes{4096, 1100}, Sizes{kNoEnd, 4100}};
constexpr std::array kWidths = {Sizes{32, 16}, Sizes{64, 64}, Sizes{128, 128}, Sizes{256, 192}};
constexpr std::array kBatches = {Sizes{1, 1}, Sizes{4, 2}, Sizes{kNoEnd, 5}};

template <std::size_t n>
std::size_t class_of(const std::array<Sizes, n>& classes, Index size) {
  std::size_t i = 0;
  while (size > classes[i].last) ++i;
  return i;
}

template <std::size_t n>
std::vector<Level> levels_of(const std::array<Sizes, n>& classes, const char* what) {
  std::vector<Level> levels;
  Index first = 1;
  for (const Sizes& sizes : classes) {
    levels.push_back({sizes.last == kNoEnd  ? fmt::format("{} or more {}", first, what)
                      : sizes.last == first ? fmt::format("{} {}", first, what)
                                            : fmt::format("{} to {} {}", first, sizes.last, what),
                      static_cast<double>(sizes.typical)});
    first = sizes.last + 1;
  }
  return levels;
}

enum Factor { kStorage, kQueryLen, kKeyLen, kWidth, kHeads, kBatch, kMask, kFormat };

const std::vector<std::vector<Level>>& factors() {
  static const std::vector<std::vector<Level>> kFactors = {
      {{"forward, dense", 1},
       {"forward, padded", 1},
       {"forward, packed", 1},
       {"forward, in pages", 1},
       {"backward, dense", 3.5},
       {"backward, padded", 3.5},
       {"backward, packed", 3.5}},
      levels_of(kQueryClasses, "queries"),
      levels_of(kKeyClasses, "keys"),
      levels_of(kWidths, "channels"),
      {{"one head", 1},
       {"heads of their own", 2},
       {"groups of 2, 4, 8 and so on", 4},
       {"groups of 3, 5, 7 and so on", 3},
       {"64 heads or more", 65}},
      levels_of(kBatches, "elements"),
      {{"no mask", 1}, {"a diagonal", 1}, {"a window", 1}},
      {{"f32", 1}, {"f16", 1}, {"bf16", 1}}};
  return kFactors;
}

// Which level of each factor a problem has, in the order of the factors; empty for one that is of
// none in one of them.
std::vector<std::size_t> levels_of(const Problem& p) {
  if (p.batch == 0 || p.query_heads == 0 || p.query_len == 0 || p.key_len == 0 || p.head_dim == 0 ||
      p.head_dim > kWidths.back().last || p.dtype == DType::f64) {
    return {};
  }
  const bool padded = !p.key_lens.empty() || !p.query_lens.empty();
  const bool paged = p.paging.page_size > 0;
  if (paged && p.backward) return {};
  const std::size_t storage = (p.packed && !paged ? 2
                               : paged            ? 3
                               : padded           ? 1
                                                  : 0) +
                              (p.backward ? 4 : 0);
  const Index group = p.group_size();
  const std::size_t heads = p.query_heads >= 64 ? 4
                            : group > 1         ? ((group & (group - 1)) == 0 ? 2 : 3)
                            : p.query_heads > 1 ? 1
                                                : 0;
  const Mask& mask = p.mask;
  if (mask.kind != Mask::Kind::full && mask.kind != Mask::Kind::band) return {};
  const std::size_t band = mask.kind == Mask::Kind::full                         ? 0
                           : mask.left == kUnbounded && mask.right != kUnbounded ? 1
                                                                                 : 2;
  const std::size_t format = p.dtype == DType::f32 ? 0 : p.dtype == DType::f16 ? 1 : 2;
  return {storage,
          class_of(kQueryClasses, p.query_len),
          class_of(kKeyClasses, p.key_len),
          class_of(kWidths, p.head_dim),
          heads,
          class_of(kBatches, p.batch),
          band,
          format};
}

using Choice = std::vector<std::pair<std::size_t, std::size_t>>;  // a factor and its level

// The least work of a problem with these levels, the others being as small as they can.
double least_work(const Choice& chosen) {
  std::vector<double> times;
  for (const auto& levels : factors()) times.push_back(levels.front().times);
  times[kKeyLen] = 1;
  for (const auto& [factor, level] : chosen) times[factor] = factors()[factor][level].times;
  const double pairs = times[kHeads] * times[kQueryLen] * times[kKeyLen];
  const double rows = times[kHeads] * times[kQueryLen] + times[kKeyLen];
  return 2 * times[kStorage] * times[kBatch] * times[kWidth] * (pairs + kWorkOfElement * rows);
}

// All choices of one level of each of these factors.
std::vector<Choice> choices_of(const std::vector<std::size_t>& chosen) {
  std::vector<Choice> choices = {{}};
  for (const std::size_t factor : chosen) {
    std::vector<Choice> longer;
    for (const Choice& choice : choices) {
      for (std::size_t level = 0; level < factors()[factor].size(); ++level) {
        longer.push_back(choice);
        longer.back().emplace_back(factor, level);
      }
    }
    choices = std::move(longer);
  }
  return choices;
}

class SizesMeetTest : public testing::Test {
 protected:
  SizesMeetTest() {
    for (Case& c : load_cases(ATTEST_CASES_DIR)) {
      if (c.tier == Tier::full || c.hidden != Hidden::plain) continue;
      if (auto levels = levels_of(c.problem); !levels.empty()) tried_.insert(std::move(levels));
      cases_.push_back(std::move(c));
    }
  }

  void want(const std::vector<std::size_t>& chosen) {
    std::set<Choice> tried;
    for (const auto& levels : tried_) {
      Choice choice;
      for (const std::size_t factor : chosen) choice.emplace_back(factor, levels[factor]);
      tried.insert(std::move(choice));
    }
    for (const Choice& choice : choices_of(chosen)) {
      if (least_work(choice) > kMostWork) {
        ++too_large_;
        continue;
      }
      ++wanted_;
      if (tried.contains(choice)) continue;
      ++missing_;
      std::vector<std::string> names;
      for (const auto& [factor, level] : choice) names.push_back(factors()[factor][level].name);
      ADD_FAILURE() << fmt::format("no case has {}", fmt::join(names, ", "));
    }
  }

  std::vector<Case> cases_;
  int wanted_ = 0, missing_ = 0, too_large_ = 0;

 private:
  std::set<std::vector<std::size_t>> tried_;
};

TEST_F(SizesMeetTest, AnyThreeThatAKernelIsChosenByAreTriedTogether) {
  for (std::size_t i = 0; i < factors().size(); ++i) {
    for (std::size_t j = i + 1; j < factors().size(); ++j) {
      for (std::size_t k = j + 1; k < factors().size(); ++k) want({i, j, k});
    }
  }
  fmt::print("sizes: {} wanted together, {} missing; {} too large\n", wanted_, missing_,
             too_large_);
}

// What lies beyond the first tiles of queries and of keys is met by a loop within a loop.
TEST_F(SizesMeetTest, SeveralTilesOfQueriesMeetSeveralOfKeysInEachStorageAndWidth) {
  std::set<std::string> tried;
  const auto words = [](std::size_t storage, std::size_t width, Index queries, Index keys) {
    return fmt::format("{}, {}, more than {} queries and {} keys",
                       factors()[kStorage][storage].name, factors()[kWidth][width].name, queries,
                       keys);
  };
  // A batch of five has keys beyond one tile of 128.
  const auto batch_words = [](std::size_t storage, std::size_t width) {
    return fmt::format("{}, {}, five elements, the fifth of more than 128 keys",
                       factors()[kStorage][storage].name, factors()[kWidth][width].name);
  };
  constexpr std::array kTiles = {std::pair<Index, Index>{64, 256},
                                 std::pair<Index, Index>{512, 512}};
  for (const Case& c : cases_) {
    const auto levels = levels_of(c.problem);
    for (Index b = 0; !levels.empty() && b < c.problem.batch; ++b) {
      const Lengths lengths = c.problem.lengths(b);
      if (b >= 4 && lengths.query > 0 && lengths.key > 128) {
        tried.insert(batch_words(levels[kStorage], levels[kWidth]));
      }
      for (const auto& [queries, keys] : kTiles) {
        if (lengths.query > queries && lengths.key > keys) {
          tried.insert(words(levels[kStorage], levels[kWidth], queries, keys));
        }
      }
    }
  }
  for (std::size_t storage = 0; storage < factors()[kStorage].size(); ++storage) {
    for (std::size_t width = 0; width < factors()[kWidth].size(); ++width) {
      EXPECT_TRUE(tried.contains(batch_words(storage, width)))
          << "no case has " << batch_words(storage, width);
      for (const auto& [queries, keys] : kTiles) {
        if (queries == 512 && width == 3) continue;  // as much work as all of a hundred other cases
        const std::string wanted = words(storage, width, queries, keys);
        EXPECT_TRUE(tried.contains(wanted)) << "no case has " << wanted;
      }
    }
  }
}

}  // namespace
}  // namespace attest::sizes
