// FlashAttention-2 over the tile engine, for one head of f32: what the engine can reach, without
// the features of the bundled kernel.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>

#include "impl/engine/engine.h"

namespace attest {

// Numbers that begin on a cache line, each 0.
class Numbers {
 public:
  explicit Numbers(std::int64_t count)
      : data_(static_cast<float*>(
            std::aligned_alloc(64, (static_cast<std::size_t>(count) * 4 + 64) / 64 * 64))) {
    std::fill_n(data_.get(), count, 0.0f);
  }
  operator float*() { return data_.get(); }
  operator const float*() const { return data_.get(); }

 private:
  struct Free {
    void operator()(float* data) const { std::free(data); }
  };
  std::unique_ptr<float, Free> data_;
};

class Prototype {
 public:
  using Index = std::int64_t;
  using Tile = impl::Tile<float>;
  using Panels = impl::Panels<float>;

  struct Sizes {
    Index length;  // of queries and keys
    Index dim;     // channels of Q, K, V
    bool causal;
    Index query_block, key_block;
  };

  Prototype(const impl::Engine<float>& engine, const Sizes& sizes)
      : engine_(engine),
        z_(sizes),
        width_(engine.padded(z_.dim)),
        stride_(engine.padded(z_.key_block) + 16),
        k_transposed_(engine.padded(z_.length) * z_.dim),
        v_transposed_(engine.padded(z_.length) * z_.dim),
        q_(z_.length * width_),
        k_(z_.length * width_),
        v_(z_.length * width_),
        d_o_(z_.length * width_),
        s_(z_.query_block * stride_),
        dp_(z_.query_block * stride_),
        max_(z_.query_block),
        sum_(z_.query_block),
        o_(z_.query_block * width_),
        delta_(z_.length),
        dq_(z_.length * width_),
        dk_(z_.key_block * width_),
        dv_(z_.key_block * width_) {}

  // lse has one number a row; all others are [length, dim].
  void forward(const float* q, const float* k, const float* v, float* o, float* lse);
  void backward(const float* q, const float* k, const float* v, const float* o, const float* lse,
                const float* d_o, float* dq, float* dk, float* dv);

 private:
  // A block of the causal triangle is cut into slices of as many rows, each of which stops at its
  // own last key.
  static constexpr Index kSlice = 24;

  static bool is_power_of_two(float x) {
    int exponent;
    return std::frexp(x, &exponent) == 0.5f;
  }

  impl::Stored stored(const float* data) const {
    return {data, ATTEST_F32, z_.length, z_.dim, z_.dim, 1};
  }
  impl::StoredResult result(float* data, Index rows) const {
    return {data, ATTEST_F32, rows, z_.dim, z_.dim, 1};
  }
  Tile rows_of(const float* data, Index begin, Index rows) const {
    return {const_cast<float*>(data) + begin * z_.dim, rows, z_.dim, z_.dim};
  }
  // Rows from `key` on, of panels over keys and of panels over channels.
  Panels keys_from(const Numbers& transposed, Index key) const {
    return {transposed + key * z_.dim, z_.dim};
  }
  Panels rows_from(const Numbers& panels, Index row) const {
    return Panels{panels, z_.length}.from_row(row, engine_.panel);
  }

  // visit(row, rows, keys) for the slices of the block that see any key; `row` counts from `begin`.
  template <class Visit>
  void for_each_slice(Index begin, Index rows, Index key, Index keys, const Visit& visit) const {
    if (!z_.causal || key + keys <= begin + 1) return visit(0, rows, keys);
    for (Index row = 0; row < rows; row += kSlice) {
      const Index slice = std::min(kSlice, rows - row);
      const Index seen = std::min(keys, begin + row + slice - key);
      if (seen > 0) visit(row, slice, seen);
    }
  }

  // Hides the keys after each row's own.
  void hide(const Tile& s, Index begin, Index key) const {
    if (!z_.causal) return;
    for (Index i = 0; i < s.rows; ++i) {
      const Index seen = std::clamp<Index>(begin + i + 1 - key, 0, s.columns);
      std::fill(s.row(i) + seen, s.row(i) + s.columns, -std::numeric_limits<float>::infinity());
    }
  }

