// No correct kernel exceeds the bound, and faulty ones do: a family of small kernels, right but as
// different as real ones are, on inputs of every kind, each judged under the arithmetic that it
// declares; and the same kernels with one fault planted.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <numbers>
#include <random>
#include <utility>

#include "reference/working.h"

namespace attest {
namespace {

enum class Order { sequential, fused, reversed, pairwise, lanes, truncated };
enum class Sink { first, last, merged };  // as the first key, added to the sum, merged by LSE
enum class Fault {
  none,
  drops_last_key,
  squares_scale,
  shifts_mask,
  lse_base_2,
  skips_rescale,
  caps_bias,     // adds the bias before the cap
  keeps_slope,   // 1 for the derivative of the cap
  scales_bias,   // multiplies it by the scale
  turns_slant,   // the sign of ALiBi
  scales_sink,   // multiplies it by the scale
  shifts_keep,   // the keep-mask of the row before
  forgets_dlse,  // dS without it
  forgets_rows,  // every other one in the sum of dBias
  turns_dsink,   // the sign of dSink
};

struct Style {
  std::string name;
  Order order = Order::sequential;
  Index block = 0;            // keys of a step of the online softmax; 0: the whole row at once
  bool renormalises = false;  // as FlashAttention-1
  Index splits = 1;
  bool divides_merged = true;  // by the sum of the parts' weights, rather than trusting LSE
  bool base_2 = false;
  bool crude_exp = false;       // up to 2 ulp
  bool normalises_p = false;    // before rounding
  bool scales_q = false;        // before the product
  bool crude_tanh = false;      // as far off as the caps allow
  bool divides_by_cap = false;  // scale and cap apart; the derivative from the capped score
  bool adds_early = false;      // the bias to the sum of products, divided by the scale
  Sink sink = Sink::first;
  bool drops_late = false;  // 1 / (1 - p) is multiplied into the results
  // Backward
  bool d_by_key = false;
  bool p_from_sum = false;     // exp(s - m) / l rather than exp(s - L)
  bool scales_before = false;  // dS, before it is rounded
  bool ds_from_rounded_p = false;
  Fault fault = Fault::none;
};

// A kernel whose arithmetic is done in T: float, or double for f64.
template <class T>
class Machine {
 public:
  Machine(const Problem& problem, const Inputs& inputs, const Style& style)
      : p_(problem), in_(inputs), style_(style) {
    scale_ = static_cast<T>(problem.scale);
    if (style.fault == Fault::squares_scale) scale_ *= scale_;
    unit_ = static_cast<T>(style.base_2 ? std::numbers::log2e : 1.0);
    rate_ = 1 - static_cast<T>(problem.dropout.probability);
  }

  struct Result {
    std::vector<double> o, lse, dq, dk, dv, dbias, dsink;
  };

  Result run() {
    Result result;
    for (const auto& [to, shape] : {std::pair{&result.o, p_.o_shape()},
                                    {&result.lse, p_.lse_shape()},
                                    {&result.dq, p_.q_shape()},
                                    {&result.dk, p_.k_shape()},
                                    {&result.dv, p_.v_shape()},
                                    {&result.dbias, p_.bias_shape.value_or(Shape{})},
                                    {&result.dsink, p_.sink ? p_.sink_shape() : Shape{}}}) {
      to->assign(static_cast<std::size_t>(element_count(shape)), 0.0);
    }
    std::vector<RowResult> rows;
    for (Index h = 0; h < p_.query_heads; ++h) {
      for (Index i = 0; i < p_.query_len; ++i) {
        rows.push_back(forward_row(h, i));
        const RowResult& row = rows.back();
        for (Index c = 0; c < p_.value_dim; ++c) put(result.o, p_.o_shape(), h, i, c, row.o[at(c)]);
        result.lse[at(dense_index(p_.lse_shape(), 0, h, i, 0))] = row.lse;
      }
    }
    backward(rows, result);
    return result;
  }

 private:
  using Vector = std::vector<T>;

  struct RowResult {
    std::vector<Index> keys;
    Vector s, slope, p;  // p: exp(s - m) / l
    Vector kept;         // 0 or 1
    Vector o;            // rounded to the format
    T lse = -std::numeric_limits<T>::infinity();
  };

  struct Partial {
    T m, l;
    Vector o;
  };

  static std::size_t at(Index i) { return static_cast<std::size_t>(i); }
  void put(std::vector<double>& to, const Shape& shape, Index h, Index s, Index c, T value) const {
    to[at(dense_index(shape, 0, h, s, c))] = round_to(p_.dtype, static_cast<double>(value));
  }
  T narrow(T x) const { return static_cast<T>(round_to(p_.dtype, static_cast<double>(x))); }

  T power(T x) const {  // in units of unit_; 1 at 0, as every exponential function has it
    const double exact = style_.base_2 ? std::exp2(double(x)) : std::exp(double(x));
    const T value = static_cast<T>(exact);
    if (!style_.crude_exp || x == 0) return value;
    const auto bits = std::bit_cast<std::uint64_t>(double(x));
    const int ulps = static_cast<int>(bits * 0x9e3779b97f4a7c15u >> 62) - 1;  // -1 ... 2
    T moved = value;
    for (int step = 0; step < std::abs(ulps); ++step) {
      moved = std::nextafter(moved, ulps > 0 ? std::numeric_limits<T>::infinity() : T(0));
    }
    return moved;
  }

