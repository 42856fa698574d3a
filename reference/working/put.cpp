#include "reference/working/put.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attest::bound::working {

constexpr double kLost = std::numeric_limits<double>::quiet_NaN();

void fill(Expected& expected, const Problem& problem, const Shape& shape, double value,
          bool beyond) {
  const auto count = at(element_count(shape));
  expected.value.assign(count, value);
  expected.bound.assign(count, 0);
  if (beyond) expected.recommended.assign(count, kInfinity);
  if (problem.dtype == DType::f64) expected.rest.assign(count, 0);
}

template <class Real>
void put(Expected& expected, Index element, bool lost, Real value, Real bound, bool beyond) {
  const std::size_t e = at(element);
  expected.value[e] = lost ? kLost : static_cast<double>(value);
  // A bound that is no number comes of infinity times 0, and admits anything too.
  const double limit = !lost && bound < kInfinity ? static_cast<double>(bound) : kInfinity;
  expected.bound[e] = beyond ? kInfinity : limit;
  if (beyond) expected.recommended[e] = limit;
  if (!expected.rest.empty() && std::isfinite(expected.value[e])) {
    expected.rest[e] = static_cast<double>(value - Real(expected.value[e]));
  }
}

template <class Real, class Form>
void put_row(Expected& expected, const Shape& shape, Place place, Index h,
             const Standing<Real>& standing, const Form& value, const Form& bound, const Form& size,
             Index row) {
  const Index first = dense_index(shape, place.batch, h, place.position, 0);
  for (Index c = 0; c < shape[kChannel]; ++c) {
    const bool lost =
        standing.lost || (!size.empty() && sum_may_overflow(size.at(row, c), standing.overflow));
    put<Real>(expected, first + c, lost, value.at(row, c), bound.at(row, c), standing.beyond);
  }
}

void put_zeros(Expected& expected, const Shape& shape, Place place, Index h) {
  const auto first = at(dense_index(shape, place.batch, h, place.position, 0));
  for (std::size_t e = first; e < first + at(shape[kChannel]); ++e) expected.value[e] = 0;
}

template <class Real>
void put_forward(const Problem& problem, const Model<Real>& model, const Block<Real>& block,
                 ForwardExpected& result) {
  for (Index r = 0; r < block.count; ++r) {
    const RowState<Real>& row = block.rows[at(r)];
    const Place place = problem.query_place(block.b, block.begin + r);
    const Index lse = dense_index(problem.lse_shape(), place.batch, block.h, place.position, 0);
    if (row.n == 0 && !row.has_sink && !row.lost) {
      result.lse.value[at(lse)] = -kInfinity;
    } else {
      put(result.lse, lse, row.lost, row.L, row.lse_bound, row.beyond);
    }
    if (row.n == 0 && !row.lost) {
      put_zeros(result.o, problem.o_shape(), place, block.h);
      continue;
    }
    put_row<Real>(result.o, problem.o_shape(), place, block.h,
                  {row.lost, row.beyond, model.sum_overflow}, block.o, block.o_bound, block.o_size,
                  r);
  }
}

template <class Real>
void put_dq(const Problem& problem, const Model<Real>& model, const Block<Real>& block,
            Expected& dq) {
  for (Index r = 0; r < block.count; ++r) {
    const RowState<Real>& row = block.rows[at(r)];
    const Place place = problem.query_place(block.b, block.begin + r);
    if (row.n == 0 && !row.lost) {
      put_zeros(dq, problem.q_shape(), place, block.h);
      continue;
    }
    put_row<Real>(dq, problem.q_shape(), place, block.h,
                  {row.lost || row.ds_lost, row.beyond, model.sum_overflow}, block.dq,
                  block.dq_bound, block.dq_size, r);
  }
}

template <class Real>
void put_keys(const Problem& problem, const Model<Real>& model, Index b, Index h, Range wanted,
              const KeyGradients<Real>& sum, BackwardExpected& result) {
  const Real overflow = std::min(model.sum_overflow, model.stored.overflow);
  for (Index j = wanted.begin; j < std::min(wanted.end, problem.lengths(b).key); ++j) {
    const Place place = problem.key_place(b, j);
    if (!sum.seen[at(j)]) {
      put_zeros(result.dk, problem.k_shape(), place, h);
      put_zeros(result.dv, problem.v_shape(), place, h);
      continue;
    }
    const bool lost = sum.lost[at(j)], beyond = sum.beyond[at(j)];
    put_row<Real>(result.dk, problem.k_shape(), place, h,
                  {lost || sum.dk_lost[at(j)], beyond, overflow}, sum.dk, sum.dk_bound, sum.dk_size,
                  j);
    put_row<Real>(result.dv, problem.v_shape(), place, h, {lost, beyond, overflow}, sum.dv,
                  sum.dv_bound, sum.dv_size, j);
  }
}

#define ATTEST_PUT_FOR(Real)                                                                   \
  template void put(Expected&, Index element, bool lost, Real value, Real bound, bool beyond); \
  template void put_forward(const Problem&, const Model<Real>&, const Block<Real>&,            \
                            ForwardExpected&);                                                 \
  template void put_dq(const Problem&, const Model<Real>&, const Block<Real>&, Expected&);     \
  template void put_keys(const Problem&, const Model<Real>&, Index b, Index h, Range wanted,   \
                         const KeyGradients<Real>&, BackwardExpected&);
ATTEST_PUT_FOR(double)
ATTEST_PUT_FOR(long double)
#undef ATTEST_PUT_FOR

}  // namespace attest::bound::working
