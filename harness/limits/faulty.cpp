#include "harness/limits/faulty.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "harness/process/tensors.h"
#include "spec/tensor_name.h"

namespace attest::limits {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
constexpr Index kTile = 64;                    // keys of which a maximum is taken at once
constexpr double kMostKept = double(1 << 22);  // pairs

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

// Rounds to about that roundoff: what it is multiplied by has as many digits as are to be lost
// (T. J. Dekker, 1971).
class Coarse {
 public:
  explicit Coarse(double roundoff) : factor_(roundoff * 0x1p53 + 1) {}
  double operator()(double x) const {
    const double product = factor_ * x;
    return std::isfinite(product) ? product - (product - x) : x;
  }

 private:
  double factor_;
};

const double* query_row(const Problem& p, const Values& tensor, Index b, Index h, Index i) {
  const Place place = p.query_place(b, i);
  return tensor.data.data() + dense_index(tensor.shape, place.batch, h, place.position, 0);
}

const double* key_row(const Problem& p, const Values& tensor, Index b, Index h, Index j) {
  const Place place = p.key_place(b, j);
  return tensor.data.data() +
         dense_index(tensor.shape, place.batch, h / p.group_size(), place.position, 0);
}

double dot(const double* a, const double* b, Index n) {
  double sum = 0;
  for (Index c = 0; c < n; ++c) sum += a[c] * b[c];
  return sum;
}

void add(std::vector<double>& sum, double factor, const double* x) {
  for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += factor * x[c];
}

// Each element of sums after an addition, or after some.
void round_all(double* sums, Index n, const Coarse& coarse) {
  for (Index c = 0; c < n; ++c) sums[c] = coarse(sums[c]);
}

// A pair of a row that the fault may have changed.
struct Pair {
  Index key;
  double qk = 0, dp = 0;
  double s = 0, slope = 1;  // the score, and the slope of its cap
  double w = 0;             // exp(s - m)
  double kept = 1;          // keep / (1 - p) of dropout
  double times = 1;         // how often it counts
};

class Kernel {
 public:
  Kernel(const Shared& shared, const Fault& fault)
      : shared_(shared),
        p_(shared.problem()),
        in_(shared.inputs()),
        fault_(fault),
        coarse_(fault.size),
        longest_(longest_keys(p_)) {
    if (has(Site::operands)) {
      coarse_inputs_.emplace(in_);
      for (Values* tensor :
           {&coarse_inputs_->q, &coarse_inputs_->k, &coarse_inputs_->v, &coarse_inputs_->d_o}) {
        round_all(tensor->data.data(), std::ssize(tensor->data), coarse_);
      }
    }
    if (p_.dropout.mode != Dropout::Mode::none) keep_factor_ = 1 / (1 - p_.dropout.probability);
  }

  Results run() {
    out_.forward.o.resize(at(element_count(p_.o_shape())));
    out_.forward.lse.resize(at(element_count(p_.lse_shape())), kMinusInfinity);
    if (p_.backward) {
      out_.backward.dq.resize(at(element_count(p_.q_shape())));
      out_.backward.dk.resize(at(element_count(p_.k_shape())));
      out_.backward.dv.resize(at(element_count(p_.v_shape())));
      if (p_.bias_shape) out_.backward.dbias.resize(in_.bias.data.size());
      if (p_.sink) out_.backward.dsink.resize(in_.sink.data.size());
    }
    Shared::Row room;
    for (Index b = 0; b < p_.batch; ++b) {
      for (Index h = 0; h < p_.query_heads; ++h) {
        for (Index i = 0; i < p_.lengths(b).query; ++i) row(b, h, i, shared_.row(b, h, i, room));
      }
    }
    finish();
    return std::move(out_);
  }

 private:
  bool has(Site site) const { return fault_.site == site; }
  const Inputs& inputs() const { return coarse_inputs_ ? *coarse_inputs_ : in_; }

  // Where a fault by length bites.
  bool bites(Index b) const { return p_.lengths(b).key == longest_ && longest_ > 1; }
  Index middle() const { return longest_ / 2; }

  // The key whose V is taken for that of `key`.
  Index value_of(Index b, Index key) const {
    if (!has(Site::values_swapped) || !bites(b)) return key;
    return key == middle() ? key - 1 : key == middle() - 1 ? key + 1 : key;
  }

