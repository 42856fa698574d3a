#include "tests/bounds/kernel.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace attest::bounds {
namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

// The processor flushes subnormal operands or results, as long as this lives.
class Flushing {
 public:
#ifdef __SSE2__
  Flushing(bool inputs, bool outputs) : saved_(_mm_getcsr()) {
    constexpr unsigned kInputs = 0x0040, kOutputs = 0x8000;
    _mm_setcsr(saved_ | (inputs ? kInputs : 0) | (outputs ? kOutputs : 0));
  }
  ~Flushing() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
#else
  Flushing(bool, bool) {}  // only what Kernel does by itself
#endif
  Flushing(const Flushing&) = delete;
  Flushing& operator=(const Flushing&) = delete;
};

template <class T>
struct Matrix {
  Index rows = 0, columns = 0;
  std::vector<T> data = {};

  Matrix() = default;
  Matrix(Index r, Index c, T value = 0) : rows(r), columns(c), data(at(r * c), value) {}
  T* row(Index r) { return data.data() + r * columns; }
  const T* row(Index r) const { return data.data() + r * columns; }

  Matrix transposed() const {
    Matrix result(columns, rows);
    for (Index r = 0; r < rows; ++r) {
      for (Index c = 0; c < columns; ++c) result.row(c)[r] = row(r)[c];
    }
    return result;
  }
};

enum ProductIndex { kQk, kPv, kDp, kDv, kDq, kDk };

// All query rows that read one key head, and that head.
template <class T>
struct Group {
  Index b = 0, key_head = 0;
  Index queries = 0, keys = 0, rows = 0;
  Matrix<T> q, k, v, d_o;
  Matrix<T> s, tanh;   // rows x keys; -inf: not visible
  Matrix<T> o;         // as returned
  std::vector<T> lse;  // as returned
};

template <class T>
class Kernel {
 public:
  Kernel(const Problem& problem, const Inputs& inputs, const std::vector<std::uint8_t>& seen,
         const Style& style, const Outputs* forward)
      : p_(problem),
        in_(inputs),
        seen_(seen),
        style_(style),
        given_(forward),
        scale_(static_cast<T>(problem.scale)),
        cap_(static_cast<T>(problem.softcap)),
        unit_(static_cast<T>(style.base_2 ? std::numbers::log2e : 1.0)),
        fused_(style.scale == Style::Scale::exponent),
        smallest_(static_cast<T>(smallest_normal(problem.dtype))),
        softmax_roundoff_(unit_roundoff(problem.lse_dtype())),
        exp_error_(declared(style, problem.dtype).exp_error),
        tanh_error_(declared(style, problem.dtype).tanh_error),
        ones_(at(std::max(problem.key_len, problem.query_heads * problem.query_len)), T(1)) {
    if (style.fault == Style::Fault::exp_error) exp_error_ *= 128;
    if (fused_) {
      // A negative scale would turn the maximum of q k into the minimum.
      const bool bare = cap_ == 0 && !p_.bias_shape && !p_.slopes_shape && !p_.sink && scale_ > 0;
      to_natural_ = bare ? scale_ : T(1);
      to_units_ = to_natural_ * unit_;
    }
    if (p_.dropout.mode != Dropout::Mode::none) {
      kept_share_ = static_cast<T>(1 / (1 - problem.dropout.probability));
    }
  }

  Outputs run() {
    std::vector<Group<T>> groups;
    for (Index b = 0; b < p_.batch; ++b) {
      for (Index g = 0; g < p_.key_heads; ++g) groups.push_back(load(b, g));
    }
    prepare();
    {
      // Neither loading nor storing may lose subnormal numbers that the arithmetic does not.
      const Flushing flushing(style_.flushes_inputs, style_.flushes_outputs);
      for (Group<T>& group : groups) {
        score(group);
        given_ ? take_forward(group) : forward(group);
        if (p_.backward) backward(group);
      }
      for (std::size_t e = 0; e < bias_terms_.size(); ++e) {
        dbias_[e] = sum(style_.outer_order, bias_terms_[e]);
      }
      for (std::size_t h = 0; h < sink_terms_.size(); ++h) {
        dsink_[h] = sum(style_.outer_order, sink_terms_[h]);
      }
    }
    const auto outputs = [this](const Vector& from, DType dtype) {
      std::vector<double> to(from.size());
      for (std::size_t e = 0; e < to.size(); ++e) to[e] = output(from[e], dtype);
      return to;
    };
    return {.o = outputs(o_, p_.dtype),
            .lse = outputs(lse_, p_.lse_dtype()),
            .dq = outputs(dq_, p_.dtype),
            .dk = outputs(dk_, p_.dtype),
            .dv = outputs(dv_, p_.dtype),
            .dbias = outputs(dbias_, p_.dtype),
            .dsink = outputs(dsink_, DType::f32),
            .maximum = outputs(maximum_, p_.lse_dtype()),
            .sum = outputs(sum_, p_.lse_dtype())};
  }

 private:
  static constexpr T kInfinity = std::numeric_limits<T>::infinity();
  using Vector = std::vector<T>;

