// From scale q.k to the final score of one head: s = cap(scale q.k) + bias - slope * distance
// (SCORE-2 to SCORE-4, MASK-14), as functions over a tile of S whose rows lie `stride` apart.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "impl/call.h"
#include "impl/elements.h"
#include "impl/engine/engine.h"
#include "impl/tile.h"

namespace attest::impl {

// s = c tanh(s / c). Where `slope` is given it receives the derivative, 1 - tanh^2 (GRAD-6).
//
// The quotient and the product are made in double, for c need not be a number of R.
template <class R>
void cap(double c, const Block& block, std::int64_t stride, R* s, R* slope) {
  for (std::int64_t i = 0; i < block.queries(); ++i) {
    for (std::int64_t n = i * stride; n < i * stride + block.keys(); ++n) {
      const R t = std::tanh(static_cast<R>(s[n] / c));
      s[n] = static_cast<R>(c * t);
      if (slope) slope[n] = 1 - t * t;
    }
  }
}

// s += bias. A bias of -inf hides its key, whatever the score is: NaN from a key that nobody sees
// must not pass.
template <class T, class R = Real<T>>
void add_bias(const Plane<const T>& bias, const Block& block, std::int64_t stride, R* s) {
  constexpr R kHidden = -std::numeric_limits<R>::infinity();
  for (std::int64_t i = 0; i < block.queries(); ++i) {
    for (std::int64_t j = 0; j < block.keys(); ++j) {
      const R value = widen(bias.at(block.query_begin + i, block.key_begin + j));
      R& score = s[i * stride + j];
      score = value == kHidden ? kHidden : score + value;
    }
  }
}

// s -= slope |i + diagonal - j|.
template <class R>
void add_alibi(double slope, std::int64_t diagonal, const Block& block, std::int64_t stride, R* s) {
  for (std::int64_t i = 0; i < block.queries(); ++i) {
    const std::int64_t ahead = block.key_begin - (block.query_begin + i + diagonal);
    for (std::int64_t j = 0; j < block.keys(); ++j) {
      R& score = s[i * stride + j];
      score = static_cast<R>(score - slope * static_cast<double>(std::abs(ahead + j)));
    }
  }
}

// dS with respect to scale q.k from dS with respect to the capped score. What is hidden stays 0:
// its score, and with it the slope, may be NaN.
template <class R>
void through_cap(const Block& block, std::int64_t stride, const R* slope, R* ds) {
  for (std::int64_t i = 0; i < block.queries(); ++i) {
    for (std::int64_t n = i * stride; n < i * stride + block.keys(); ++n) {
      if (ds[n] != 0) ds[n] *= slope[n];
    }
  }
}

// All that a problem asks for, in the order of the standard.
template <class T>
class HeadScores {
 public:
  using R = Real<T>;

  // An engine, where given, makes the cap.
  HeadScores(const Call& call, std::int64_t batch, std::int64_t head,
             const Engine<R>* engine = nullptr)
      : call_(call), engine_(engine), bias_(call.inputs.bias, batch, head) {
    const Lengths& lengths = call.lengths_of(batch);
    diagonal_ = lengths.key - lengths.query;
    if (call.problem.has_alibi) {
      slope_ = Plane<const float>(call.inputs.alibi_slopes, batch, head).at(0, 0);
    }
  }

  // Enters with scale q.k in s. `cap_slope`, where given and where there is a softcap, receives the
  // derivative of the cap.
  void finish(const Block& block, std::int64_t stride, R* s, R* cap_slope = nullptr) const {
    if (call_.problem.softcap != 0) cap_scores(block, stride, s, cap_slope);
    if (call_.problem.has_bias) add_bias<T>(bias_, block, stride, s);
    if (call_.problem.has_alibi) add_alibi(slope_, diagonal_, block, stride, s);
  }

 private:
  // Engines know a limit as a number of R only.
  void cap_scores(const Block& block, std::int64_t stride, R* s, R* slope) const {
    const double c = call_.problem.softcap;
    const R limit = static_cast<R>(c);
    if (!engine_ || static_cast<double>(limit) != c) return cap(c, block, stride, s, slope);
    const std::int64_t rows = block.queries(), keys = block.keys();
    engine_->cap({s, rows, keys, stride}, limit, {slope, rows, keys, stride});
  }

  const Call& call_;
  const Engine<R>* engine_;
  Plane<const T> bias_;  // its positions are queries, its channels keys
  double slope_ = 0;
  std::int64_t diagonal_;
};

// A hidden element has the score -inf, and so the weight 0. Of most rows only an end is hidden.
template <class R>
void hide(const Block& block, const std::uint8_t* visible, std::int64_t visible_stride,
          std::int64_t stride, R* s) {
  for (std::int64_t i = 0; i < block.queries(); ++i) {
    const std::uint8_t* __restrict seen = visible + i * visible_stride;
    R* __restrict row = s + i * stride;
    const void* const hidden = std::memchr(seen, 0, static_cast<std::size_t>(block.keys()));
    if (!hidden) continue;
    for (std::int64_t j = static_cast<const std::uint8_t*>(hidden) - seen; j < block.keys(); ++j) {
      row[j] = seen[j] ? row[j] : -std::numeric_limits<R>::infinity();
    }
  }
}

}  // namespace attest::impl
