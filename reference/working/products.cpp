// Each function runs over groups of four rows, and of single rows for what remains; a group's sums
// stay in registers while one key after the other is read.
#include "reference/working/products.h"

#include <cmath>
#include <type_traits>

// Vectors whose size the compiler doesn't know can't be elements of arrays.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reference/working/products.cpp"
#include "hwy/foreach_target.h"  // must precede highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attest::bound::working {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Lanes = hn::CappedTag<double, kPad>;
using Vec = hn::Vec<Lanes>;

template <int kGroup>
void DotsOfGroup(const Rows<double>& x, Index row, const Panels<double>& y, Range keys,
                 Rows<double>& dot, Rows<double>& magnitude) {
  const Lanes lanes;
  const Index n = static_cast<Index>(hn::Lanes(lanes));
  for (Index j = keys.begin / kPad * kPad; j < keys.end; j += n) {
    const double* HWY_RESTRICT column = y.panel(j / kPad) + j % kPad;
    Vec sum[kGroup], size[kGroup];
    for (int r = 0; r < kGroup; ++r) sum[r] = size[r] = hn::Zero(lanes);
    for (Index c = 0; c < y.width; ++c) {
      const Vec value = hn::LoadU(lanes, column + c * kPad);
      const Vec absolute = hn::Abs(value);
      for (int r = 0; r < kGroup; ++r) {
        const Vec factor = hn::Set(lanes, x.row(row + r)[c]);
        sum[r] = hn::MulAdd(factor, value, sum[r]);
        size[r] = hn::MulAdd(hn::Abs(factor), absolute, size[r]);
      }
    }
    for (int r = 0; r < kGroup; ++r) {
      hn::StoreU(sum[r], lanes, dot.row(row + r) + j);
      hn::StoreU(size[r], lanes, magnitude.row(row + r) + j);
    }
  }
}

template <int kGroup>
void SumsOfGroup(const Rows<double>& weight, Index row, const Strips<double>& y, Range keys,
                 Rows<double>& sum) {
  const Lanes lanes;
  constexpr Index n = static_cast<Index>(hn::MaxLanes(lanes));
  constexpr int kVecs = static_cast<int>(kPad / n);
  for (Index c = 0; c < y.width; c += kPad) {
    const double* HWY_RESTRICT strip = y.strip(0, c);
    Vec total[kGroup][kVecs];
    for (int r = 0; r < kGroup; ++r) {
      for (int v = 0; v < kVecs; ++v) total[r][v] = hn::Zero(lanes);
    }
    for (Index j = keys.begin; j < keys.end; ++j) {
      Vec value[kVecs];
      for (int v = 0; v < kVecs; ++v) value[v] = hn::LoadU(lanes, strip + j * kPad + v * n);
      for (int r = 0; r < kGroup; ++r) {
        const Vec factor = hn::Set(lanes, weight.row(row + r)[j]);
        for (int v = 0; v < kVecs; ++v) total[r][v] = hn::MulAdd(factor, value[v], total[r][v]);
      }
    }
    for (int r = 0; r < kGroup; ++r) {
      for (int v = 0; v < kVecs; ++v) hn::StoreU(total[r][v], lanes, sum.row(row + r) + c + v * n);
    }
  }
}

template <int kGroup>
void DistancesOfGroup(const Rows<double>& by_distance, const Rows<double>& by_size, Index row,
                      const Strips<double>& y, Range keys, const Rows<double>& centre,
                      Rows<double>& sum) {
  const Lanes lanes;
  constexpr Index n = static_cast<Index>(hn::MaxLanes(lanes));
  for (Index c = 0; c < y.width; c += n) {
    const double* HWY_RESTRICT strip = y.strip(0, c / kPad * kPad) + c % kPad;
    Vec middle[kGroup], distance[kGroup], size[kGroup];
    for (int r = 0; r < kGroup; ++r) {
      middle[r] = hn::LoadU(lanes, centre.row(row + r) + c);
      distance[r] = size[r] = hn::Zero(lanes);
    }
    for (Index j = keys.begin; j < keys.end; ++j) {
      const Vec value = hn::LoadU(lanes, strip + j * kPad);
      const Vec absolute = hn::Abs(value);
      for (int r = 0; r < kGroup; ++r) {
        const Vec away = hn::Abs(hn::Sub(value, middle[r]));
        distance[r] = hn::MulAdd(hn::Set(lanes, by_distance.row(row + r)[j]), away, distance[r]);
        size[r] = hn::MulAdd(hn::Set(lanes, by_size.row(row + r)[j]), absolute, size[r]);
      }
    }
    for (int r = 0; r < kGroup; ++r) {
      hn::StoreU(hn::Add(distance[r], size[r]), lanes, sum.row(row + r) + c);
    }
  }
}

template <int kGroup>
void OuterOfGroup(const Rows<double>& weight, Index row, const Rows<double>& x, Index c, Range keys,
                  Strips<double>& sum) {
  const Lanes lanes;
  constexpr Index n = static_cast<Index>(hn::MaxLanes(lanes));
  constexpr int kVecs = static_cast<int>(kPad / n);
  Vec factor[kGroup][kVecs];
  for (int r = 0; r < kGroup; ++r) {
    for (int v = 0; v < kVecs; ++v) factor[r][v] = hn::LoadU(lanes, x.row(row + r) + c + v * n);
  }
  double* HWY_RESTRICT strip = sum.strip(0, c);
  for (Index j = keys.begin; j < keys.end; ++j) {
    Vec total[kVecs];
    for (int v = 0; v < kVecs; ++v) total[v] = hn::LoadU(lanes, strip + j * kPad + v * n);
    for (int r = 0; r < kGroup; ++r) {
      const Vec share = hn::Set(lanes, weight.row(row + r)[j]);
      for (int v = 0; v < kVecs; ++v) total[v] = hn::MulAdd(share, factor[r][v], total[v]);
    }
    for (int v = 0; v < kVecs; ++v) hn::StoreU(total[v], lanes, strip + j * kPad + v * n);
  }
}