  void prepare() {
    if (!given_) {
      const std::size_t rows = at(element_count(p_.lse_shape()));
      o_.assign(at(element_count(p_.o_shape())), static_cast<T>(style_.empty_o.value_or(0)));
      lse_.assign(rows, static_cast<T>(style_.empty_lse.value_or(-kInfinity)));
      if (style_.lse.apart) {
        maximum_.assign(rows, static_cast<T>(style_.empty_maximum.value_or(-kInfinity)));
        sum_.assign(rows, static_cast<T>(style_.empty_sum.value_or(0)));
      }
    }
    if (!p_.backward) return;
    dq_.assign(at(element_count(p_.q_shape())), T(0));
    dk_.assign(at(element_count(p_.k_shape())), T(0));
    dv_.assign(at(element_count(p_.v_shape())), T(0));
    if (p_.bias_shape) {
      bias_terms_.resize(at(element_count(*p_.bias_shape)));
      dbias_.resize(bias_terms_.size());
    }
    if (p_.sink) {
      sink_terms_.resize(at(p_.query_heads));
      dsink_.resize(sink_terms_.size());
    }
  }

  // ---- Numbers ----

  T flushed(T x) const { return std::abs(x) < smallest_ ? T(0) : x; }
  T input(double value) const {
    const T x = static_cast<T>(value);
    return style_.flushes_inputs ? flushed(x) : x;
  }
  // As a P or dS that is kept in the problem's format.
  T narrow(T x) const {
    return style_.narrows ? flushed_result(static_cast<T>(round_to(p_.dtype, double(x)))) : x;
  }
  T narrow_p(T x) const {
    if (!style_.truncates_p || !style_.narrows) return narrow(x);
    double result = round_to(p_.dtype, double(x));
    if (result > double(x)) result = decode(p_.dtype, encode(p_.dtype, result) - 1);
    return flushed_result(static_cast<T>(result));
  }
  T flushed_result(T result) const {
    const bool flushes = style_.flushes_inputs || style_.flushes_outputs;
    return flushes && p_.dtype != p_.lse_dtype() ? flushed(result) : result;
  }
  double output(T x, DType dtype) const {
    double result = round_to(dtype, static_cast<double>(x));
    if (style_.truncates_output && std::isfinite(result) &&
        std::abs(result) > std::abs(static_cast<double>(x))) {
      result = decode(dtype, encode(dtype, result) - 1);  // towards zero
    }
    return style_.flushes_outputs && std::abs(result) < smallest_normal(dtype) ? 0 : result;
  }
  Matrix<T> operands(Matrix<T> from, ProductIndex product) const {
    round_operands(from.data.data(), Index(from.data.size()), product);
    return from;
  }
  void round_operands(T* x, Index n, ProductIndex product) const {
    if (style_.operand_digits == 0 || !(style_.rounded_products >> product & 1)) return;
    constexpr int kDigits = std::numeric_limits<Wider<T>>::digits;
    const Wider<T> factor = std::ldexp(Wider<T>(1), kDigits - style_.operand_digits) + 1;
    for (Index t = 0; t < n; ++t) {  // Veltkamp's splitting: what is left rounds to the digits
      const Wider<T> large = factor * x[t];
      x[t] = static_cast<T>(large - (large - x[t]));
    }
  }

  // How far the value of a function at x is off, within [-1, 1].
  static double share(Error error, T x) {
    switch (error) {
      case Error::rounded:
        return 0;
      case Error::scattered:
        return static_cast<double>(
                   static_cast<std::int64_t>(scramble(std::bit_cast<std::uint64_t>(double(x))))) *
               0x1p-63;
      case Error::high:
        return 1;
      case Error::low:
        return -1;
    }
    return 0;
  }
  T with_error(double exact, Error error, double most, T x) const {
    // What is left of it after the result is rounded to T.
    const double left = std::max(0.0, most - 1.01 * softmax_roundoff_);
    return static_cast<T>(exact * (1 + share(error, x) * left));
  }
  // In units of unit_; 1 at 0, as every exponential function has it.
  T power(T x) const {
    if (x == 0 && !style_.exp_zero_inexact) return 1;
    const double exact = style_.base_2 ? std::exp2(double(x)) : std::exp(double(x));
    return with_error(exact, style_.exp_error, exp_error_, x);
  }
  T tanh(T x) const { return with_error(std::tanh(double(x)), style_.tanh_error, tanh_error_, x); }
  T fma(T x, T y, T z) const {  // of floats but for 2^-53
    if constexpr (std::is_same_v<T, float>) return static_cast<T>(double(x) * y + z);
    return std::fma(x, y, z);
  }
  // exp of the difference of two scores, and of a score and LSE.
  T weight(T s, T m) const {
    if (!fused_) return power(s - m);
    if (style_.clamps_exponent && s == m) return 1;
    return power(clamped(fma(s, to_units_, -(m * to_units_))));
  }
  T clamped(T exponent) const { return style_.clamps_exponent && exponent > 0 ? T(0) : exponent; }
  // From one running maximum to the next: the difference comes first, or else roundings of m would
  // add up from step to step.
  T rescale(T m, T next) const { return power(fused_ ? (m - next) * to_units_ : m - next); }
  T weight_by_lse(T s, T lse) const {
    return power(fused_ ? clamped(fma(s, to_units_, -(lse * unit_))) : s - lse * unit_);
  }
  T log_of(T x) const {
    return static_cast<T>(style_.base_2 ? std::log2(double(x)) : std::log(double(x)));
  }
  T natural(T x) const { return style_.base_2 ? x * static_cast<T>(std::numbers::ln2) : x; }

