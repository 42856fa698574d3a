// A row of the forward pass, from its scores: the online softmax over blocks of keys, the sink, the
// parts of the keys and their merge.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "spec/inputs.h"
#include "tests/bounds/kernel_numbers.h"

namespace attest::bounds {

template <class T>
class RowPass : protected Numbers<T> {
 protected:
  using Base = Numbers<T>;
  using Base::fused_;
  using Base::kInfinity;
  using Base::log_of;
  using Base::narrow_p;
  using Base::natural;
  using Base::p_;
  using Base::power;
  using Base::rescale;
  using Base::round_operands;
  using Base::style_;
  using Base::sum;
  using Base::to_natural_;
  using Base::to_units_;
  using Base::unit_;
  using Base::weight;
  using typename Base::Vector;

  RowPass(const Problem& problem, const Inputs& inputs, const Style& style)
      : Base(problem, style), in_(inputs) {
    if (problem.dropout.mode != Dropout::Mode::none) {
      kept_share_ = static_cast<T>(1 / (1 - problem.dropout.probability));
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
    if (style_.sums_narrow_p && p_.dtype != p_.lse_dtype()) {  // where `p` can be declared so
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

  const Inputs& in_;
  T kept_share_ = 1;
};

}  // namespace attest::bounds