// visit(group size as a constant, first row) until `count` rows are covered: four at a time.
template <class Visit>
void ForGroups(Index count, const Visit& visit) {
  Index row = 0;
  for (; row + 4 <= count; row += 4) visit(std::integral_constant<int, 4>{}, row);
  for (; row < count; ++row) visit(std::integral_constant<int, 1>{}, row);
}

void DotProducts(const Rows<double>& x, const Panels<double>& y, Range keys, Rows<double>& dot,
                 Rows<double>& magnitude) {
  ForGroups(x.count,
            [&](auto group, Index row) { DotsOfGroup<group()>(x, row, y, keys, dot, magnitude); });
}

void WeightedSums(const Rows<double>& weight, const Strips<double>& y, Range keys,
                  Rows<double>& sum) {
  ForGroups(sum.count,
            [&](auto group, Index row) { SumsOfGroup<group()>(weight, row, y, keys, sum); });
}

void WeightedDistances(const Rows<double>& by_distance, const Rows<double>& by_size,
                       const Strips<double>& y, Range keys, const Rows<double>& centre,
                       Rows<double>& sum) {
  ForGroups(sum.count, [&](auto group, Index row) {
    DistancesOfGroup<group()>(by_distance, by_size, row, y, keys, centre, sum);
  });
}

void AddOuterProducts(const Rows<double>& weight, const Rows<double>& x, Range keys,
                      Strips<double>& sum) {
  for (Index c = 0; c < x.width; c += kPad) {
    ForGroups(x.count,
              [&](auto group, Index row) { OuterOfGroup<group()>(weight, row, x, c, keys, sum); });
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace attest::bound::working
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest::bound::working {

HWY_EXPORT(DotProducts);
HWY_EXPORT(WeightedSums);
HWY_EXPORT(WeightedDistances);
HWY_EXPORT(AddOuterProducts);

void dot_products(const Rows<double>& x, const Panels<double>& y, Range keys, Rows<double>& dot,
                  Rows<double>& magnitude) {
  if (y.width > 0) HWY_DYNAMIC_DISPATCH(DotProducts)(x, y, keys, dot, magnitude);
}

void weighted_sums(const Rows<double>& weight, const Strips<double>& y, Range keys,
                   Rows<double>& sum) {
  HWY_DYNAMIC_DISPATCH(WeightedSums)(weight, y, keys, sum);
}

void weighted_distances(const Rows<double>& by_distance, const Rows<double>& by_size,
                        const Strips<double>& y, Range keys, const Rows<double>& centre,
                        Rows<double>& sum) {
  HWY_DYNAMIC_DISPATCH(WeightedDistances)(by_distance, by_size, y, keys, centre, sum);
}

void add_outer_products(const Rows<double>& weight, const Rows<double>& x, Range keys,
                        Strips<double>& sum) {
  HWY_DYNAMIC_DISPATCH(AddOuterProducts)(weight, x, keys, sum);
}

void dot_products(const Rows<long double>& x, const Panels<long double>& y, Range keys,
                  Rows<long double>& dot, Rows<long double>& magnitude) {
  if (y.width == 0) return;
  for (Index r = 0; r < x.count; ++r) {
    for (Index j = keys.begin / kPad * kPad; j < padded(keys.end); ++j) {
      const long double* column = y.panel(j / kPad) + j % kPad;
      long double sum = 0, size = 0;
      for (Index c = 0; c < y.width; ++c) {
        const long double product = x.row(r)[c] * column[c * kPad];
        sum += product;
        size += std::abs(product);
      }
      dot.row(r)[j] = sum;
      magnitude.row(r)[j] = size;
    }
  }
}

void weighted_sums(const Rows<long double>& weight, const Strips<long double>& y, Range keys,
                   Rows<long double>& sum) {
  for (Index r = 0; r < sum.count; ++r) {
    for (Index c = 0; c < y.width; ++c) {
      long double total = 0;
      for (Index j = keys.begin; j < keys.end; ++j) total += weight.row(r)[j] * y.at(j, c);
      sum.row(r)[c] = total;
    }
  }
}

void weighted_distances(const Rows<long double>& by_distance, const Rows<long double>& by_size,
                        const Strips<long double>& y, Range keys, const Rows<long double>& centre,
                        Rows<long double>& sum) {
  for (Index r = 0; r < sum.count; ++r) {
    for (Index c = 0; c < y.width; ++c) {
      long double total = 0;
      for (Index j = keys.begin; j < keys.end; ++j) {
        const long double value = y.at(j, c);
        total += by_distance.row(r)[j] * std::abs(value - centre.row(r)[c]) +
                 by_size.row(r)[j] * std::abs(value);
      }
      sum.row(r)[c] = total;
    }
  }
}

void add_outer_products(const Rows<long double>& weight, const Rows<long double>& x, Range keys,
                        Strips<long double>& sum) {
  for (Index r = 0; r < x.count; ++r) {
    for (Index j = keys.begin; j < keys.end; ++j) {
      for (Index c = 0; c < x.width; ++c) sum.at(j, c) += weight.row(r)[j] * x.row(r)[c];
    }
  }
}

}  // namespace attest::bound::working
#endif  // HWY_ONCE