  T sum(Order order, const Vector& terms) {
    if (ones_.size() < terms.size()) ones_.resize(terms.size(), T(1));
    return dot(order, terms.data(), ones_.data(), Index(terms.size()));
  }
  T sum(const T* terms, Index n) const { return dot(style_.order, terms, ones_.data(), n); }

  // ---- Loading ----

  // Row r of a group is query r % queries of the group's head r / queries.
  Index head(const Group<T>& group, Index r) const {
    return group.key_head * p_.group_size() + r / group.queries;
  }

  bool sees(const Group<T>& group, Index r, Index j) const {
    return seen_[at(dense_index(p_.keep_shape(), group.b, head(group, r), r % group.queries, j))];
  }

  Matrix<T> load_queries(const Group<T>& group, const Values& from) const {
    Matrix<T> result(group.rows, from.shape[kChannel]);
    for (Index r = 0; r < group.rows; ++r) {
      const Place place = p_.query_place(group.b, r % group.queries);
      for (Index c = 0; c < result.columns; ++c) {
        result.row(r)[c] = input(from.at(place.batch, head(group, r), place.position, c));
      }
    }
    return result;
  }
  Matrix<T> load_keys(const Group<T>& group, const Values& from) const {
    Matrix<T> result(group.keys, from.shape[kChannel]);
    for (Index j = 0; j < group.keys; ++j) {
      const Place place = p_.key_place(group.b, j);
      for (Index c = 0; c < result.columns; ++c) {
        result.row(j)[c] = input(from.at(place.batch, group.key_head, place.position, c));
      }
    }
    return result;
  }

  Group<T> load(Index b, Index g) const {
    Group<T> group;
    group.b = b;
    group.key_head = g;
    group.queries = p_.lengths(b).query;
    group.keys = p_.lengths(b).key;
    group.rows = group.queries * p_.group_size();
    group.q = load_queries(group, in_.q);
    group.k = load_keys(group, in_.k);
    group.v = load_keys(group, in_.v);
    if (p_.backward) group.d_o = load_queries(group, in_.d_o);
    return group;
  }

  // ---- Forward ----

  // Fills s and tanh.
  void score(Group<T>& group) const {
    group.s = Matrix<T>(group.rows, group.keys, -kInfinity);
    if (cap_ > 0) group.tanh = Matrix<T>(group.rows, group.keys);
    const T unit = fused_ ? T(1) : unit_;
    T factor = cap_ == 0 ? scale_ * unit : style_.folds_cap ? scale_ / cap_ : scale_;
    if (fused_ && to_natural_ != 1) factor = 1;
    Matrix<T> q = group.q, k = group.k;
    if (style_.scale == Style::Scale::query) {
      for (T& x : q.data) x *= factor;
      factor = 1;
    } else if (style_.scale == Style::Scale::both) {
      const T root = std::sqrt(std::abs(factor));
      for (T& x : q.data) x *= std::copysign(root, factor);
      for (T& x : k.data) x *= root;
      factor = 1;
    }
    q = operands(std::move(q), kQk);
    k = operands(std::move(k), kQk);
    const bool sums_bias =
        style_.sums_bias && cap_ == 0 && (factor == 1 || style_.divides_bias) && !fused_;
    const T share = factor == 1 ? T(1) : 1 / factor;  // of the bias in the sum
    const Matrix<T> kt = sums_bias ? Matrix<T>() : k.transposed();
    Vector q_terms, k_terms, products(at(group.keys));
    for (Index r = 0; r < group.rows; ++r) {
      Position position = {
          .batch = group.b, .head = head(group, r), .query = r % group.queries, .key = 0};
      const Index first = dense_index(p_.keep_shape(), group.b, position.head, position.query, 0);
      if (!sums_bias) {
        const auto seen = seen_.begin() + first;
        const Index begin = std::find(seen, seen + group.keys, 1) - seen;
        dots(style_.order, q.row(r), kt.data.data() + begin, group.keys, p_.head_dim,
             group.keys - begin, products.data() + begin);
      }
      for (Index j = 0; j < group.keys; ++j) {
        if (!seen_[at(first + j)]) continue;
        position.key = j;
        T bias = 0, alibi = 0;
        if (p_.bias_shape) {
          bias = static_cast<T>(in_.bias.data[broadcast_element(*p_.bias_shape, position)]) * unit;
        }
        if (p_.slopes_shape) {
          const T slope =
              static_cast<T>(in_.slopes.data[broadcast_element(*p_.slopes_shape, position)]);
          const Index ahead = position.query + group.keys - group.queries - j;
          alibi = slope * unit * static_cast<T>(ahead < 0 ? -ahead : ahead);
        }
        if (sums_bias) {
          const auto append = [this](Vector& to, const T* from, T bias_factor, T alibi_factor) {
            to.assign(from, from + p_.head_dim);
            to.insert(to.end(), {bias_factor, alibi_factor});
          };
          append(q_terms, q.row(r), 1, -1);
          append(k_terms, k.row(j), bias * share, alibi * share);
          group.s.row(r)[j] =
              dot(style_.order, q_terms.data(), k_terms.data(), p_.head_dim + 2) * factor;
          continue;
        }
        T x = products[at(j)];
        if (factor != 1) x *= factor;
        if (cap_ > 0) {
          if (style_.fault == Style::Fault::capped_bias) {
            x += std::exchange(bias, T(0)) / unit / (style_.folds_cap ? cap_ : T(1));
          }
          const T t = tanh(style_.folds_cap ? x : x / cap_);
          x = t * (cap_ * unit);
          group.tanh.row(r)[j] = style_.slope_from_score ? x / (cap_ * unit) : t;
        }
        if (p_.bias_shape) x += bias;
        if (p_.slopes_shape) x -= alibi;
        group.s.row(r)[j] = x;
      }
    }
  }