  const impl::Engine<float>& engine_;
  Sizes z_;
  Index width_;  // of a row of channels
  Index
      stride_;  // of a row of scores: no power of two, lest all rows share a few lines of the cache
  Numbers k_transposed_, v_transposed_;  // panels over keys
  Numbers q_, k_, v_, d_o_;              // panels over channels
  Numbers s_, dp_;                       // P and dS in the end
  Numbers max_, sum_, o_, delta_;
  Numbers dq_, dk_, dv_;  // sums
};

inline void Prototype::forward(const float* q, const float* k, const float* v, float* o,
                               float* lse) {
  const float scale = 1 / std::sqrt(static_cast<float>(z_.dim));
  const float packed_scale = is_power_of_two(scale) ? scale : 1;
  engine_.pack_transposed(stored(k), packed_scale, k_transposed_);
  engine_.pack(stored(v), v_);
  for (Index begin = 0; begin < z_.length; begin += z_.query_block) {
    const Index rows = std::min(z_.query_block, z_.length - begin);
    std::fill_n(static_cast<float*>(o_), rows * width_, 0.0f);
    std::fill_n(static_cast<float*>(sum_), rows, 0.0f);
    std::fill_n(static_cast<float*>(max_), rows, -std::numeric_limits<float>::infinity());
    const Index last = z_.causal ? begin + rows : z_.length;
    for (Index key = 0; key < last; key += z_.key_block) {
      const Index count = std::min(z_.key_block, last - key);
      for_each_slice(begin, rows, key, count, [&](Index row, Index slice, Index seen) {
        const Tile s = {s_, slice, seen, stride_};
        const Tile sum = {o_ + row * width_, slice, z_.dim, width_};
        engine_.multiply(rows_of(q, begin + row, slice), keys_from(k_transposed_, key),
                         scale / packed_scale, s);
        if (key + seen > begin + row + 1) hide(s, begin + row, key);
        engine_.absorb(s, {max_ + row, sum_ + row, sum});
        engine_.add_product(s, rows_from(v_, key), false, sum);
      });
    }
    for (Index i = 0; i < rows; ++i) lse[begin + i] = max_[i] + std::log(sum_[i]);
    engine_.store({o_, rows, z_.dim, width_}, 1, sum_, result(o + begin * z_.dim, rows));
  }
}

inline void Prototype::backward(const float* q, const float* k, const float* v, const float* o,
                                const float* lse, const float* d_o, float* dq, float* dk,
                                float* dv) {
  const float scale = 1 / std::sqrt(static_cast<float>(z_.dim));
  const float packed_scale = is_power_of_two(scale) ? scale : 1;
  engine_.pack_transposed(stored(k), packed_scale, k_transposed_);
  engine_.pack_transposed(stored(v), 1, v_transposed_);
  engine_.pack(stored(k), k_);
  engine_.pack(stored(q), q_);
  engine_.pack(stored(d_o), d_o_);
  std::fill_n(static_cast<float*>(dq_), z_.length * width_, 0.0f);
  for (Index i = 0; i < z_.length; ++i) {
    delta_[i] = 0;
    for (Index c = 0; c < z_.dim; ++c) delta_[i] += o[i * z_.dim + c] * d_o[i * z_.dim + c];
  }
  for (Index key = 0; key < z_.length; key += z_.key_block) {
    const Index count = std::min(z_.key_block, z_.length - key);
    std::fill_n(static_cast<float*>(dk_), count * width_, 0.0f);
    std::fill_n(static_cast<float*>(dv_), count * width_, 0.0f);
    const Index first = z_.causal ? key / z_.query_block * z_.query_block : 0;
    for (Index begin = first; begin < z_.length; begin += z_.query_block) {
      const Index rows = std::min(z_.query_block, z_.length - begin);
      for_each_slice(begin, rows, key, count, [&](Index row, Index slice, Index seen) {
        const Index i = begin + row;
        const Tile s = {s_, slice, seen, stride_}, dp = {dp_, slice, seen, stride_};
        engine_.multiply(rows_of(q, i, slice), keys_from(k_transposed_, key), scale / packed_scale,
                         s);
        if (key + seen > i + 1) hide(s, i, key);
        engine_.multiply(rows_of(d_o, i, slice), keys_from(v_transposed_, key), 1, dp);
        engine_.differentiate(s, dp, lse + i, delta_ + i);
        engine_.add_transposed_product(s, rows_from(d_o_, i), false, {dv_, seen, z_.dim, width_});
        engine_.add_transposed_product(dp, rows_from(q_, i), false, {dk_, seen, z_.dim, width_});
        engine_.add_product(dp, rows_from(k_, key), false,
                            {dq_ + i * width_, slice, z_.dim, width_});
      });
    }
    engine_.store({dk_, count, z_.dim, width_}, scale, nullptr, result(dk + key * z_.dim, count));
    engine_.store({dv_, count, z_.dim, width_}, 1, nullptr, result(dv + key * z_.dim, count));
  }
  engine_.store({dq_, z_.length, z_.dim, width_}, scale, nullptr, result(dq, z_.length));
}

}  // namespace attest