  static T dot_range(const Vector& x, const Vector& y, std::size_t begin, std::size_t end) {
    if (end - begin == 0) return 0;
    if (end - begin == 1) return x[begin] * y[begin];
    const std::size_t middle = begin + (end - begin) / 2;
    return dot_range(x, y, begin, middle) + dot_range(x, y, middle, end);
  }

  // A matrix unit: 16 products and the accumulator are aligned to the largest, cut off and added.
  static T truncating_dot(const Vector& x, const Vector& y) {
    constexpr int kDigits = std::numeric_limits<T>::digits;
    const auto cut = [](long double value, int last) {
      return std::ldexp(std::trunc(std::ldexp(value, -last)), last);
    };
    T sum = 0;
    for (std::size_t begin = 0; begin < x.size(); begin += 16) {
      std::vector<long double> terms = {sum};
      for (std::size_t t = begin; t < std::min(begin + 16, x.size()); ++t) {
        terms.push_back(static_cast<long double>(x[t]) * static_cast<long double>(y[t]));
      }
      long double largest = 0, total = 0;
      for (const long double term : terms) largest = std::max(largest, std::abs(term));
      if (largest == 0) continue;
      for (const long double term : terms) total += cut(term, std::ilogb(largest) - kDigits + 1);
      const bool has_digits = total != 0 && std::isfinite(total);
      sum = static_cast<T>(has_digits ? cut(total, std::ilogb(total) - kDigits + 1) : total);
    }
    return sum;
  }

  T dot(const Vector& x, const Vector& y) const {
    T sum = 0;
    switch (style_.order) {
      case Order::sequential:
        for (std::size_t t = 0; t < x.size(); ++t) sum += x[t] * y[t];
        return sum;
      case Order::fused:
        for (std::size_t t = 0; t < x.size(); ++t) sum = std::fma(x[t], y[t], sum);
        return sum;
      case Order::reversed:
        for (std::size_t t = x.size(); t-- > 0;) sum += x[t] * y[t];
        return sum;
      case Order::pairwise:
        return dot_range(x, y, 0, x.size());
      case Order::lanes: {
        std::array<T, 16> lane = {};
        for (std::size_t t = 0; t < x.size(); ++t)
          lane[t % 16] = std::fma(x[t], y[t], lane[t % 16]);
        for (const T each : lane) sum += each;
        return sum;
      }
      case Order::truncated:
        return truncating_dot(x, y);
    }
    return sum;
  }

  T input(const Values& from, Index h, Index s, Index c) const {
    return static_cast<T>(from.at(0, h, s, c));
  }
  Vector line(const Values& from, Index h, Index s) const {
    Vector result;
    for (Index c = 0; c < from.shape[kChannel]; ++c) result.push_back(input(from, h, s, c));
    return result;
  }
  Vector column(const Values& from, Index h, const std::vector<Index>& keys, Index c) const {
    Vector result;
    for (const Index j : keys) result.push_back(input(from, h, j, c));
    return result;
  }

  T tanh_of(T x) const {
    const T exact = static_cast<T>(std::tanh(double(x)));
    if (!style_.crude_tanh) return exact;
    const auto bits = std::bit_cast<std::uint64_t>(double(x)) * 0x9e3779b97f4a7c15u >> 40;
    const T error = static_cast<T>(std::is_same_v<T, float> ? 0x1p-11 : 3 * 0x1p-52);
    return exact * (1 + error * static_cast<T>(double(bits) * 0x1p-23 * 0.999 - 0.999));
  }

  T bias_of(Index h, Index i, Index j) const {
    const auto pick = [&](std::size_t axis, Index n) {
      return (*p_.bias_shape)[axis] == 1 ? 0 : n;
    };
    return static_cast<T>(in_.bias.at(0, pick(1, h), pick(2, i), pick(3, j)));
  }
  bool hidden(Index h, Index i, Index j) const {
    return p_.bias_shape && std::isinf(bias_of(h, i, j));
  }