  struct Partial {
    T m = -kInfinity, l = 0;
    Vector o;
  };

  struct RowView {
    const T* s;
    const std::uint8_t* kept;  // null without dropout
    const Matrix<T>* v;
  };

  // One pass over keys [begin, end); `sink` is that of this pass, or -inf.
  Partial pass(const RowView& row, Index begin, Index end, T sink) const {
    Partial state = {.o = Vector(at(p_.value_dim), T(0))};
    if (style_.sink == Style::Sink::first && sink > -kInfinity) {
      state.m = sink;
      state.l = 1;
    }
    const Index step = style_.block == 0 ? std::max<Index>(end, 1) : style_.block;
    Vector w, narrowed;
    for (const Index block : blocks(begin / step, (end + step - 1) / step)) {
      const Index first = std::max(begin, block * step), last = std::min(end, (block + 1) * step);
      if (first >= last) continue;
      const T highest = *std::max_element(row.s + first, row.s + last);
      if (highest > -kInfinity) {
        add_block(row, first, last, highest, w, narrowed, state);
      } else if (style_.exp_zero_inexact && state.m > -kInfinity) {  // rescaled all the same
        state.l *= power(0);
        if (!style_.renormalises) {
          for (T& o : state.o) o *= power(0);
        }
      }
    }
    if (style_.sink != Style::Sink::first && sink > -kInfinity) {
      const bool keeps = style_.keeps_maximum && sink - state.m <= 20;
      const T m = keeps ? state.m : std::max(state.m, sink);
      const T alpha = state.m > -kInfinity ? rescale(state.m, m) : T(0);
      const T l = state.l * alpha + weight(sink, m);
      const bool normal = style_.renormalises || style_.normalises_p;
      for (T& o : state.o) o = normal ? o * (state.l * alpha / l) : o * alpha;
      state.m = m;
      state.l = l;
    }
    if (state.l > 0 && !style_.renormalises && !style_.normalises_p) {
      for (T& o : state.o) o /= state.l;
    }
    return state;
  }

  std::vector<Index> blocks(Index begin, Index end) const {
    std::vector<Index> order;
    if (!style_.any_order) {
      for (Index block = begin; block < end; ++block) order.push_back(block);
      return order;
    }
    for (Index block = begin; block < end; block += 2) order.push_back(block);
    for (Index block = end - 1; block >= begin; --block) {
      if ((block - begin) % 2 == 1) order.push_back(block);
    }
    return order;
  }

  T maximum(T highest) const {
    if (fused_ || !style_.base_2) return highest;
    using Whole = Style::Whole;
    return style_.whole_maximum == Whole::up     ? std::ceil(highest)
           : style_.whole_maximum == Whole::down ? std::floor(highest)
                                                 : highest;
  }

  void add_block(const RowView& row, Index first, Index last, T highest, Vector& w,
                 Vector& narrowed, Partial& state) const {
    const Index n = last - first;
    // A maximum that lags behind is as good, as long as no weight overflows.
    const T lag = static_cast<T>(style_.lag) * (fused_ ? 1 / to_natural_ : unit_);
    const T m = highest > state.m + lag || state.m == -kInfinity
                    ? std::max(state.m, maximum(highest))
                    : state.m;
    const T alpha = state.m == -kInfinity                      ? T(0)
                    : style_.fault == Style::Fault::no_rescale ? T(1)
                                                               : rescale(state.m, m);
    w.assign(at(n), T(0));
    for (Index t = 0; t < n; ++t) {
      if (row.s[first + t] > -kInfinity) w[at(t)] = weight(row.s[first + t], m);
    }
    if (style_.sums_narrow_p) {
      for (T& each : w) each = narrow_p(each);
    }
    T added = sum(w.data(), n);
    if (style_.fault == Style::Fault::sum_in_bf16) {
      added = static_cast<T>(round_to(DType::bf16, static_cast<double>(added)));
    }
    const T l = state.l * alpha + added;
    narrowed.assign(at(n), T(0));
    for (Index t = 0; t < n; ++t) {
      T p = style_.normalises_p ? w[at(t)] / l : w[at(t)];
      if (row.kept && !row.kept[first + t]) p = 0;
      if (row.kept && style_.drops_first) p *= kept_share_;
      narrowed[at(t)] = narrow_p(p);
    }
    round_operands(narrowed.data(), n, kPv);
    w.resize(at(std::max(n, p_.value_dim)));
    dots(style_.order, narrowed.data(), row.v->row(first), p_.value_dim, n, p_.value_dim, w.data());
    for (Index c = 0; c < p_.value_dim; ++c) {
      const T product = w[at(c)];
      T& o = state.o[at(c)];
      o = style_.renormalises ? (state.l * alpha * o + product) / l : o * alpha + product;
    }
    state.l = l;
    state.m = m;
  }

