// One row of section 12 of NUMERICS.md, forward and backward: what random roundings make of it.
// First-order propagation of each on its own; a sigma is the root of a variance proxy.
#pragma once

#include <vector>

#include "reference/bound.h"
#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest::bound::statistical {

using Channels = std::vector<double>;  // of one position

inline double square(double x) { return x * x; }

// The first channel of a position, and all of them.
const double* channels_of(const Values& values, Place place, Index h);
Channels row_of(const Values& values, Place place, Index h);

// N: the variance proxy of a sum of products with magnitude `size` in all. A partial sum is at most
// `size`; what truncates is drift.
double noise_of_sum(const Product& product, double roundings, double size);

struct Key {
  Index j;
  Place place;
  double s, g, g_prime;  // the score; of its softcap, g_j with its error, and g'_j
  double sigma_s;        // noise of the score before its softcap
  double p = 0, zeta = 1;
  double dp = 0, sigma_dp = 0;
};

// The softmax of a row, and what its output comes to.
struct Forward {
  std::vector<Key> keys;
  std::vector<const double*> v;  // of each key, its channels
  Row<double> row = {};
  double p_z = 0;
  double sigma_l = 0;
  double of_row_sum = 0;  // h U_s^2, without what is drift
  Channels o, sigma_o;
  Channels of_sum;  // N of the sum P v
};

// For each key what a rounding does to dS alone, before it is scaled; what those of L and D do to
// all of them together.
struct Backward {
  double sigma_l = 0, sigma_d = 0;
  std::vector<double> ds = {}, ds_g = {};        // without and with the derivative of the softcap
  std::vector<double> sigma = {}, sigma_g = {};  // of each
  std::vector<double> sigma_p = {};              // of P as it multiplies dO
  double dsink = 0, sigma_dsink = 0;             // what the row gives to dSink
};

class Noise {
 public:
  Noise(const Problem& problem, const Inputs& inputs, const Arithmetic& arithmetic)
      : p_(problem),
        in_(inputs),
        a_(arithmetic),
        model_(problem, with_stored(arithmetic, problem, inputs)) {}

  Forward forward(Index b, Index h, Index i) const;
  // Of a row as forward() leaves it, whose keys get their dP.
  Backward backward(Forward& row, Index b, Index h, Index i) const;

  const Model<double>& model() const { return model_; }

 private:
  std::vector<Key> keys(Index b, Index h, Index i) const;
  void cap(Key& key, double size) const;
  void weigh(Forward& row, Index b, Index h) const;
  void set_sigma_l(Forward& row) const;
  void set_o(Forward& row) const;
  void set_dp(Forward& row, const Channels& d_o) const;
  double sigma_d(const Forward& row, const Channels& d_o, double d) const;
  void add_ds(const Key& key, double d, double lambda, Backward& to) const;

  const Problem& p_;
  const Inputs& in_;
  const Arithmetic& a_;
  Model<double> model_;
};

}  // namespace attest::bound::statistical