  // A score in units of unit_, and the derivative of the cap.
  std::pair<T, T> score(Index h, Index i, Index j) const {
    Vector q = line(in_.q, h, i), k = line(in_.k, h / p_.group_size(), j);
    const bool early = style_.adds_early && p_.softcap == 0;
    T added = 0;
    if (p_.bias_shape) added += bias_of(h, i, j) * (early ? 1 / scale_ : unit_);
    if (style_.fault == Fault::scales_bias) added *= scale_;
    if (p_.slopes_shape) {
      const Lengths lengths = p_.lengths(0);
      const T distance = static_cast<T>(std::abs(i + lengths.key - lengths.query - j));
      const T slope = static_cast<T>(in_.slopes.at(0, h, 0, 0));
      const T slant = slope * (early ? 1 / scale_ : unit_) * distance;
      added += style_.fault == Fault::turns_slant ? slant : -slant;
    }
    if (p_.softcap > 0) {
      const T c = static_cast<T>(p_.softcap);
      T x = style_.divides_by_cap ? dot(q, k) * scale_ / c : dot(q, k) * (scale_ / c);
      if (style_.fault == Fault::caps_bias) x += std::exchange(added, T(0)) / unit_ / c;
      const T t = tanh_of(x);
      const T capped = c * unit_ * t;
      const T seen = style_.divides_by_cap ? capped / (c * unit_) : t;
      const T slope = style_.fault == Fault::keeps_slope ? T(1) : 1 - seen * seen;
      return {capped + added, slope};
    }
    const T factor = scale_ * unit_;
    if (early) {
      q.push_back(added);
      k.push_back(1);
      return {dot(q, k) * factor, T(1)};
    }
    if (!style_.scales_q) return {dot(q, k) * factor + added, T(1)};
    for (T& x : q) x *= factor;
    return {dot(q, k) + added, T(1)};
  }

  T sink(Index h) const {  // in units of unit_
    const T z = static_cast<T>(in_.sink.at(0, h, 0, 0));
    return (style_.fault == Fault::scales_sink ? scale_ * z : z) * unit_;
  }

  // P as it enters a product with V or dO.
  T weight(T p, T kept) const {
    return kept == 0 ? T(0) : style_.drops_late ? narrow(p) : narrow(p * (1 / rate_));
  }
  T late(T x) const { return style_.drops_late && drops() ? x * (1 / rate_) : x; }
  bool drops() const { return p_.dropout.mode != Dropout::Mode::none; }

  // One pass over keys[begin, end), and the sink if it has part in it.
  Partial pass(const RowResult& row, Index h, std::size_t begin, std::size_t end,
               bool sinks) const {
    const Index kh = h / p_.group_size();
    Partial state = {-std::numeric_limits<T>::infinity(), 0, Vector(at(p_.value_dim), T(0))};
    if (sinks && style_.sink == Sink::first) {
      state.m = sink(h);
      state.l = 1;
    }
    const std::size_t block = style_.block == 0 ? end - begin : at(style_.block);
    for (std::size_t first = begin; first < end; first += block) {
      const std::size_t last = std::min(first + block, end);
      T m = state.m;
      for (std::size_t t = first; t < last; ++t) m = std::max(m, row.s[t]);
      const T alpha =
          style_.fault == Fault::skips_rescale && last == end ? T(1) : power(state.m - m);
      Vector w, rounded;
      for (std::size_t t = first; t < last; ++t) w.push_back(power(row.s[t] - m));
      const T l = state.l * alpha + dot(w, Vector(w.size(), T(1)));
      for (std::size_t t = first; t < last; ++t) {
        const T each = w[t - first];
        rounded.push_back(weight(style_.normalises_p ? each / l : each, row.kept[t]));
      }
      const std::vector<Index> keys(row.keys.begin() + std::ptrdiff_t(first),
                                    row.keys.begin() + std::ptrdiff_t(last));
      for (Index c = 0; c < p_.value_dim; ++c) {
        const T sum = dot(rounded, column(in_.v, kh, keys, c));
        T& o = state.o[at(c)];
        if (style_.renormalises) {
          o = (state.l * alpha * o + sum) / l;
        } else {
          o = o * alpha + sum;
        }
      }
      state.l = l;
      state.m = m;
    }
    const bool normal = style_.renormalises || style_.normalises_p;
    if (sinks && style_.sink == Sink::last) {
      // Far above all keys, it becomes the maximum.
      const T m = sink(h) - state.m > 20 ? sink(h) : state.m, alpha = power(state.m - m);
      for (T& o : state.o) o *= normal ? T(1) : alpha;
      state.l *= alpha;
      state.m = m;
      const T l = state.l + power(sink(h) - m);
      for (T& o : state.o) o *= normal ? state.l / l : T(1);
      state.l = l;
    }
    for (T& o : state.o) o = late(normal ? o : o / state.l);
    return state;
  }

  T log_of(T x) const {
    return static_cast<T>(style_.base_2 ? std::log2(double(x)) : std::log(double(x)));
  }
  T natural(T x) const {
    return style_.base_2 && style_.fault != Fault::lse_base_2
               ? x * static_cast<T>(std::numbers::ln2)
               : x;
  }