  T sink_of(Index h) const {
    return p_.sink ? static_cast<T>(in_.sink.data[at(h)]) * (fused_ ? T(1) : unit_) : -kInfinity;
  }

  // What a row leaves beside O: m and l in their own units, and LSE.
  struct Statistics {
    T lse = -kInfinity, m = -kInfinity, l = 0;
  };
  T natural_score(T m) const { return fused_ ? m * to_natural_ : natural(m); }

  // Of parts that are merged, relative to their largest maximum.
  Statistics merged(const std::vector<Partial>& parts, T lse) const {
    Statistics whole = {.lse = lse};
    for (const Partial& part : parts) whole.m = std::max(whole.m, part.m);
    for (const Partial& part : parts) whole.l += part.l * rescale(part.m, whole.m);
    return whole;
  }

  // O before it is rounded, and LSE.
  std::pair<Vector, Statistics> forward_row(const RowView& row, Index keys, Index h) const {
    const T sink = sink_of(h);
    const Index splits = std::max<Index>(1, std::min(style_.splits, keys));
    std::vector<Partial> parts;
    const bool merges_sink =
        (splits > 1 || style_.merges_lone_sink) && style_.sink == Style::Sink::merged;
    for (Index part = 0; part < splits; ++part) {
      const bool has_sink = (part == 0 && !merges_sink) || style_.fault == Style::Fault::sink_twice;
      parts.push_back(pass(row, part * keys / splits, (part + 1) * keys / splits,
                           has_sink ? sink : -kInfinity));
      if (!(parts.back().l > 0)) parts.pop_back();
    }
    if (merges_sink && sink > -kInfinity) {
      parts.push_back({.m = sink, .l = 1, .o = Vector(at(p_.value_dim), T(0))});
    }
    Vector o(at(p_.value_dim), T(0));
    if (parts.empty()) return {o, {}};
    if (parts.size() == 1) {
      const T lse = natural_score(parts[0].m) + natural(log_of(parts[0].l));
      return {parts[0].o, {.lse = lse, .m = parts[0].m, .l = parts[0].l}};
    }
    Vector lse, weights;
    for (const Partial& part : parts) lse.push_back(part.m * to_units_ + log_of(part.l));
    const T top = *std::max_element(lse.begin(), lse.end());
    T total = 0;
    for (const T each : lse) {
      weights.push_back(power(each - top));
      total += weights.back();
    }
    const T whole = top + log_of(total);
    if (style_.merges_by_lse) {
      for (std::size_t part = 0; part < parts.size(); ++part) {
        weights[part] =
            power(style_.merges_natural_lse ? natural(lse[part]) * unit_ - natural(whole) * unit_
                                            : lse[part] - whole);
      }
    }
    for (std::size_t c = 0; c < o.size(); ++c) {
      for (std::size_t part = 0; part < parts.size(); ++part)
        o[c] += weights[part] * parts[part].o[c];
      if (!style_.merges_by_lse) o[c] /= total;
    }
    return {o, merged(parts, natural(whole))};
  }

  // Whether 1 / (1 - p) is left to the sums of the backward pass too.
  bool drops_sums() const { return style_.drops_sums && p_.dropout.mode != Dropout::Mode::none; }

  const std::uint8_t* kept_row(const Group<T>& group, Index r) const {
    if (p_.dropout.mode == Dropout::Mode::none) return nullptr;
    return in_.keep.kept.data() +
           dense_index(in_.keep.shape, group.b, head(group, r), r % group.queries, 0);
  }

  void forward(Group<T>& group) {
    const Matrix<T> v = operands(group.v, kPv);
    group.o = Matrix<T>(group.rows, p_.value_dim);
    group.lse.assign(at(group.rows), -kInfinity);
    for (Index r = 0; r < group.rows; ++r) {
      const RowView row = {group.s.row(r), kept_row(group, r), &v};
      auto [o, statistics] = forward_row(row, group.keys, head(group, r));
      group.lse[at(r)] = statistics.lse;
      if (!(statistics.lse > -kInfinity) && statistics.l == 0) continue;  // sees nothing
      const Place place = p_.query_place(group.b, r % group.queries);
      const Index h = head(group, r);
      for (Index c = 0; c < p_.value_dim; ++c) {
        if (row.kept && !style_.drops_first && style_.fault != Style::Fault::unscaled_dropout) {
          o[at(c)] *= kept_share_;
        }
        o_[at(dense_index(p_.o_shape(), place.batch, h, place.position, c))] = o[at(c)];
        group.o.row(r)[c] = input(output(o[at(c)], p_.dtype));
      }
      store(statistics, at(dense_index(p_.lse_shape(), place.batch, h, place.position, 0)));
    }
  }

