// What is known of all keys of a head by their norms, and of one row that sees some of them,
// forward and backward (NUMERICS.md, section 14). Each sum over keys is replaced by what it comes
// to at most if the shares p of its keys add up to a given number.
#pragma once

#include <vector>

#include "reference/bound.h"
#include "reference/reach.h"
#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest::bound::coarse {

// More than the sums of magnitudes here may be rounded down.
inline constexpr double kUp = 1 + 0x1p-20;

// Of |x|, what may be flushed.
inline double small_part(double x, double tiny) { return std::abs(x) < tiny ? std::abs(x) : 0; }

// The channels of a row.
struct Channels {
  const double* data;
  Index count;

  Channels(const Values& values, Place place, Index h)
      : data(values.data.data() + dense_index(values.shape, place.batch, h, place.position, 0)),
        count(values.shape[kChannel]) {}
  double operator[](Index c) const { return data[c]; }
};

// Sums of each channel over neighbouring rows or keys: at least.
class SumsAbove {
 public:
  SumsAbove(Index rows, Index channels) : rows_(rows), sums_(rows, channels) {}

  void add(Index row, Index c, double term) { sums_.add(row, c, term); }
  void run() { sums_.run(); }
  double over(const Reach& rows, Index c) const {
    if (rows.size() == 0) return 0;
    const double whole = sums_.before(rows.end, c);
    if (!(whole < kInfinity)) return kInfinity;
    // Both were rounded once for each row.
    return whole - sums_.before(rows.begin, c) + 0x1p-51 * static_cast<double>(rows_) * whole;
  }

 private:
  Index rows_;
  RunningSums<double> sums_;
};

// ---- All keys of a head -------------------------------------------------------------------------

// The largest of each channel, and of each row as a whole.
struct Extent {
  std::vector<double> size, small;  // of |x|, and of those that may be flushed
  std::vector<double> spread;       // the largest x less the smallest
  double norm = 0, sum = 0;
  SumsAbove sizes;  // of |x|, over keys
};

struct KeyHead {
  Index keys;
  Extent k, v;
  bool small_integers = true;  // as in working/pack.h
};

KeyHead key_head(const Problem& p, const Inputs& in, const Model<double>& model, Index b, Index h);

// ---- One row ------------------------------------------------------------------------------------

// Which keys a row sees; unless that is known, any number of those of the reach.
struct Sight {
  Reach keys;
  bool known = false;
};

struct RowBounds : Row<double> {
  Sight sight;
  double size = 0;   // of scores: |s_j|, a_j and |m| are at most this
  double eps = 0;    // epsilon_j
  double p_hat = 1;  // p_j of a single key, at most
  double Y = 0;
  double hull_share = kInfinity;  // beyond the hull of V, as a share of max |v|
  double U = 0;
  double lse_bound = 0, lse_error = 0;  // as it is judged, and as the backward pass reads it
};

// Of one channel of all keys that a row sees: the sums of p |x| and of |x|.
struct Weighed {
  double by_share, all;
};
Weighed weigh(const RowBounds& row, const Extent& x, Index c);

RowBounds bound_row(const Model<double>& model, const Channels& q, const KeyHead& head,
                    const Sight& sight);

// B_O of a channel.
double bound_of_o(const Model<double>& model, const RowBounds& row, const Extent& v, Index c);

// The row's part in the bounds of gradients.
struct RowGradients {
  const Model<double>& model;
  const RowBounds& row;
  double r = 0;
  double xi = 0;
  double X = 0;  // |X_j| at most
  double x = 0;  // the error of X
  double E_D = 0;
  bool overflows = false;  // dS, as it is rounded

  // Of `keys` keys whose shares add up to `p`: the sums over them of the error of P, of |dS|, and
  // of e, f and t, the errors of dS. All are linear or concave, so that keys and shares may
  // themselves be weighed by |k|.
  struct Weights {
    double p, p_error, ds, e, f, t;
  };
  Weights of(double p, double keys) const;
};

RowGradients bound_gradients(const Problem& p, const Model<double>& model, const RowBounds& row,
                             const KeyHead& head, const Channels& d_o, double d_lse);

}  // namespace attest::bound::coarse