  RowResult forward_row(Index h, Index i) const {
    RowResult row;
    row.o.assign(at(p_.value_dim), T(0));
    for (Index j = 0; j < p_.key_len; ++j) {
      const Index shifted = style_.fault == Fault::shifts_mask ? i + 1 : i;
      if (visible(p_, {.head = h, .query = std::min(shifted, p_.query_len - 1), .key = j}) &&
          !hidden(h, i, j)) {
        row.keys.push_back(j);
      }
    }
    if (style_.fault == Fault::drops_last_key && row.keys.size() > 1) row.keys.pop_back();
    if (row.keys.empty()) {
      if (p_.sink) row.lse = natural(sink(h));
      return row;
    }
    for (const Index j : row.keys) {
      const auto [s, slope] = score(h, i, j);
      row.s.push_back(s);
      row.slope.push_back(slope);
      const Index drawn = style_.fault == Fault::shifts_keep ? std::max<Index>(i - 1, 0) : i;
      row.kept.push_back(!drops() || in_.keep.at({.head = h, .query = drawn, .key = j}));
    }
    std::vector<Partial> parts;
    const std::size_t n = row.keys.size(), splits = std::min(at(style_.splits), n);
    for (std::size_t part = 0; part < splits; ++part) {
      parts.push_back(
          pass(row, h, part * n / splits, (part + 1) * n / splits, p_.sink && part == 0));
    }
    if (p_.sink && style_.sink == Sink::merged) {
      parts.push_back({sink(h), T(1), Vector(at(p_.value_dim), T(0))});
    }
    if (parts.size() == 1) {
      row.o = parts[0].o;
      row.lse = natural(parts[0].m) + natural(log_of(parts[0].l));
    } else {
      T top = -std::numeric_limits<T>::infinity(), total = 0;
      Vector weights;
      for (const Partial& part : parts) top = std::max(top, part.m + log_of(part.l));
      for (const Partial& part : parts) {
        weights.push_back(power(part.m + log_of(part.l) - top));
        total += weights.back();
      }
      row.lse = natural(top) + natural(log_of(total));
      if (!style_.divides_merged) {  // as several combining kernels do
        for (std::size_t part = 0; part < parts.size(); ++part) {
          const T lse = parts[part].m + log_of(parts[part].l);
          weights[part] = style_.scales_q ? power(lse - (top + log_of(total)))
                                          : power(natural(lse) * unit_ - row.lse * unit_);
        }
        total = 1;
      }
      for (std::size_t c = 0; c < row.o.size(); ++c) {
        for (std::size_t part = 0; part < parts.size(); ++part) {
          row.o[c] += weights[part] * parts[part].o[c];
        }
        row.o[c] /= total;
      }
    }
    if (style_.p_from_sum) {
      T m = *std::max_element(row.s.begin(), row.s.end());
      if (p_.sink) m = std::max(m, sink(h));
      for (const T s : row.s) row.p.push_back(power(s - m));
      T l = dot(row.p, Vector(row.p.size(), T(1)));
      if (p_.sink) l += power(sink(h) - m);
      for (T& p : row.p) p /= l;
    } else {
      for (const T s : row.s) row.p.push_back(power(s - row.lse * unit_));
    }
    for (T& o : row.o) o = narrow(o);
    return row;
  }

  void backward(const std::vector<RowResult>& rows, Result& result) const {
    // For each key of each head: the weights and the rows they belong to.
    std::map<std::pair<Index, Index>, std::vector<std::array<T, 2>>> of_key;
    std::map<std::pair<Index, Index>, std::vector<std::pair<Index, Index>>> rows_of_key;
    std::map<Index, Vector> of_bias, of_sink;  // by element
    for (Index h = 0; h < p_.query_heads; ++h) {
      for (Index i = 0; i < p_.query_len; ++i) {
        const RowResult& row = rows[at(h * p_.query_len + i)];
        const bool forgets = !p_.d_lse || style_.fault == Fault::forgets_dlse;
        const T d_lse = forgets ? T(0) : static_cast<T>(in_.d_lse.at(0, h, i, 0));
        if (row.keys.empty()) {
          if (p_.sink) of_sink[h].push_back(power(sink(h) - row.lse * unit_) * d_lse);
          continue;
        }
        const Index kh = h / p_.group_size();
        const Vector d_o = line(in_.d_o, h, i);
        Vector dp, ds;
        for (std::size_t t = 0; t < row.keys.size(); ++t) {
          const T product = dot(d_o, line(in_.v, kh, row.keys[t]));
          const T all = style_.drops_late ? product : product * (1 / rate_);
          dp.push_back(row.kept[t] == 0 ? T(0) : drops() ? all : product);
        }
        T d = style_.d_by_key ? late(dot(row.p, dp)) : dot(d_o, row.o);
        if (p_.sink) {
          const T p = power(sink(h) - row.lse * unit_);
          of_sink[h].push_back(style_.fault == Fault::turns_dsink ? p * (d - d_lse)
                                                                  : p * (d_lse - d));
        }
        const bool late_row = style_.drops_late && drops();
        for (std::size_t t = 0; t < row.keys.size(); ++t) {
          const T p = style_.ds_from_rounded_p ? narrow(row.p[t]) : row.p[t];
          const T x = style_.divides_by_cap ? (dp[t] - (late_row ? rate_ * d : d)) +
                                                  (late_row ? rate_ * d_lse : d_lse)
                                            : dp[t] - (late_row ? rate_ * (d - d_lse) : d - d_lse);
          const T whole = p * x, sloped = whole * row.slope[t];
          ds.push_back(style_.scales_before ? narrow(sloped * scale_) : narrow(sloped));
          of_key[{kh, row.keys[t]}].push_back({weight(row.p[t], row.kept[t]), ds.back()});
          rows_of_key[{kh, row.keys[t]}].push_back({h, i});
          if (p_.bias_shape && !(style_.fault == Fault::forgets_rows && i % 2 == 0)) {
            const auto pick = [&](std::size_t axis, Index index) {
              return (*p_.bias_shape)[axis] == 1 ? 0 : index;
            };
            of_bias[dense_index(*p_.bias_shape, 0, pick(1, h), pick(2, i), pick(3, row.keys[t]))]
                .push_back(late(style_.ds_from_rounded_p ? narrow(whole) : whole));
          }
        }
        for (Index c = 0; c < p_.head_dim; ++c) {
          const T sum = late(dot(ds, column(in_.k, kh, row.keys, c)));
          put(result.dq, p_.q_shape(), h, i, c, style_.scales_before ? sum : sum * scale_);
        }
      }
    }
    for (const auto& entry : of_key) {
      const auto& key = entry.first;
      Vector p, ds;
      for (const auto& [weight, slope] : entry.second) {
        p.push_back(weight);
        ds.push_back(slope);
      }
      const auto gather = [&](const Values& from, Index c) {
        Vector values;
        for (const auto& [h, i] : rows_of_key.at(key)) values.push_back(input(from, h, i, c));
        return values;
      };
      for (Index c = 0; c < p_.value_dim; ++c) {
        put(result.dv, p_.v_shape(), key.first, key.second, c, late(dot(p, gather(in_.d_o, c))));
      }
      for (Index c = 0; c < p_.head_dim; ++c) {
        const T sum = late(dot(ds, gather(in_.q, c)));
        put(result.dk, p_.k_shape(), key.first, key.second, c,
            style_.scales_before ? sum : sum * scale_);
      }
    }
    const auto sum_of = [&](const Vector& terms) { return dot(terms, Vector(terms.size(), T(1))); };
    for (const auto& [e, terms] : of_bias) {
      result.dbias[at(e)] = round_to(p_.dtype, static_cast<double>(sum_of(terms)));
    }
    for (const auto& [h, terms] : of_sink) {
      result.dsink[at(h)] = round_to(DType::f32, static_cast<double>(sum_of(terms)));
    }
  }