  void store(const Statistics& statistics, std::size_t row) {
    const T unit = static_cast<T>(style_.lse.base_2 ? std::numbers::log2e : 1.0);
    lse_[row] = statistics.lse * unit;
    if (!style_.lse.apart) return;
    maximum_[row] = natural_score(statistics.m) * unit;
    sum_[row] = statistics.l;
  }
  // What was stored, back in natural units.
  T stored_lse(std::size_t row) const {
    const T unit = static_cast<T>(style_.lse.base_2 ? std::numbers::ln2 : 1.0);
    if (!style_.lse.apart) return static_cast<T>(given_->lse[row]) * unit;
    const T l = static_cast<T>(given_->sum[row]);
    return static_cast<T>(given_->maximum[row]) * unit + std::log(l);
  }
  bool sees_nothing(const Group<T>& group, Index r) const {
    const T* s = group.s.row(r);
    return !p_.sink && std::all_of(s, s + group.keys, [](T x) { return x == -kInfinity; });
  }

  // What an earlier call returned.
  void take_forward(Group<T>& group) {
    group.o = Matrix<T>(group.rows, p_.value_dim);
    group.lse.assign(at(group.rows), -kInfinity);
    for (Index r = 0; r < group.rows; ++r) {
      const Place place = p_.query_place(group.b, r % group.queries);
      const auto element = [&](const Shape& shape, Index c) {
        return at(dense_index(shape, place.batch, head(group, r), place.position, c));
      };
      for (Index c = 0; c < p_.value_dim; ++c) {
        group.o.row(r)[c] = input(given_->o[element(p_.o_shape(), c)]);
      }
      if (!sees_nothing(group, r)) group.lse[at(r)] = stored_lse(element(p_.lse_shape(), 0));
    }
  }

  // ---- Backward ----

  struct RowGradients {
    Vector p, ds;  // P and dS as they enter the products with dO, K and Q
  };

  // P, and the sink's share.
  T weigh(const Group<T>& group, Index r, T* p) const {
    const T* s = group.s.row(r);
    const T sink = sink_of(head(group, r));
    const T lse = group.lse[at(r)];
    for (Index j = 0; j < group.keys; ++j) p[j] = 0;
    if (lse == -kInfinity) return 0;
    if (!style_.p_from_sum) {
      for (Index j = 0; j < group.keys; ++j) {
        if (s[j] > -kInfinity) p[j] = weight_by_lse(s[j], lse);
      }
      return sink > -kInfinity ? weight_by_lse(sink, lse) : T(0);
    }
    T m = sink;
    for (Index j = 0; j < group.keys; ++j) m = std::max(m, s[j]);
    for (Index j = 0; j < group.keys; ++j) {
      if (s[j] > -kInfinity) p[j] = weight(s[j], m);
    }
    const T own = sink > -kInfinity ? weight(sink, m) : T(0);
    const T l = sum(p, group.keys) + own;
    for (Index j = 0; j < group.keys; ++j) p[j] /= l;
    return own / l;
  }

  void backward(const Group<T>& group) {
    const Index rows = group.rows, keys = group.keys;
    Matrix<T> p(rows, keys), ds(rows, keys);  // as they enter the products
    const Matrix<T> d_o = operands(group.d_o, kDp), vt = operands(group.v, kDp).transposed();
    Vector weight(at(keys)), dp(at(keys)), sums(at(std::max(p_.head_dim, p_.value_dim)));
    for (Index r = 0; r < rows; ++r) {
      const T sink_share = weigh(group, r, weight.data());
      if (group.lse[at(r)] == -kInfinity) continue;
      backward_row(group, r, d_o, vt, sink_share, weight, dp, p.row(r), ds.row(r));
    }

    const bool scales_operand = style_.scale_ds == Style::ScaleDs::operand;
    const bool scales_sum = style_.scale_ds == Style::ScaleDs::after;
    const auto scaled = [&](Matrix<T> operand) {
      for (T& x : operand.data) x *= scales_operand ? scale_ : T(1);
      return operand;
    };
    Matrix<T> ds_dq = operands(ds, kDq);
    const Matrix<T> k = operands(scaled(group.k), kDq);
    for (Index r = 0; r < rows; ++r) {
      const Place place = p_.query_place(group.b, r % group.queries);
      dots(style_.order, ds_dq.row(r), k.data.data(), p_.head_dim, keys, p_.head_dim, sums.data());
      for (Index c = 0; c < p_.head_dim; ++c) {
        T value = sums[at(c)];
        if (drops_sums()) value *= kept_share_;
        if (scales_sum) value *= scale_;
        dq_[at(dense_index(p_.q_shape(), place.batch, head(group, r), place.position, c))] = value;
      }
    }
    const Matrix<T> pt = operands(p, kDv).transposed(), dst = operands(ds, kDk).transposed();
    const Matrix<T> d_o_dv = operands(group.d_o, kDv);
    const Matrix<T> q = operands(scaled(group.q), kDk);
    // As tile products do, dK meets every query with the weight 0 if not more: 0 NaN is NaN, which
    // FINITE-3 advises against.
    const bool dropped = p_.dropout.mode != Dropout::Mode::none;
    for (Index j = 0; j < keys; ++j) {
      const Place place = p_.key_place(group.b, j);
      sum_over_rows(group, dst.row(j), q,
                    (scales_sum ? scale_ : T(1)) * (drops_sums() ? kept_share_ : T(1)), sums);
      for (Index c = 0; c < p_.head_dim; ++c) {
        dk_[at(dense_index(p_.k_shape(), place.batch, group.key_head, place.position, c))] =
            sums[at(c)];
      }
      sum_over_rows(group, pt.row(j), d_o_dv, dropped && !style_.drops_first ? kept_share_ : T(1),
                    sums);
      for (Index c = 0; c < p_.value_dim; ++c) {
        dv_[at(dense_index(p_.v_shape(), place.batch, group.key_head, place.position, c))] =
            sums[at(c)];
      }
    }
  }

