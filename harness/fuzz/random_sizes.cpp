#include "harness/fuzz/random_sizes.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace attest {
namespace {

using nlohmann::json;

constexpr const char* kSizes[] = {"batch",   "query_heads", "key_heads", "query_len",
                                  "key_len", "head_dim",    "value_dim"};

class SizeDrawing : Drawing {
 public:
  SizeDrawing(const Description& testee, Dice& dice, const Sizes& sizes = {})
      : Drawing(testee, dice), sizes_(sizes) {}

  Sizes fresh() {
    const Index kind = within(0, 99);
    if (kind < 70) {
      few();
    } else if (kind < 77) {
      wide_heads();
    } else if (kind < 82) {
      many_heads();
    } else if (kind < 88) {
      tiles_of_a_batch();
    } else if (kind < 94) {
      odd_groups();
    } else {
      cache();
    }
    if (has("zero-sizes") && chance(4)) {
      Index* size = one_of<Index*>({&sizes_.batch, &sizes_.query_len, &sizes_.key_len,
                                    &sizes_.query_heads, &sizes_.head_dim});
      if (size != &sizes_.head_dim || has("value-dim")) *size = 0;
      if (sizes_.query_heads == 0 && !has("gqa")) sizes_.key_heads = 0;
    }
    return sizes_;
  }

  // Up to four sizes beyond those at which kernels change hands, as the work allows.
  Sizes beyond() {
    struct Size {
      Index Sizes::*size;
      std::vector<Index> beyond;
    };
    const Index key_len = tail(chance(50) ? 1024 : 5120);
    std::vector<Size> left = {{&Sizes::key_len, {key_len, key_len, tail(512)}},
                              {&Sizes::query_len, {tail(128), tail(640)}},
                              {&Sizes::head_dim, {64, 72, 96, 128, 136, 192, 256}},
                              {&Sizes::query_heads, {3, 5, 16, 64, 65, 66, 70}},
                              {&Sizes::batch, {4, 5, 6, 9}}};
    most_ = kMostWorkOfLarge / 2;
    for (Index* few : {&sizes_.query_len, &sizes_.key_len, &sizes_.head_dim}) *few = within(1, 8);
    while (left.size() > 1) {
      const auto at = left.begin() + within(0, static_cast<Index>(left.size()) - 1);
      Index& size = sizes_.*at->size;
      const Index before = std::exchange(size, one_of(at->beyond));
      sizes_.value_dim = sizes_.head_dim;
      sizes_.key_heads = sizes_.query_heads;
      if (work() > most_) size = before;
      left.erase(at);
    }
    sizes_.value_dim = sizes_.head_dim;
    const bool grouped = has("gqa") && chance(60);
    sizes_.key_heads = grouped ? one_of(divisors_of(sizes_.query_heads)) : sizes_.query_heads;
    return sizes_;
  }

  Sizes altered() {
    const auto near = [&](Index size) {
      switch (within(0, 3)) {
        case 0:
          return std::max<Index>(size + one_of<Index>({-1, 1}), 1);
        case 1:
          return std::max<Index>(size / 2, 1);
        case 2:
          return 2 * size + within(0, 1);
        default:
          return chance(50) ? length() : tail(192);
      }
    };
    switch (within(0, 5)) {
      case 0:
        sizes_.query_len = near(sizes_.query_len);
        return sizes_;
      case 1:
      case 2:
        sizes_.key_len = near(sizes_.key_len);
        return sizes_;
      case 3: {
        const bool same = sizes_.value_dim == sizes_.head_dim;
        sizes_.head_dim = chance(70) ? channels() : wide_channels();
        if (same) sizes_.value_dim = sizes_.head_dim;
        return sizes_;
      }
      case 4:
        sizes_.batch = within(1, 5);
        return sizes_;
      default:
        sizes_.key_heads = within(1, 4);
        sizes_.query_heads = sizes_.key_heads * (has("gqa") ? within(1, 7) : 1);
        return sizes_;
    }
  }

 private:
  Index channels() const {
    if (chance(60)) return within(1, 9);
    return one_of<Index>({15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 80, 96, 128});
  }
  Index wide_channels() const { return one_of<Index>({96, 112, 128, 128, 160, 192, 256}); }

  // A handful of everything.
  void few() {
    most_ = kMostWork / 2;
    sizes_.query_len = length();
    sizes_.key_len = length();
    sizes_.head_dim = channels();
    sizes_.value_dim = has("value-dim") && chance(40) ? channels() : sizes_.head_dim;
    fit();
    const Index most = room();
    sizes_.key_heads = within(1, std::min<Index>(most, 3));
    sizes_.query_heads = sizes_.key_heads;
    if (has("gqa") && chance(40)) {
      sizes_.query_heads *= within(1, std::clamp<Index>(most / sizes_.key_heads, 1, 5));
    }
    sizes_.batch = within(1, std::clamp<Index>(most / sizes_.query_heads, 1, 3));
  }

  // As many channels as kernels have instances of their own for.
  void wide_heads() {
    sizes_.head_dim = wide_channels();
    sizes_.value_dim = sizes_.head_dim;
    if (has("value-dim") && chance(30))
      sizes_.value_dim = chance(50) ? wide_channels() : channels();
    sizes_.key_len = chance(60) ? tail(128) : length();
    sizes_.query_len = std::min(
        chance(60) ? within(1, 17) : length(),
        std::max<Index>(most_ / (sizes_.key_len * (sizes_.head_dim + sizes_.value_dim)), 1));
    some_heads();
  }