  const Problem& p_;
  const Inputs& in_;
  Style style_;
  T scale_, unit_;
  T rate_;  // at which dropout keeps
};

// What a kernel of that style declares.
Arithmetic declared(const Style& style, DType dtype) {
  const double u = dtype == DType::f64 ? 0x1p-53 : 0x1p-24;
  const bool truncates = style.order == Order::truncated;
  const Product product = {.accumulator_roundoff = truncates ? 2 * u : u, .truncates = truncates};
  Arithmetic a = loosest(dtype);
  a.qk = a.pv = a.dp = a.dv = a.dq = a.dk = product;
  a.softmax_roundoff = truncates ? 2 * u : u;  // D and the row sum run on the same unit
  a.exp_error = style.crude_exp ? 5 * u : 2 * u;
  if (!style.crude_tanh) a.tanh_error = 4 * u;
  a.p_normalised = style.normalises_p ? Choice::first : Choice::last;
  a.ds_scaled = style.scales_before ? Choice::first : Choice::last;
  a.ds_from_p = style.ds_from_rounded_p ? Choice::last : Choice::first;
  a.kv_splits = style.splits;
  a.rescales_output = style.renormalises;
  a.key_block = style.block;
  a.flushes_inputs = a.flushes_outputs = false;
  a.output_rounding = Rounding::nearest;
  return a;
}

std::vector<Style> styles() {
  return {
      {.name = "naive"},
      {.name = "naive, P normalised",
       .order = Order::pairwise,
       .normalises_p = true,
       .divides_by_cap = true,
       .adds_early = true,
       .sink = Sink::last,
       .d_by_key = true,
       .p_from_sum = true,
       .ds_from_rounded_p = true},
      {.name = "fa2 1",
       .order = Order::fused,
       .block = 1,
       .sink = Sink::merged,
       .drops_late = true,
       .scales_before = true},
      {.name = "fa2 16",
       .order = Order::lanes,
       .block = 16,
       .base_2 = true,
       .crude_tanh = true,
       .sink = Sink::last,
       .drops_late = true},
      {.name = "fa2 64",
       .order = Order::reversed,
       .block = 64,
       .base_2 = true,
       .crude_exp = true,
       .scales_q = true,
       .divides_by_cap = true,
       .scales_before = true,
       .ds_from_rounded_p = true},
      {.name = "fa1 16",
       .block = 16,
       .renormalises = true,
       .crude_tanh = true,
       .sink = Sink::last,
       .d_by_key = true},
      {.name = "fa1 4",
       .order = Order::truncated,
       .block = 4,
       .renormalises = true,
       .base_2 = true,
       .adds_early = true},
      {.name = "split 4",
       .block = 4,
       .splits = 4,
       .scales_q = true,
       .sink = Sink::last,
       .drops_late = true,
       .d_by_key = true},
      {.name = "split 5",
       .order = Order::lanes,
       .block = 2,
       .splits = 5,
       .divides_merged = false,
       .base_2 = true,
       .sink = Sink::merged},
      {.name = "split 2",
       .block = 16,
       .splits = 2,
       .divides_merged = false,
       .scales_q = true,
       .sink = Sink::last},
      {.name = "split 3",
       .order = Order::truncated,
       .block = 8,
       .splits = 3,
       .base_2 = true,
       .crude_exp = true,
       .sink = Sink::merged,
       .scales_before = true},
      {.name = "tensor core",
       .order = Order::truncated,
       .block = 16,
       .base_2 = true,
       .crude_exp = true,
       .crude_tanh = true,
       .divides_by_cap = true},
  };
}

// Inputs that bring out different errors.
enum class Kind {
  normal,
  logits_10,
  logits_50,
  heavy,
  near_ties,
  ascending,
  zero_q,
  offset_v,
  huge,
  tiny,
  outliers
};
constexpr std::array kKinds = {Kind::normal,    Kind::logits_10, Kind::logits_50, Kind::heavy,
                               Kind::near_ties, Kind::ascending, Kind::zero_q,    Kind::offset_v,
                               Kind::huge,      Kind::tiny,      Kind::outliers};

Inputs make_inputs(const Problem& problem, Kind kind, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  const auto draw = [&](const Shape& shape, auto&& value) {
    Values result = zeros(shape);
    for (Index e = 0; e < element_count(shape); ++e) {
      result.data[static_cast<std::size_t>(e)] =
          round_to(problem.dtype, value(coordinates(shape, e)));
    }
    return result;
  };
  const auto plain = [&](const std::array<Index, 4>&) { return normal(random); };
  Inputs in = {.q = draw(problem.q_shape(), plain),
               .k = draw(problem.k_shape(), plain),
               .v = draw(problem.v_shape(), plain),
               .d_o = draw(problem.o_shape(), plain)};
  if (problem.bias_shape) {
    const double size = std::array{0.1, 1.0, 10.0}[random() % 3];
    in.bias = draw(*problem.bias_shape, [&](const auto& c) {
      return random() % 16 == 0 ? -std::numeric_limits<double>::infinity() : size * plain(c);
    });
  }
  const auto draw_as = [&](DType dtype, const Shape& shape, double size) {
    Values result = zeros(shape);
    for (double& value : result.data) value = round_to(dtype, size * normal(random));
    return result;
  };
  if (problem.slopes_shape) {
    in.slopes = draw_as(DType::f32, *problem.slopes_shape, std::array{0.3, 30.0}[random() % 2]);
  }
  if (problem.sink) {
    in.sink = draw_as(DType::f32, problem.sink_shape(), std::array{1.0, 30.0, 300.0}[random() % 3]);
  }
  // Large parts of scores that cancel each other, or rival a large sink.
  if (problem.bias_shape && random() % 2 == 0) {
    for (Index e = 0; e < element_count(*problem.bias_shape); ++e) {
      const auto [b, h, i, j] = coordinates(*problem.bias_shape, e);
      const Index distance = i + problem.key_len - problem.query_len - j;
      double& bias = in.bias.data[static_cast<std::size_t>(e)];
      if (problem.slopes_shape) bias += in.slopes.at(b, h, 0, 0) * double(std::abs(distance));
      if (problem.sink) bias += in.sink.at(0, h, 0, 0);
      bias = round_to(problem.dtype, bias);
    }
  }
  if (problem.d_lse) in.d_lse = draw_as(problem.lse_dtype(), problem.lse_shape(), 1);
  if (problem.dropout.mode != Dropout::Mode::none) {
    in.keep = {problem.keep_shape(), {}};
    for (Index e = 0; e < element_count(problem.keep_shape()); ++e) {
      in.keep.kept.push_back(double(random() % 1024) >=
                             1024 * std::min(problem.dropout.probability, 0.7));
    }
  }
  const auto spread = [&](double deviation) {
    const double size = std::sqrt(double(std::max<Index>(problem.head_dim, 1))) * problem.scale;
    in.q = draw(problem.q_shape(), [&](const auto& c) { return plain(c) * deviation / size; });
  };
  const double huge = problem.dtype == DType::f16 ? 1e2 : 1e15;
  switch (kind) {
    case Kind::normal:
      break;
    case Kind::logits_10:
      spread(10);
      break;
    case Kind::logits_50:
      spread(50);
      break;
    case Kind::heavy: {
      const auto heavy = [&](const auto& c) { return plain(c) / (0.05 + std::abs(plain(c))); };
      in.v = draw(problem.v_shape(), heavy);
      in.d_o = draw(problem.o_shape(), heavy);
      break;
    }
    case Kind::near_ties:
      in.k = draw(problem.k_shape(), [&](const auto& c) {
        return 1 + 0.25 * double(c[3] % 3) + 0x1p-6 * double(random() % 2);
      });
      break;
    case Kind::ascending:
      in.q = draw(problem.q_shape(), [&](const auto&) { return 1.0; });
      in.k = draw(problem.k_shape(),
                  [&](const auto& c) { return 0.1 * double(c[2]) + 0.01 * plain(c); });
      break;
    case Kind::zero_q:
      in.q = zeros(problem.q_shape());
      in.v = draw(problem.v_shape(), [&](const auto& c) { return c[2] % 2 ? -1000.0 : 1001.0; });
      break;
    case Kind::offset_v:
      in.v = draw(problem.v_shape(), [&](const auto& c) { return 100 + plain(c); });
      break;
    case Kind::huge:
      in.v = draw(problem.v_shape(), [&](const auto& c) { return huge * plain(c); });
      in.d_o = draw(problem.o_shape(), [&](const auto& c) { return huge * plain(c); });
      break;
    case Kind::tiny:
      in.v = draw(problem.v_shape(), [&](const auto& c) { return 1e-7 * plain(c); });
      in.d_o = draw(problem.o_shape(), [&](const auto& c) { return 1e-6 * plain(c); });
      in.q = draw(problem.q_shape(), [&](const auto& c) { return 1e-3 * plain(c); });
      break;
    case Kind::outliers:
      in.k = draw(problem.k_shape(),
                  [&](const auto& c) { return random() % 30 == 0 ? 10 * plain(c) : plain(c); });
      in.v = draw(problem.v_shape(),
                  [&](const auto& c) { return random() % 30 == 0 ? 100 * plain(c) : plain(c); });
      break;
  }
  return in;
}

Problem any_small_problem(DType dtype, std::mt19937_64& random) {
  const auto size = [&](Index most) {
    return static_cast<Index>(random() % std::uint64_t(most)) + 1;
  };
  const Index heads = size(2);
  Problem problem = {.dtype = dtype,
                     .query_heads = heads * size(2),
                     .key_heads = heads,
                     .query_len = size(12),
                     .key_len = size(40),
                     .head_dim = size(20),
                     .value_dim = size(8),
                     .scale = std::array{0.25, 0.3, 1.0}[random() % 3],
                     .backward = true};
  if (random() % 3 == 0) problem.mask = Mask::causal(Anchor::bottom_right);
  if (random() % 4 == 0) problem.mask = Mask::window(5, 7, Anchor::top_left, 3);
  if (random() % 3 == 0) return problem;
  const auto maybe = [&] { return random() % 3 == 0; };
  const auto one_or = [&](Index whole) { return random() % 2 == 0 ? 1 : whole; };
  if (maybe()) problem.softcap = std::array{0.7, 5.0, 50.0}[random() % 3];
  if (maybe()) {
    problem.bias_shape =
        Shape{1, one_or(problem.query_heads), one_or(problem.query_len), one_or(problem.key_len)};
  }
  if (maybe()) problem.slopes_shape = Shape{1, problem.query_heads, 1, 1};
  problem.sink = maybe();
  problem.d_lse = maybe();
  if (maybe()) {
    problem.dropout = {.mode = Dropout::Mode::given,
                       .probability = std::array{0.1, 0.5, 0.9, 0.999}[random() % 4]};
  }
  return problem;
}

// The largest share of the bound that the distance of any element takes.
double largest_ratio(const Expected& expected, DType dtype, const std::vector<double>& returned,
                     Rounding rounding) {
  double largest = 0;
  for (std::size_t e = 0; e < returned.size(); ++e) {
    const double value = returned[e];
    if (!(expected.bound[e] < std::numeric_limits<double>::infinity())) continue;
    if (std::isnan(value)) return std::numeric_limits<double>::infinity();
    if (value == expected.value[e]) continue;
    const Cell cell = rounding_cell(dtype, value, rounding);
    const long double exact = static_cast<long double>(expected.value[e]) +
                              (expected.rest.empty() ? 0 : expected.rest[e]);
    const long double distance = std::max({0.0L, cell.low - exact, exact - cell.high});
    if (distance == 0) continue;
    largest = std::max(largest, static_cast<double>(distance / expected.bound[e]));
  }
  return largest;
}

using Ratios = std::map<std::string, double>;  // by tensor

Ratios ratios(const Problem& problem, const Inputs& inputs, const Style& style,
              const Arithmetic& arithmetic) {
  const auto judge = [&](const auto& result) {
    const ForwardExpected forward = expect_forward(problem, inputs, arithmetic);
    const BackwardExpected backward = expect_backward(problem, inputs, arithmetic);
    const auto ratio = [&](const Expected& expected, const std::vector<double>& returned) {
      return largest_ratio(expected, problem.dtype, returned, arithmetic.output_rounding);
    };
    return Ratios{{"o", ratio(forward.o, result.o)},
                  {"lse", largest_ratio(forward.lse, problem.lse_dtype(), result.lse,
                                        arithmetic.output_rounding)},
                  {"dq", ratio(backward.dq, result.dq)},
                  {"dk", ratio(backward.dk, result.dk)},
                  {"dv", ratio(backward.dv, result.dv)},
                  {"dbias", ratio(backward.dbias, result.dbias)},
                  {"dsink", largest_ratio(backward.dsink, DType::f32, result.dsink,
                                          arithmetic.output_rounding)}};
  };
  if (problem.dtype == DType::f64) return judge(Machine<double>(problem, inputs, style).run());
  return judge(Machine<float>(problem, inputs, style).run());
}

// More of them, and others, on demand.
unsigned long from_environment(const char* name, unsigned long otherwise) {
  const char* text = std::getenv(name);
  return text ? std::stoul(text) : otherwise;
}
unsigned long seed() { return from_environment("ATTEST_SOUNDNESS_SEED", 7); }
int repeats() { return static_cast<int>(from_environment("ATTEST_SOUNDNESS_REPEATS", 60)); }

class SoundnessTest : public testing::TestWithParam<DType> {};

TEST_P(SoundnessTest, NoCorrectKernelExceedsItsBound) {
  const DType dtype = GetParam();
  std::mt19937_64 random(seed());
  Ratios largest;
  for (int repeat = 0; repeat < repeats(); ++repeat) {
    for (const Kind kind : kKinds) {
      const Problem problem = any_small_problem(dtype, random);
      const Inputs inputs = make_inputs(problem, kind, random);
      const std::vector<Style> all = styles();
      const Style& style = all[random() % all.size()];
      for (const Arithmetic& arithmetic : {declared(style, dtype), loosest(dtype)}) {
        for (const auto& [tensor, ratio] : ratios(problem, inputs, style, arithmetic)) {
          EXPECT_LE(ratio, 1) << tensor << " of \"" << style.name << "\", kind " << int(kind)
                              << ", repeat " << repeat << ": " << to_string(problem);
          largest[tensor] = std::max(largest[tensor], ratio);
        }
      }
    }
  }
  for (const auto& [tensor, ratio] : largest) {
    if (dtype != DType::f64 || tensor != "dsink") {  // f64 hardly errs in the f32 of dSink
      EXPECT_GT(ratio, 0) << tensor;
    }
    RecordProperty(tensor, std::to_string(ratio));
    std::printf("%-4s %-4s largest ratio %.3g\n", std::string(name(dtype)).c_str(), tensor.c_str(),
                ratio);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, SoundnessTest, testing::ValuesIn(kDTypes),
                         [](const auto& format) { return std::string(name(format.param)); });

struct Planted {
  Fault fault;
  std::string tensor;  // where it shows
  Kind kind = Kind::normal;
};

class FaultTest : public testing::TestWithParam<DType> {};

void expect_caught(const Problem& problem, const Planted& planted) {
  std::mt19937_64 random(11);
  const Inputs inputs = make_inputs(problem, planted.kind, random);
  Style style = {.name = "fa2 8", .block = 8, .base_2 = true};
  const Arithmetic arithmetic = declared(style, problem.dtype);
  EXPECT_LE(ratios(problem, inputs, style, arithmetic)[planted.tensor], 1);
  style.fault = planted.fault;
  EXPECT_GT(ratios(problem, inputs, style, arithmetic)[planted.tensor], 1)
      << planted.tensor << ", fault " << int(planted.fault);
  EXPECT_GT(ratios(problem, inputs, style, loosest(problem.dtype))[planted.tensor], 1)
      << planted.tensor << " judged loosely, fault " << int(planted.fault);
}

TEST_P(FaultTest, EveryFaultExceedsTheBound) {
  Problem problem = {.dtype = GetParam(),
                     .query_len = 40,
                     .key_len = 40,
                     .head_dim = 16,
                     .value_dim = 8,
                     .scale = 0.25,
                     .mask = Mask::causal(Anchor::bottom_right),
                     .backward = true};
  for (const Planted& planted : {Planted{Fault::drops_last_key, "o"},
                                 {Fault::drops_last_key, "lse"},
                                 {Fault::drops_last_key, "dv"},
                                 {Fault::squares_scale, "o"},
                                 {Fault::squares_scale, "dq"},
                                 {Fault::squares_scale, "dk"},
                                 {Fault::shifts_mask, "o"},
                                 {Fault::lse_base_2, "lse"},
                                 {Fault::skips_rescale, "o", Kind::ascending},
                                 {Fault::skips_rescale, "lse", Kind::ascending}}) {
    expect_caught(problem, planted);
  }
  problem.softcap = 5;
  problem.bias_shape = {1, 1, 1, problem.key_len};
  problem.slopes_shape = {1, 1, 1, 1};
  problem.sink = problem.d_lse = true;
  problem.dropout = {.mode = Dropout::Mode::given, .probability = 0.25};
  for (const Planted& planted : {Planted{Fault::caps_bias, "o"},
                                 {Fault::keeps_slope, "dq"},
                                 {Fault::keeps_slope, "dk"},
                                 {Fault::scales_bias, "lse"},
                                 {Fault::turns_slant, "lse"},
                                 {Fault::scales_sink, "lse"},
                                 {Fault::shifts_keep, "o"},
                                 {Fault::shifts_keep, "dv"},
                                 {Fault::forgets_dlse, "dq"},
                                 {Fault::forgets_dlse, "dbias"},
                                 {Fault::forgets_dlse, "dsink"},
                                 {Fault::forgets_rows, "dbias"},
                                 {Fault::turns_dsink, "dsink"}}) {
    expect_caught(problem, planted);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, FaultTest, testing::ValuesIn(kDTypes),
                         [](const auto& format) { return std::string(name(format.param)); });

}  // namespace
}  // namespace attest