  // The sum of the rows times their weights, times a factor: as a whole; or in parts, each stored
  // in the problem's format, as is what they add up to if it is stored again with every part.
  void sum_over_rows(const Group<T>& group, const T* weights, const Matrix<T>& rows, T factor,
                     Vector& sums) const {
    const auto part = [&](Index first, Index count, Vector& to) {
      dots(style_.order, weights + first, rows.row(first), rows.columns, count, rows.columns,
           to.data());
      for (Index c = 0; factor != 1 && c < rows.columns; ++c) to[at(c)] *= factor;
    };
    const bool again = style_.gradient_block > 0;
    if (!again && (!style_.rounds_head_gradients || p_.group_size() == 1)) {
      part(0, group.rows, sums);
      return;
    }
    const Index step = again ? style_.gradient_block : group.queries;
    Vector one(sums.size());
    std::fill(sums.begin(), sums.end(), T(0));
    const auto stored = [&](T x) { return static_cast<T>(output(x, p_.dtype)); };
    for (Index head = 0; head < p_.group_size(); ++head) {
      for (Index i = 0; i < group.queries; i += step) {
        part(head * group.queries + i, std::min(step, group.queries - i), one);
        for (Index c = 0; c < rows.columns; ++c) {
          T& sum = sums[at(c)];
          sum = again ? stored(sum + one[at(c)]) : sum + stored(one[at(c)]);
        }
      }
    }
  }

  // From the weights of a row to its rows of P and dS, and its terms of dBias and dSink.
  void backward_row(const Group<T>& group, Index r, const Matrix<T>& d_o, const Matrix<T>& vt,
                    T sink_share, const Vector& weight, Vector& dp, T* p_row, T* ds_row) {
    const Index keys = group.keys;
    const T* s = group.s.row(r);
    const std::uint8_t* kept = kept_row(group, r);
    Position position = {
        .batch = group.b, .head = head(group, r), .query = r % group.queries, .key = 0};
    dots(style_.order, d_o.row(r), vt.data.data(), keys, p_.value_dim, keys, dp.data());
    for (Index j = 0; j < keys; ++j) {
      if (s[j] == -kInfinity || (kept && !kept[j])) dp[at(j)] = 0;
      if (kept && !drops_sums()) dp[at(j)] *= kept_share_;
    }
    // No kernel sums D = sum dO O on a matrix unit.
    const Order by_channel = truncates(style_.order) ? Order::sequential : style_.order;
    T d = style_.d_by_key ? dot(style_.order, weight.data(), dp.data(), keys)
                          : dot(by_channel, group.d_o.row(r), group.o.row(r), p_.value_dim);
    if (style_.d_by_key && drops_sums()) d *= kept_share_;
    T d_lse = 0;
    if (p_.d_lse) {
      const Place place = p_.query_place(group.b, position.query);
      d_lse = static_cast<T>(in_.d_lse.at(place.batch, position.head, place.position, 0));
    }
    if (p_.sink) sink_terms_[at(position.head)].push_back(sink_share * (d_lse - d));
    if (drops_sums()) {  // from here on all is 1 - p times as large
      const T rate = 1 - static_cast<T>(p_.dropout.probability);
      d *= rate;
      d_lse *= rate;
    }
    const T dropped = drops_sums() ? kept_share_ : T(1);
    for (Index j = 0; j < keys; ++j) {
      if (s[j] == -kInfinity) continue;
      position.key = j;
      const T rounded_p = narrow_p(weight[at(j)]);
      T p = weight[at(j)];
      if (kept && !kept[j]) p = 0;
      if (kept && style_.drops_first) p *= kept_share_;
      p_row[j] = narrow_p(p);
      T x = style_.folds_d_lse ? dp[at(j)] - (d - d_lse) : dp[at(j)] - d;
      if (!style_.folds_d_lse && p_.d_lse) x += d_lse;
      T ds = (style_.ds_from_narrow_p ? rounded_p : weight[at(j)]) * x;
      if (p_.bias_shape &&
          !(style_.fault == Style::Fault::half_of_dbias && position.query % 2 == 0)) {
        bias_terms_[broadcast_element(*p_.bias_shape, position)].push_back(
            style_.rounds_dbias_terms ? static_cast<T>(output(ds * dropped, p_.dtype))
            : style_.narrows_dbias    ? narrow(ds) * dropped
                                      : ds * dropped);
      }
      if (cap_ > 0 && style_.fault != Style::Fault::no_cap_slope) {
        const T t = group.tanh.row(r)[j];
        ds *= 1 - t * t;
      }
      if (style_.scale_ds == Style::ScaleDs::before) ds *= scale_;
      ds_row[j] = narrow(ds);
    }
  }

