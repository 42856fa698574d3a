#include "reference/working/pack.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace attest::bound::working {
namespace {

// Rows rows.begin to rows.end of one head, each at the place that `place` gives it.
template <class Form, class Real, class PlaceOf>
void pack(const Values& values, Index h, Range rows, const PlaceOf& place, Real tiny,
          Operand<Form>& to) {
  const Index count = rows.end - rows.begin, columns = values.shape[kChannel];
  clear(to.value, count, columns);
  clear(to.size, count, columns);
  to.small = {};
  to.lost.assign(at(count), 0);
  to.any_lost = false;
  for (Index j = 0; j < count; ++j) {
    const Place at_place = place(rows.begin + j);
    const double* source =
        values.data.data() + dense_index(values.shape, at_place.batch, h, at_place.position, 0);
    if (!std::all_of(source, source + columns, [](double x) { return std::isfinite(x); })) {
      to.lost[at(j)] = to.any_lost = true;
      continue;
    }
    for (Index c = 0; c < columns; c += kPad) {
      Real *const value = &to.value.at(j, c), *const size = &to.size.at(j, c);
      for (Index lane = 0; lane < std::min(kPad, columns - c); ++lane) {
        value[lane] = source[c + lane];
        size[lane] = std::abs(value[lane]);
      }
    }
    for (Index c = 0; tiny > 0 && c < columns; ++c) {
      const Real size = to.size.at(j, c);
      if (size == 0 || size >= tiny) continue;
      if (to.small.empty()) clear(to.small, count, columns);
      to.small.at(j, c) = size;
    }
  }
}

template <class Real>
Panels<Real> transpose(const Strips<Real>& from, Index columns) {
  Panels<Real> panels(from.empty() ? 0 : from.count, columns);
  for (Index j = 0; !from.empty() && j < from.count; ++j) {
    for (Index c = 0; c < columns; ++c) panels.at(j, c) = from.at(j, c);
  }
  return panels;
}

// The sum over the rows, of each channel.
template <class Real>
std::vector<Real> column_sums(const Strips<Real>& sizes) {
  std::vector<Real> sums(at(sizes.width));
  for (Index c = 0; !sizes.empty() && c < sizes.width; c += kPad) {
    std::array<Real, kPad> sum = {};
    for (Index j = 0; j < sizes.count; ++j) {
      const Real* size = sizes.strip(j, c);
      for (std::size_t lane = 0; lane < sum.size(); ++lane) sum[lane] += size[lane];
    }
    std::copy(sum.begin(), sum.end(), sums.begin() + c);
  }
  return sums;
}

template <class Real>
Real largest_of(const std::vector<Real>& sums) {
  return std::accumulate(sums.begin(), sums.end(), Real(0),
                         [](Real most, Real x) { return std::max(most, x); });
}

// Whether numbers of these magnitudes are integers whose sums over the rows are exact in f32.
template <class Real>
bool are_small_integers(const Strips<Real>& sizes, const std::vector<Real>& sums) {
  return std::all_of(sizes.data.begin(), sizes.data.end(),
                     [](Real size) { return size == std::floor(size); }) &&
         std::all_of(sums.begin(), sums.end(), [](Real sum) { return sum < Real(0x1p24); });
}

}  // namespace

template <class Real>
void pack_queries(const Problem& problem, const Values& values, Index b, Index h, Range rows,
                  Real tiny, Operand<Rows<Real>>& to) {
  pack(
      values, h, rows, [&](Index i) { return problem.query_place(b, i); }, tiny, to);
}

template <class Real>
KeyHead<Real> pack_key_head(const Problem& problem, const Inputs& inputs, const Model<Real>& model,
                            Index b, Index h) {
  KeyHead<Real> head;
  const Range keys = {0, problem.lengths(b).key};
  const auto place = [&](Index j) { return problem.key_place(b, j); };
  pack(inputs.k, h, keys, place, model.tiny_score, head.k);
  pack(inputs.v, h, keys, place, model.tiny, head.v);
  head.k_panels = transpose(head.k.value, problem.head_dim);
  head.k_small_panels = transpose(head.k.small, problem.head_dim);
  if (problem.backward) {
    head.v_panels = transpose(head.v.value, problem.value_dim);
    head.v_small_panels = transpose(head.v.small, problem.value_dim);
  }
  head.k_sum.resize(at(keys.end));
  head.k_most.resize(at(keys.end));
  for (Index c = 0; c < problem.head_dim; ++c) {
    for (Index j = 0; j < keys.end; ++j) {
      const Real size = head.k.size.at(j, c);
      head.k_sum[at(j)] += size;
      head.k_most[at(j)] = std::max(head.k_most[at(j)], size);
    }
  }
  if (problem.backward) head.k_channel = largest_of(column_sums(head.k.size));
  const std::vector<Real> v_sums = column_sums(head.v.size);
  head.v_channel = largest_of(v_sums);
  head.small_integers = are_small_integers(head.v.size, v_sums);
  return head;
}

#define ATTEST_PACK_FOR(Real)                                                                      \
  template void pack_queries(const Problem&, const Values&, Index b, Index h, Range rows,          \
                             Real tiny, Operand<Rows<Real>>& to);                                  \
  template KeyHead<Real> pack_key_head(const Problem&, const Inputs&, const Model<Real>&, Index b, \
                                       Index h);
ATTEST_PACK_FOR(double)
ATTEST_PACK_FOR(long double)
#undef ATTEST_PACK_FOR

}  // namespace attest::bound::working
