// The sums in which the working reference spends its time, over a few query rows and a range of
// keys at once (NUMERICS.md, section 5).
//
// For double they are vectorised, for whatever instruction set the processor has; for long double,
// which f64 testees need, they are plain loops. Each element is one sum over one axis, in an order
// that depends on nothing but the sizes and the instruction set.
#pragma once

#include <cstddef>
#include <vector>

#include "reference/at.h"
#include "spec/index.h"

namespace attest::bound::working {

inline constexpr Index kRows = 8;  // query rows that are handled together
inline constexpr Index kPad = 8;   // keys and channels are padded with zeros to a multiple of it

constexpr Index padded(Index count) { return (count + kPad - 1) / kPad * kPad; }

// The rows of a matrix, one after the other, each padded.
template <class Real>
struct Rows {
  Index count = 0;
  Index width = 0;  // padded
  std::vector<Real> data = {};

  Rows() = default;
  Rows(Index row_count, Index columns)
      : count(row_count),
        width(padded(columns)),
        data(static_cast<std::size_t>(row_count * padded(columns))) {}

  bool empty() const { return data.empty(); }
  Real* row(Index i) { return data.data() + i * width; }
  const Real* row(Index i) const { return data.data() + i * width; }
  Real at(Index i, Index c) const { return row(i)[c]; }
  Real& at(Index i, Index c) { return row(i)[c]; }
};

// The same in strips of kPad channels, so that a sum over rows reads memory in order: element (j,
// c) lies at j * kPad + c % kPad of strip c / kPad.
template <class Real>
struct Strips {
  Index count = 0;  // of rows
  Index width = 0;  // padded
  std::vector<Real> data = {};

  Strips() = default;
  Strips(Index row_count, Index columns)
      : count(row_count),
        width(padded(columns)),
        data(static_cast<std::size_t>(row_count * padded(columns))) {}

  bool empty() const { return data.empty(); }
  // Channels c to c + kPad - 1 of row j, c a multiple of kPad.
  Real* strip(Index j, Index c) { return data.data() + c * count + j * kPad; }
  const Real* strip(Index j, Index c) const { return data.data() + c * count + j * kPad; }
  Real at(Index j, Index c) const { return strip(j, c / kPad * kPad)[c % kPad]; }
  Real& at(Index j, Index c) { return strip(j, c / kPad * kPad)[c % kPad]; }
};

// The same in panels of kPad rows, so that kPad dot products are summed side by side: element (j,
// c) lies at c * kPad + j % kPad of panel j / kPad.
template <class Real>
struct Panels {
  Index count = 0;  // of rows, padded
  Index width = 0;  // not padded
  std::vector<Real> data = {};

  Panels() = default;
  Panels(Index row_count, Index columns)
      : count(padded(row_count)),
        width(columns),
        data(static_cast<std::size_t>(padded(row_count) * columns)) {}

  bool empty() const { return data.empty(); }
  const Real* panel(Index p) const { return data.data() + p * kPad * width; }
  Real& at(Index j, Index c) {
    return data[static_cast<std::size_t>((j / kPad * width + c) * kPad + j % kPad)];
  }
};

struct Range {
  Index begin = 0;
  Index end = 0;
};

// dot[r][j] = sum_c x[r][c] y[j][c], and the same of the magnitudes. Whole panels are computed:
// `keys` is widened to multiples of kPad. Sums without any term are left as they are.
void dot_products(const Rows<double>& x, const Panels<double>& y, Range keys, Rows<double>& dot,
                  Rows<double>& magnitude);
void dot_products(const Rows<long double>& x, const Panels<long double>& y, Range keys,
                  Rows<long double>& dot, Rows<long double>& magnitude);

// sum[r][c] = sum_j weight[r][j] y[j][c].
void weighted_sums(const Rows<double>& weight, const Strips<double>& y, Range keys,
                   Rows<double>& sum);
void weighted_sums(const Rows<long double>& weight, const Strips<long double>& y, Range keys,
                   Rows<long double>& sum);

// sum[r][c] = sum_j by_distance[r][j] |y[j][c] - centre[r][c]| + by_size[r][j] |y[j][c]|.
void weighted_distances(const Rows<double>& by_distance, const Rows<double>& by_size,
                        const Strips<double>& y, Range keys, const Rows<double>& centre,
                        Rows<double>& sum);
void weighted_distances(const Rows<long double>& by_distance, const Rows<long double>& by_size,
                        const Strips<long double>& y, Range keys, const Rows<long double>& centre,
                        Rows<long double>& sum);

// sum[j][c] += sum_r weight[r][j] x[r][c].
void add_outer_products(const Rows<double>& weight, const Rows<double>& x, Range keys,
                        Strips<double>& sum);
void add_outer_products(const Rows<long double>& weight, const Rows<long double>& x, Range keys,
                        Strips<long double>& sum);

}  // namespace attest::bound::working