  Pair pair_of(Index b, Index h, Index i, Index key) const {
    Pair pair = {.key = key};
    const double* const q = query_row(p_, inputs().q, b, h, i);
    const double* const k = key_row(p_, inputs().k, b, h, key);
    if (has(Site::qk_sums)) {
      for (Index c = 0; c < p_.head_dim; ++c) pair.qk = coarse_(pair.qk + q[c] * k[c]);
    } else {
      pair.qk = dot(q, k, p_.head_dim);
    }
    if (p_.backward) {
      pair.dp = dot(query_row(p_, inputs().d_o, b, h, i),
                    key_row(p_, inputs().v, b, h, value_of(b, key)), p_.value_dim);
    }
    return pair;
  }

  // ---- What a row sees

  void read(Index b, Index h, Index i, const Shared::Row& row) {
    pairs_.clear();
    const bool anew =
        has(Site::operands) || has(Site::qk_sums) || (has(Site::values_swapped) && bites(b));
    for (std::size_t n = 0; n < row.keys.size(); ++n) {
      if (anew) {
        pairs_.push_back(pair_of(b, h, i, row.keys[n]));
      } else {
        pairs_.push_back({.key = row.keys[n], .qk = row.qk[n], .dp = p_.backward ? row.dp[n] : 0});
      }
    }
    if (bites(b)) lose_and_find_keys(b, h, i);
    for (Pair& pair : pairs_) score(b, h, i, pair);
  }

  void lose_and_find_keys(Index b, Index h, Index i) {
    const auto middle_pair = std::find_if(pairs_.begin(), pairs_.end(),
                                          [&](const Pair& each) { return each.key == middle(); });
    const bool sees_middle = middle_pair != pairs_.end();
    if (has(Site::key_lost) && sees_middle) pairs_.erase(middle_pair);
    if (has(Site::key_doubled) && sees_middle) middle_pair->times = 2;
    if (has(Site::key_leaked) && !sees_middle) pairs_.push_back(pair_of(b, h, i, middle()));
    if (pairs_.empty()) return;
    const Index next = pairs_.back().key + 1;
    if (has(Site::diagonal) && next < longest_) pairs_.push_back(pair_of(b, h, i, next));
    if (has(Site::window) && pairs_.front().key > 0) pairs_.erase(pairs_.begin());
  }

  void score(Index b, Index h, Index i, Pair& pair) const {
    const Position place = {.batch = b, .head = h, .query = i, .key = pair.key};
    double s = p_.scale * (has(Site::scale) ? 1 + fault_.size : 1) * pair.qk;
    if (p_.softcap > 0) {
      const double t = std::tanh(s / p_.softcap) * (has(Site::tanh) ? 1 + fault_.size : 1);
      s = p_.softcap * t;
      pair.slope = 1 - t * t;
    }
    if (p_.bias_shape) s += in_.bias.data[broadcast_index(in_.bias.shape, place)];
    if (p_.slopes_shape) {
      const Lengths lengths = p_.lengths(b);
      const Index distance = i + (lengths.key - lengths.query) - pair.key;
      s -= in_.slopes.data[broadcast_index(in_.slopes.shape, place)] *
           static_cast<double>(std::abs(distance));
    }
    if (has(Site::scores)) s = coarse_(s);
    if (p_.dropout.mode != Dropout::Mode::none) pair.kept = in_.keep.at(place) ? keep_factor_ : 0;
    pair.s = s;
  }

  double exponential(double x) const {
    if (has(Site::log2e)) x *= 1 + fault_.size;
    const double value = std::exp(x);
    if (!has(Site::exp)) return value;
    const double octaves = x * 1.4426950408889634;
    return value *
           (1 + fault_.size * std::sin(6.283185307179586 * (octaves - std::floor(octaves))));
  }

  // ---- The softmax

  void row(Index b, Index h, Index i, const Shared::Row& seen) {
    read(b, h, i, seen);
    const double sink = p_.sink ? in_.sink.at(0, h, 0, 0) : kMinusInfinity;
    double top = sink;
    for (const Pair& pair : pairs_) top = std::max(top, pair.s);
    if (top == kMinusInfinity) return;
    double sum = p_.sink ? exponential(sink - top) : 0;
    for (Pair& pair : pairs_) {
      pair.w = exponential(pair.s - top) * pair.times;
      sum += pair.w;
      if (has(Site::row_sum)) sum = coarse_(sum);
    }
    double lse = top + std::log(sum);
    if (has(Site::lse)) lse = coarse_(lse);
    const Place place = p_.query_place(b, i);
    out_.forward.lse[at(dense_index(p_.lse_shape(), place.batch, h, place.position, 0))] = lse;
    weigh(b, h, sum);
    double* const o =
        out_.forward.o.data() + dense_index(p_.o_shape(), place.batch, h, place.position, 0);
    std::copy(sums_.begin(), sums_.end(), o);
    if (p_.backward) gradients(b, h, i, sink, lse);
  }