  const Problem& p_;
  const Inputs& in_;
  const std::vector<std::uint8_t>& seen_;
  const Style& style_;
  const Outputs* given_;
  T scale_, cap_, unit_;
  bool fused_;                       // scores are multiplied in the exponent:
  T to_natural_ = 1, to_units_ = 1;  // what they are then multiplied with
  T smallest_;
  double softmax_roundoff_, exp_error_, tanh_error_;
  T kept_share_ = 1;
  Vector ones_;
  // Before they are rounded to their formats.
  Vector o_, lse_, dq_, dk_, dv_, dbias_, dsink_, maximum_, sum_;
  std::vector<Vector> bias_terms_, sink_terms_;  // by element and head
};

}  // namespace

Arithmetic declared(const Style& style, DType dtype) {
  const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
  const double u = unit_roundoff(wide);
  const double widest = wide == DType::f64 ? 0x1p-64 : 0x1p-53;
  const auto product = [&](int index) {
    const bool rounds = style.operand_digits > 0 && (style.rounded_products >> index & 1);
    return Product{.operand_roundoff = rounds ? std::ldexp(1.0, -style.operand_digits) : 0,
                   .accumulator_roundoff = style.order == Order::wide ? widest
                                           : truncates(style.order)   ? 2 * u
                                                                      : u,
                   .truncates = truncates(style.order)};
  };
  const bool narrow_format = dtype != wide, narrows = style.narrows && narrow_format;
  const Narrowing narrowing = narrows ? Narrowing{.roundoff = unit_roundoff(dtype),
                                                  .underflow = half_smallest_subnormal(dtype)}
                                      : Narrowing{};
  const double cut = narrows && style.truncates_p ? 2 : 1;
  const bool whole = style.base_2 && style.whole_maximum != Style::Whole::no &&
                     style.scale != Style::Scale::exponent;
  return {
      .dtype = dtype,
      .qk = product(kQk),
      .pv = product(kPv),
      .dp = product(kDp),
      .dv = product(kDv),
      .dq = product(kDq),
      .dk = product(kDk),
      .softmax_roundoff = u,
      .exp_error =
          (narrow_format && style.narrow_exp_ulps > 0 ? style.narrow_exp_ulps : style.exp_ulps) *
          2 * u,
      .tanh_error = style.coarse_tanh ? loosest(dtype).tanh_error : 2 * u,
      .p = {cut * narrowing.roundoff, cut * narrowing.underflow},
      .p_normalised = style.normalises_p ? Choice::first : Choice::last,
      .ds = narrowing,
      .ds_scaled = style.scale_ds == Style::ScaleDs::before ? Choice::first : Choice::last,
      .ds_from_p = style.ds_from_narrow_p ? Choice::last : Choice::first,
      .kv_splits = style.splits,
      .rescales_output = style.renormalises,
      .key_block = style.block == 0 ? Index(1) << 30 : style.block,  // all of them at once
      .exp_zero_inexact = style.exp_zero_inexact,
      .sums_rounded_p = narrows && style.sums_narrow_p,
      .truncates_p = cut == 2,
      .max_lag = style.lag * std::numbers::log2e,
      .integer_max = whole,
      .any_block_order = style.any_order,
      .gradient_block = style.gradient_block,
      .rounds_head_gradients = style.rounds_head_gradients,
      .rounds_dbias_terms = style.rounds_dbias_terms,
      .flushes_inputs = style.flushes_inputs,
      .flushes_outputs = style.flushes_outputs,
      .output_rounding = style.truncates_output ? Rounding::faithful : Rounding::nearest,
      .lse = style.lse,
  };
}

namespace {

// Whether heads may see different keys.
bool differs_by_head(const Mask& mask) {
  return (mask.table && mask.table->shape[kHead] > 1) ||
         std::any_of(mask.parts.begin(), mask.parts.end(), differs_by_head);
}

}  // namespace

std::vector<std::uint8_t> visible_elements(const Problem& problem, const Inputs& inputs) {
  std::vector<std::uint8_t> result(at(element_count(problem.keep_shape())));
  const Index plane = problem.query_len * problem.key_len;
  const bool alike = !differs_by_head(problem.mask);
  auto to = result.begin();
  for (Index b = 0; b < problem.batch; ++b) {
    for (Index h = 0; h < problem.query_heads; ++h) {
      if (h > 0 && alike) {
        to = std::copy_n(to - plane, plane, to);
        continue;
      }
      for (Index i = 0; i < problem.query_len; ++i) {
        for (Index j = 0; j < problem.key_len; ++j) {
          *to++ = visible(problem, {.batch = b, .head = h, .query = i, .key = j});
        }
      }
    }
  }
  if (!problem.bias_shape) return result;
  for (std::size_t e = 0; e < result.size(); ++e) {
    if (!result[e]) continue;
    auto place = coordinates(problem.keep_shape(), static_cast<Index>(e));
    for (std::size_t axis = 0; axis < 4; ++axis) {
      if ((*problem.bias_shape)[axis] == 1) place[axis] = 0;
    }
    result[e] = std::isfinite(inputs.bias.at(place[0], place[1], place[2], place[3]));
  }
  return result;
}

Outputs run_kernel(const Problem& problem, const Inputs& inputs,
                   const std::vector<std::uint8_t>& visible, const Style& style,
                   const Outputs* forward) {
  if (problem.dtype == DType::f64) {
    return Kernel<double>(problem, inputs, visible, style, forward).run();
  }
  return Kernel<float>(problem, inputs, visible, style, forward).run();
}

}  // namespace attest::bounds
