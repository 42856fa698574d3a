#include "reference/working/key_gradients.h"

#include <algorithm>
#include <cmath>

namespace attest::bound::working {

template <class Real>
KeyGradients<Real>::KeyGradients(const Problem& problem, Index key_len, Sums sums)
    : seen(at(key_len)), lost(at(key_len)), dk_lost(at(key_len)), beyond(at(key_len)) {
  if (sums == Sums::none) return;
  for (Strips<Real>* each : {&dk, &dk_bound}) *each = Strips<Real>(key_len, problem.head_dim);
  for (Strips<Real>* each : {&dv, &dv_bound}) *each = Strips<Real>(key_len, problem.value_dim);
  if (sums != Sums::sizes_too) return;
  dk_size = Strips<Real>(key_len, problem.head_dim);
  dv_size = Strips<Real>(key_len, problem.value_dim);
}

template <class Real>
void KeyGradients<Real>::add(const KeyGradients& other) {
  const auto plus = [](auto& to, const auto& from) {
    for (std::size_t e = 0; e < from.size(); ++e) to[e] += from[e];
  };
  plus(dk.data, other.dk.data);
  plus(dk_bound.data, other.dk_bound.data);
  plus(dv.data, other.dv.data);
  plus(dv_bound.data, other.dv_bound.data);
  plus(dk_size.data, other.dk_size.data);
  plus(dv_size.data, other.dv_size.data);
  most += other.most;
  for (std::size_t j = 0; j < seen.size(); ++j) {
    seen[j] |= other.seen[j];
    lost[j] |= other.lost[j];
    dk_lost[j] |= other.dk_lost[j];
    beyond[j] |= other.beyond[j];
  }
}

template <class Real>
void round_head(const Problem& problem, const Model<Real>& model, Index b,
                KeyGradients<Real>& sums) {
  const Real rows = Real(problem.lengths(b).query + 8);
  const auto round = [&](const Strips<Real>& value, Strips<Real>& bound, Real underflow) {
    for (std::size_t e = 0; e < bound.data.size(); ++e) {
      const Real size = std::abs(value.data[e]), sum = bound.data[e] + underflow * rows;
      const Real error = sum + (3 * model.u_s + model.u_zeta) * (size + sum);
      bound.data[e] += rho_out(model, value.data[e], error);
    }
  };
  round(sums.dk, sums.dk_bound, 2 * model.z * (1 + model.tau) * model.keep_scale);
  round(sums.dv, sums.dv_bound, 2 * model.z * model.keep_scale);
}

template <class Real>
void finish(const Problem& problem, const Model<Real>& model, Index b, KeyGradients<Real>& sums) {
  const Real rows = Real(problem.group_size() * problem.lengths(b).query + 8);
  const Real stored = times_stored(problem, model, b) * model.stored.underflow * model.keep_scale;
  const auto complete = [&](const Strips<Real>& value, Strips<Real>& bound, Real underflow) {
    for (std::size_t e = 0; e < bound.data.size(); ++e) {
      const Real size = std::abs(value.data[e]), sum = bound.data[e] + underflow;
      bound.data[e] =
          (sum + (3 * model.u_s + model.u_zeta) * (size + sum)) * model.slack + model.flushed;
    }
  };
  const Real larger_tau = std::max(Real(1), model.tau);
  complete(sums.dk, sums.dk_bound,
           2 * model.z * (1 + model.tau) * model.keep_scale * rows + stored * larger_tau);
  complete(sums.dv, sums.dv_bound, 2 * model.z * model.keep_scale * rows + stored);
  for (Real& each : sums.dk_size.data) each = before_scale(model, each);
}

#define ATTEST_KEY_GRADIENTS_FOR(Real)                                                        \
  template struct KeyGradients<Real>;                                                         \
  template void round_head(const Problem&, const Model<Real>&, Index b, KeyGradients<Real>&); \
  template void finish(const Problem&, const Model<Real>&, Index b, KeyGradients<Real>&);
ATTEST_KEY_GRADIENTS_FOR(double)
ATTEST_KEY_GRADIENTS_FOR(long double)
#undef ATTEST_KEY_GRADIENTS_FOR

}  // namespace attest::bound::working