  // O of the row.
  void weigh(Index b, Index h, double sum) {
    sums_.assign(at(p_.value_dim), 0);
    double top = kMinusInfinity, missed = 1;  // the factor by which O is too large
    std::vector<double> whole(has(Site::partitions) ? sums_.size() : 0);
    for (std::size_t n = 0; n < pairs_.size(); ++n) {
      const Pair& pair = pairs_[n];
      if (has(Site::rescale) && n % kTile == 0) missed *= rise_of_tile(n, top);
      double weight = pair.w;
      if (has(Site::p)) weight = coarse_(weight);
      add(sums_, weight * pair.kept / missed, key_row(p_, inputs().v, b, h, value_of(b, pair.key)));
      if (has(Site::pv_sums)) round_all(sums_.data(), p_.value_dim, coarse_);
      const bool is_last = n + 1 == pairs_.size();
      if (has(Site::partitions) &&
          (is_last || pairs_[n + 1].key / kPartition != pair.key / kPartition)) {
        for (std::size_t c = 0; c < sums_.size(); ++c) whole[c] += coarse_(sums_[c]);
        std::fill(sums_.begin(), sums_.end(), 0);
      }
    }
    if (has(Site::partitions)) sums_.swap(whole);
    for (double& each : sums_) {
      each = each / sum * missed;
      if (has(Site::o)) each = coarse_(each);
    }
  }

  // exp of how far the maximum rises in the tile that begins there, if that is less than the size
  // and O was not rescaled by it; else 1.
  double rise_of_tile(std::size_t begin, double& top) const {
    const double old = top;
    for (std::size_t n = begin; n < std::min(begin + kTile, pairs_.size()); ++n) {
      top = std::max(top, pairs_[n].s);
    }
    const bool is_missed = old != kMinusInfinity && top > old && top - old < fault_.size;
    return is_missed ? std::exp(top - old) : 1;
  }

  // ---- Gradients

  void gradients(Index b, Index h, Index i, double sink, double lse) {
    if (lse == kMinusInfinity) return;
    const double d_lse = p_.d_lse ? *query_row(p_, in_.d_lse, b, h, i) : 0;
    const double* const q = query_row(p_, inputs().q, b, h, i);
    const double* const d_o = query_row(p_, inputs().d_o, b, h, i);
    double delta = -d_lse;
    for (Pair& pair : pairs_) {
      pair.w = exponential(pair.s - lse) * pair.times;
      delta += pair.w * pair.kept * pair.dp;
    }
    if (has(Site::delta)) delta *= 1 + fault_.size;
    if (p_.sink) out_.backward.dsink[at(h)] -= exponential(sink - lse) * delta;
    std::vector<double>& dq = sums_;
    dq.assign(at(p_.head_dim), 0);
    Index block = 0;
    for (const Pair& pair : pairs_) {
      double ds = pair.w * (pair.kept * pair.dp - delta);
      if (p_.bias_shape) {
        const Position place = {.batch = b, .head = h, .query = i, .key = pair.key};
        out_.backward.dbias[broadcast_index(in_.bias.shape, place)] += ds;
      }
      ds *= pair.slope;
      if (has(Site::ds)) ds = coarse_(ds);
      ds *= p_.scale * (has(Site::scale) ? 1 + fault_.size : 1);
      if (has(Site::dq_in_steps) && pair.key / kStep != block) {
        round_all(dq.data(), p_.head_dim, coarse_);
        block = pair.key / kStep;
      }
      add(dq, ds, key_row(p_, inputs().k, b, h, pair.key));
      if (has(Site::gradient_sums)) round_all(dq.data(), p_.head_dim, coarse_);
      double p = pair.w;
      if (has(Site::p)) p = coarse_(p);
      add_to_key(out_.backward.dk, p_.k_shape(), b, h, pair.key, ds, q);
      add_to_key(out_.backward.dv, p_.v_shape(), b, h, value_of(b, pair.key), p * pair.kept, d_o);
    }
    const Place place = p_.query_place(b, i);
    std::copy(
        dq.begin(), dq.end(),
        out_.backward.dq.begin() + dense_index(p_.q_shape(), place.batch, h, place.position, 0));
  }

