#include "harness/limits/fault.h"

#include <algorithm>

namespace attest::limits {
namespace {

using enum Measure;

bool all(const Problem&) { return true; }
bool has_backward(const Problem& p) { return p.backward; }
bool has_softcap(const Problem& p) { return p.softcap > 0; }
bool has_two_keys(const Problem& p) { return longest_keys(p) > 1; }
bool has_many_keys(const Problem& p) { return longest_keys(p) > kStep; }
bool is_trained_on_many(const Problem& p) { return p.backward && has_many_keys(p); }
bool is_in_parts(const Problem& p) { return longest_keys(p) > kPartition; }
bool is_masked(const Problem& p) { return p.mask.kind != Mask::Kind::full; }
bool has_diagonal(const Problem& p) {
  return p.mask.kind == Mask::Kind::band && p.mask.right != kUnbounded;
}
bool has_window(const Problem& p) {
  return p.mask.kind == Mask::Kind::band && p.mask.left != kUnbounded;
}

double nothing(const Arithmetic&) { return 0; }
double exp_error(const Arithmetic& a) { return a.exp_error; }
double tanh_error(const Arithmetic& a) { return a.tanh_error; }
double softmax(const Arithmetic& a) { return a.softmax_roundoff; }
double scores(const Arithmetic& a) { return std::max(a.scores.roundoff, a.softmax_roundoff); }
double weights(const Arithmetic& a) { return std::max(a.p.roundoff, a.softmax_roundoff); }
double ds(const Arithmetic& a) { return std::max(a.ds.roundoff, a.softmax_roundoff); }
double format(const Arithmetic& a) { return unit_roundoff(a.dtype); }
double operands(const Arithmetic& a) { return a.qk.operand_roundoff; }
double qk(const Arithmetic& a) { return a.qk.accumulator_roundoff; }
double pv(const Arithmetic& a) { return a.pv.accumulator_roundoff; }
double dq(const Arithmetic& a) { return a.dq.accumulator_roundoff; }
double flushed(const Arithmetic& a) {
  return a.flushes_outputs ? smallest_normal(a.dtype) : half_smallest_subnormal(a.dtype);
}

}  // namespace

Index longest_keys(const Problem& problem) {
  Index longest = 0;
  for (Index b = 0; b < problem.batch; ++b) longest = std::max(longest, problem.lengths(b).key);
  return longest;
}

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> kKinds = {
      {Site::none, "none", "nothing is wrong", relative, all, nothing},
      {Site::exp, "exp", "exp is off by the size, in a wave over each octave", relative, all,
       exp_error},
      {Site::log2e, "log2 e", "exp2 of scores times a log2 e that is off by the size", relative,
       all, nothing},
      {Site::tanh, "tanh", "tanh of a softcap is off by the size", relative, has_softcap,
       tanh_error},
      {Site::scale, "scale", "the scale is off by the size", relative, all, nothing},
      {Site::scores, "scores", "scores are stored with that roundoff", relative, all, scores},
      {Site::row_sum, "row sum", "each addition to a row's sum has that roundoff", relative, all,
       softmax},
      {Site::p, "P", "P has that roundoff before its products", relative, all, weights},
      {Site::lse, "LSE", "LSE is stored with that roundoff", relative, all, softmax},
      {Site::o, "O", "O has that roundoff before its own", relative, all, format},
      {Site::delta, "D", "D is off by the size", relative, has_backward, nothing},
      {Site::ds, "dS", "dS has that roundoff before its products", relative, has_backward, ds},
      {Site::gradients, "gradients", "dQ, dK, dV have that roundoff before their own", relative,
       has_backward, format},
      {Site::operands, "operands", "Q, K, V, dO are taken with that roundoff", relative, all,
       operands},
      {Site::qk_sums, "sums of QK", "each addition of QK^T has that roundoff", relative, all, qk},
      {Site::pv_sums, "sums of PV", "each addition of PV has that roundoff", relative, all, pv},
      {Site::gradient_sums, "sums of gradients", "each addition to dQ, dK, dV has that roundoff",
       relative, has_backward, dq},
      {Site::dq_in_steps, "dQ in steps", "dQ is stored with that roundoff after each 128 keys",
       relative, is_trained_on_many, nothing},
      {Site::partitions, "partitions", "O of each 512 keys is stored with that roundoff", relative,
       is_in_parts, nothing},
      {Site::rescale, "rescale",
       "O is not rescaled where the maximum of a tile of 64 keys rises by less than the size",
       absolute, has_two_keys, nothing},
      {Site::flush, "flush", "results below the size are 0", absolute, all, flushed},
      {Site::key_lost, "key lost", "no row sees the middle key", length, has_two_keys, nothing},
      {Site::key_doubled, "key doubled", "the middle key counts twice", length, has_two_keys,
       nothing},
      {Site::key_leaked, "key leaked", "every row sees the middle key", length, is_masked, nothing},
      {Site::values_swapped, "values swapped",
       "the values of the middle key and the one before "
       "are exchanged",
       length, has_two_keys, nothing},
      {Site::diagonal, "diagonal", "rows see one key beyond the diagonal", length, has_diagonal,
       nothing},
      {Site::window, "window", "rows miss the first key of their window", length, has_window,
       nothing},
  };
  return kKinds;
}

}  // namespace attest::limits
