// A kernel that gives a batch element the same bits whatever its neighbours may choose its tiles,
// its parts and its path by nothing that only the batch has: its longest query or key, how many
// elements and how many tokens it has. Computed from the cases of the standard tier that compare
// elements alone with themselves in their batch (DET-2): for each of these and each of some limits,
// in each storage and pass, one element alone lies within the limit, and the batch beyond. It sees
// more than 32 keys, so that their order shows.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "cases/case.h"

namespace attest {
namespace {

struct Decider {
  const char* name;
  std::vector<Index> limits;
  std::vector<std::string> storages;
  Index (*of_batch)(const Problem&);
  Index (*of_element)(const Lengths&);
};
const std::vector<Decider>& deciders() {
  static const std::vector<std::string> kWithLengths = {"padded", "packed", "paged",
                                                        "packed and paged"};
  static const std::vector<Decider> kDeciders = {
      {"longest query",
       {1, 16, 64, 128, 256},
       kWithLengths,
       [](const Problem& p) { return p.query_len; },
       [](const Lengths& lengths) { return lengths.query; }},
      {"longest key",
       {64, 128, 256, 512, 1024},
       kWithLengths,
       [](const Problem& p) { return p.key_len; },
       [](const Lengths& lengths) { return lengths.key; }},
      {"number of elements",
       {1, 8, 32, 64},
       {"dense", "packed"},
       [](const Problem& p) { return p.batch; },
       [](const Lengths&) { return Index(1); }},
      {"sum of queries",
       {64, 128, 256, 512, 1024},
       {"packed"},
       [](const Problem& p) { return p.q_shape()[kPosition]; },
       [](const Lengths& lengths) { return lengths.query; }}};
  return kDeciders;
}

std::string storage_of_batch(const Problem& p) {
  const bool paged = p.paging.page_size > 0;
  if (p.packed) return paged ? "packed and paged" : "packed";
  if (paged) return "paged";
  return p.key_lens.empty() ? "dense" : "padded";
}

TEST(NeighboursTest, WhatOnlyABatchHasPassesEachLimitBesideAnElementThatDoesNot) {
  using Tried = std::vector<std::string>;
  std::set<Tried> tried;
  for (const Case& c : load_cases(ATTEST_CASES_DIR)) {
    const Problem& p = c.problem;
    if (c.check != Check::neighbours || c.tier == Tier::full || p.dtype != DType::f32) continue;
    for (const Decider& decider : deciders()) {
      for (Index b = 0; b < p.batch; ++b) {
        if (p.lengths(b).key <= 32 || p.lengths(b).query == 0) continue;
        for (const Index limit : decider.limits) {
          if (decider.of_element(p.lengths(b)) > limit || decider.of_batch(p) <= limit) continue;
          tried.insert({decider.name, std::to_string(limit), storage_of_batch(p),
                        p.backward ? "backward" : "forward"});
        }
      }
    }
  }
  for (const Decider& decider : deciders()) {
    for (const Index limit : decider.limits) {
      for (const std::string& storage : decider.storages) {
        for (const std::string pass : {"forward", "backward"}) {
          // Paged keys have no backward pass; and training has no cache of a thousand keys.
          if (pass == "backward" && (storage.ends_with("paged") || limit > 512)) continue;
          EXPECT_TRUE(tried.contains({decider.name, std::to_string(limit), storage, pass}))
              << fmt::format("{} beyond {}, {}, {}", decider.name, limit, storage, pass);
        }
      }
    }
  }
}

}  // namespace
}  // namespace attest