  void add_to_key(std::vector<double>& tensor, const Shape& shape, Index b, Index h, Index key,
                  double factor, const double* x) const {
    const Place place = p_.key_place(b, key);
    double* const sum =
        tensor.data() + dense_index(shape, place.batch, h / p_.group_size(), place.position, 0);
    for (Index c = 0; c < shape[kChannel]; ++c) sum[c] += factor * x[c];
    if (has(Site::gradient_sums)) round_all(sum, shape[kChannel], coarse_);
  }

  void finish() {
    if (has(Site::gradients)) {
      for (const TensorName name : {TensorName::dq, TensorName::dk, TensorName::dv}) {
        round_all(out_[name].data(), std::ssize(out_[name]), coarse_);
      }
    }
    if (!has(Site::flush)) return;
    for (const TensorName name : kReturnedTensors) {
      if (name == TensorName::lse) continue;
      for (double& each : out_[name]) each = std::abs(each) < fault_.size ? 0 : each;
    }
  }

  const Shared& shared_;
  const Problem& p_;
  const Inputs& in_;
  const Fault fault_;
  const Coarse coarse_;
  const Index longest_;
  std::optional<Inputs> coarse_inputs_ = {};
  double keep_factor_ = 1;
  Results out_ = {};
  std::vector<Pair> pairs_ = {};   // of the row at hand
  std::vector<double> sums_ = {};  // its O or dQ
};

}  // namespace

Shared::Shared(const Problem& problem, const Inputs& inputs) : p_(problem), in_(inputs) {
  const double pairs = double(problem.batch) * double(problem.query_heads) *
                       double(problem.query_len) * double(problem.key_len);
  if (pairs > kMostKept) return;
  for (Index b = 0; b < p_.batch; ++b) {
    for (Index h = 0; h < p_.query_heads; ++h) {
      for (Index i = 0; i < p_.query_len; ++i) {
        rows_.push_back(i < p_.lengths(b).query ? make(b, h, i) : Row());
      }
    }
  }
}

const Shared::Row& Shared::row(Index b, Index h, Index i, Row& room) const {
  if (!rows_.empty()) return rows_[at((b * p_.query_heads + h) * p_.query_len + i)];
  room = make(b, h, i);
  return room;
}

Shared::Row Shared::make(Index b, Index h, Index i) const {
  Row row;
  for (Index j = 0; j < p_.lengths(b).key; ++j) {
    if (!sees(p_, in_, {.batch = b, .head = h, .query = i, .key = j})) continue;
    row.keys.push_back(j);
    row.qk.push_back(dot(query_row(p_, in_.q, b, h, i), key_row(p_, in_.k, b, h, j), p_.head_dim));
    if (!p_.backward) continue;
    row.dp.push_back(
        dot(query_row(p_, in_.d_o, b, h, i), key_row(p_, in_.v, b, h, j), p_.value_dim));
  }
  return row;
}

Results compute(const Shared& shared, const Fault& fault) { return Kernel(shared, fault).run(); }

void FaultyKernel::set(const Fault& fault) {
  fault_ = fault;
  last_.reset();
}

Trial FaultyKernel::compute(const Problem& problem, const Inputs& inputs) {
  const bool is_kept = &inputs == &kept_.inputs();
  if (is_kept && last_) return *last_;
  std::optional<Shared> own;
  if (!is_kept) own.emplace(problem, inputs);
  const Results results = limits::compute(own ? *own : kept_, fault_);
  Trial trial;
  for (const bool backward : {false, true}) {
    if (backward && !problem.backward) break;
    for (const Crossing& t : outputs_of(problem, backward, {TensorName::lse})) {
      const std::uint64_t all_ones = ~std::uint64_t(0) >> (64 - 8 * format_of(t.dtype).bytes);
      Returned tensor = {
          .name = t.name, .dtype = t.dtype, .shape = t.shape, .bits = {}, .poison = all_ones};
      for (const double value : results[t.name]) tensor.bits.push_back(encode(t.dtype, value));
      trial.returned.push_back(std::move(tensor));
    }
  }
  if (is_kept) last_ = trial;
  return trial;
}

}  // namespace attest::limits