  // As many heads as a model has.
  void many_heads() {
    sizes_.query_heads = one_of<Index>({32, 40, 64, 64, 96});
    sizes_.key_heads = has("gqa")
                           ? sizes_.query_heads / one_of<Index>({1, 4, 8, sizes_.query_heads})
                           : sizes_.query_heads;
    sizes_.query_len = within(1, 3);
    sizes_.key_len = chance(50) ? within(1, 8) : tail(64);
    sizes_.head_dim = sizes_.value_dim = within(1, 8);
    fit();
  }

  // Several tiles, of several batch elements.
  void tiles_of_a_batch() {
    sizes_.batch = within(4, 6);
    sizes_.key_len = tail(192);
    sizes_.query_len = chance(50) ? within(1, 8) : tail(64);
    if (chance(30)) std::swap(sizes_.query_len, sizes_.key_len);
    sizes_.head_dim = sizes_.value_dim = chance(50) ? within(1, 8) : channels();
    fit();
    some_heads();
  }

  // Groups that divide no tile.
  void odd_groups() {
    sizes_.key_heads = within(1, 2);
    sizes_.query_heads = sizes_.key_heads * (has("gqa") ? one_of<Index>({3, 5, 6, 7, 12}) : 1);
    sizes_.query_len = chance(70) ? within(1, 8) : tail(32);
    sizes_.key_len = chance(50) ? 64 * within(1, 3) + one_of<Index>({-1, 1}) : tail(192);
    sizes_.head_dim = sizes_.value_dim = channels();
    fit();
  }

  // A few queries and many keys, as when a model generates.
  void cache() {
    sizes_.query_len = within(1, 8);
    sizes_.key_len = chance(50) ? within(300, 1100) : tail(1024);
    sizes_.head_dim = sizes_.value_dim = chance(70) ? within(1, 8) : channels();
    fit();
    some_heads();
  }

  static std::vector<Index> divisors_of(Index number) {
    std::vector<Index> divisors;
    for (Index d = 1; d <= number; ++d) {
      if (number % d == 0) divisors.push_back(d);
    }
    return divisors;
  }

  Index work() const {
    return work_of({.batch = sizes_.batch,
                    .query_heads = sizes_.query_heads,
                    .key_heads = sizes_.key_heads,
                    .query_len = sizes_.query_len,
                    .key_len = sizes_.key_len,
                    .head_dim = sizes_.head_dim,
                    .value_dim = sizes_.value_dim});
  }
  // How many times the work may be done.
  Index room() const { return std::max<Index>(most_ / std::max<Index>(work(), 1), 1); }

  // The work of a problem stays small, however its sizes come together.
  void fit() {
    const Index all = work();
    if (all <= most_) return;
    const Index channels = sizes_.head_dim + sizes_.value_dim;
    sizes_.head_dim = std::clamp<Index>(most_ * channels / all / 2, 1, sizes_.head_dim);
    sizes_.value_dim = has("value-dim")
                           ? std::max<Index>(std::min(sizes_.value_dim, sizes_.head_dim), 1)
                           : sizes_.head_dim;
  }

  // Heads and batch elements, as far as the work allows.
  void some_heads() {
    const Index heads = within(1, std::min<Index>(room(), 4));
    sizes_.query_heads = heads;
    sizes_.key_heads = has("gqa") && chance(40) ? 1 : heads;
    if (sizes_.batch == 1) sizes_.batch = within(1, std::min<Index>(room(), 3));
  }

  Sizes sizes_;
  Index most_ = kMostWork;  // of the work
};

}  // namespace

Index work_of(const Problem& p) {
  const Index rows = p.query_heads * p.query_len + p.key_heads * p.key_len;
  return p.batch * (p.head_dim + p.value_dim) *
         (p.query_heads * p.query_len * p.key_len + 4 * rows);
}

Index longest(const json& lens) {
  Index most = 0;
  for (const json& len : lens) most = std::max(most, len.get<Index>());
  return most;
}

Sizes sizes_in(const json& problem) {
  Sizes sizes;
  sizes.batch = problem.value<Index>("batch", 1);
  sizes.query_heads = problem.value<Index>("query_heads", 1);
  sizes.key_heads = problem.value<Index>("key_heads", 1);
  const auto length = [&](const char* size, const char* lens) {
    return problem.contains(size)   ? problem.at(size).get<Index>()
           : problem.contains(lens) ? longest(problem.at(lens))
                                    : 1;
  };
  sizes.query_len = length("query_len", "query_lens");
  sizes.key_len = length("key_len", "key_lens");
  sizes.head_dim = problem.value<Index>("head_dim", 1);
  sizes.value_dim = problem.value<Index>("value_dim", sizes.head_dim);
  return sizes;
}

void put_sizes(const Sizes& sizes, json& problem) {
  for (const char* size : kSizes) problem.erase(size);
  const auto put = [&](const char* field, Index size) {
    if (size != 1) problem[field] = size;
  };
  const bool packed = problem.contains("packed"), paged = problem.contains("paging");
  put("batch", sizes.batch);
  put("query_heads", sizes.query_heads);
  put("key_heads", sizes.key_heads);
  if (!packed) put("query_len", sizes.query_len);
  if (!packed && !paged) put("key_len", sizes.key_len);
  put("head_dim", sizes.head_dim);
  if (sizes.value_dim != sizes.head_dim) problem["value_dim"] = sizes.value_dim;
}

Sizes random_sizes(const Description& testee, Dice& dice) {
  return SizeDrawing(testee, dice).fresh();
}

Sizes large_sizes(const Description& testee, Dice& dice) {
  return SizeDrawing(testee, dice).beyond();
}

Sizes altered_sizes(const Sizes& sizes, const Description& testee, Dice& dice) {
  return SizeDrawing(testee, dice, sizes).altered();
}

}  // namespace attest
