// Scores: scale, softcap, bias, ALiBi, sinks.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "harness/diagnosis/setting.h"

namespace attest {
namespace {

using std::numbers::ln2;

double rounded_to_bf16(double x) { return round_to(DType::bf16, x); }

double root(Index size) { return std::sqrt(static_cast<double>(size)); }

Mistake scaled(std::string name, std::function<double(const Problem&)> scale) {
  return {std::move(name), "SCORE-1", [scale = std::move(scale)](Setting& s) {
            const double before = std::exchange(s.problem.scale, scale(s.problem));
            return std::isfinite(s.problem.scale) && s.problem.scale != before;
          }};
}

using Formula = std::function<double(const Setting&, const Position&, const Score&)>;

// Another formula of a score, for problems that have what it is about.
Mistake scored(std::string name, std::string clause, bool (*applies)(const Problem&),
               Formula formula) {
  return {std::move(name), std::move(clause), [applies, formula = std::move(formula)](Setting& s) {
            if (!applies(s.problem)) return false;
            const Setting before = s;
            return set_scores(s, [&](const Position& at, const Score& score) {
              return formula(before, at, score);
            });
          }};
}

bool has_cap(const Problem& p) { return p.softcap > 0; }
bool caps_and_adds(const Problem& p) { return has_cap(p) && (has_bias(p) || has_alibi(p)); }

double cap(double x, double c) { return c > 0 ? c * std::tanh(x / c) : x; }

std::vector<Mistake> scales() {
  return {
      scaled("the scale twice", [](const Problem& p) { return p.scale * p.scale; }),
      scaled("no scale", [](const Problem&) { return 1.0; }),
      scaled("the scale 1/sqrt(D)", [](const Problem& p) { return 1 / root(p.head_dim); }),
      scaled("the scale 1/sqrt(Dv)", [](const Problem& p) { return 1 / root(p.value_dim); }),
      scaled("the scale 1/D", [](const Problem& p) { return 1 / static_cast<double>(p.head_dim); }),
      scaled("a scale of 0", [](const Problem&) { return 0.0; }),
      scaled("the scale without its sign", [](const Problem& p) { return std::abs(p.scale); }),
      scaled("the scale rounded to bf16",
             [](const Problem& p) { return rounded_to_bf16(p.scale); }),
      scaled("the scale cut to bf16",
             [](const Problem& p) {
               const double up = rounded_to_bf16(p.scale);
               return std::abs(up) <= std::abs(p.scale)
                          ? up
                          : std::copysign(std::abs(up) - power_of_two(exponent_of(up) - 8), up);
             }),
      scaled("the root of the scale", [](const Problem& p) { return std::sqrt(p.scale); }),
      scaled("exp2 of scores that are not in base 2",
             [](const Problem& p) { return p.scale * ln2; }),
      scaled("exp of scores in base 2", [](const Problem& p) { return p.scale / ln2; }),
  };
}

// What is hidden is -inf when the softcap meets it: -c.
Mistake after_mask(std::string name, std::function<bool(const Problem&)> bites,
                   std::function<double(const Problem&, const Score&)> score) {
  return {std::move(name), "SCORE-2",
          [bites = std::move(bites), score = std::move(score)](Setting& s) {
            if (!bites(s.problem)) return false;
            const Problem before = s.problem;
            set_visible(s, [](const Position&) { return true; });
            return set_scores(s, [&](const Position& at, const Score& of) {
              return visible(before, at) ? score(before, of) : -before.softcap;
            });
          }};
}

std::vector<Mistake> caps() {
  return {
      {"no softcap", "SCORE-2", [](Setting& s) { return std::exchange(s.problem.softcap, 0) > 0; }},
      scored("scores clipped at the cap", "SCORE-2", has_cap,
             [](const Setting& s, const Position&, const Score& score) {
               const double c = s.problem.softcap;
               return std::clamp(s.problem.scale * score.product, -c, c) + score.bias + score.alibi;
             }),
      scored("tanh(x/c) without the factor c", "SCORE-2", has_cap,
             [](const Setting& s, const Position&, const Score& score) {
               return score.capped / s.problem.softcap + score.bias + score.alibi;
             }),
      scored("the softcap before the scale", "SCORE-2", has_cap,
             [](const Setting& s, const Position&, const Score& score) {
               return s.problem.scale * cap(score.product, s.problem.softcap) + score.bias +
                      score.alibi;
             }),
      scored("the softcap after the bias", "SCORE-2", caps_and_adds,
             [](const Setting& s, const Position&, const Score& score) {
               const double c = s.problem.softcap;
               return cap(s.problem.scale * score.product + score.bias, c) + score.alibi;
             }),
      scored("the softcap after bias and ALiBi", "SCORE-2", caps_and_adds,
             [](const Setting& s, const Position&, const Score& score) {
               const double c = s.problem.softcap;
               return cap(s.problem.scale * score.product + score.bias + score.alibi, c);
             }),
      after_mask("the softcap after bias, ALiBi and mask", caps_and_adds,
                 [](const Problem& p, const Score& score) {
                   return cap(p.scale * score.product + score.bias + score.alibi, p.softcap);
                 }),
      {"keys that fill up a tile of 64, at scores of -softcap", "SCORE-2",
       [](Setting& s) {
         Problem& p = s.problem;
         const Index more = (64 - p.key_len % 64) % 64;
         if (!has_cap(p) || p.sink || more == 0) return false;
         p.sink = true;  // so many keys of V = 0
         s.inputs.sink = zeros(p.sink_shape());
         for (double& logit : s.inputs.sink.data) {
           logit = std::log(static_cast<double>(more)) - p.softcap;
         }
         return true;
       }},
      after_mask("the softcap after the mask", has_cap,
                 [](const Problem&, const Score& score) { return score.whole(); }),
  };
}

// The bias of another place, as far as there is one.
Mistake bias_of(std::string name, std::function<void(const Problem&, Position&)> move) {
  return scored(
      std::move(name), "SCORE-3", has_bias,
      [move = std::move(move)](const Setting& s, const Position& at, const Score& score) {
        Position other = at;
        move(s.problem, other);
        const Shape& shape = *s.problem.bias_shape;
        const auto inside = [](Index size, Index place) {
          return size == 1 || (place >= 0 && place < size);
        };
        const bool there = inside(shape[0], other.batch) && inside(shape[1], other.head) &&
                           inside(shape[2], other.query) && inside(shape[3], other.key);
        const double bias = there ? s.inputs.bias.data[broadcast_index(shape, other)] : score.bias;
        return score.capped + bias + score.alibi;
      });
}

// A bias that is the same along an axis, read as if it were not: so many elements further. Beyond
// its end, the last.
Mistake bias_read(std::string name, Axis only,
                  std::function<Index(const Problem&, const Position&)> further) {
  return scored(std::move(name), "SCORE-3", has_bias,
                [only, further = std::move(further)](const Setting& s, const Position& at,
                                                     const Score& score) {
                  const Shape& shape = *s.problem.bias_shape;
                  if (shape[only] != 1) return score.whole();
                  const auto& data = s.inputs.bias.data;
                  const Index element =
                      static_cast<Index>(broadcast_index(shape, at)) + further(s.problem, at);
                  const Index last = static_cast<Index>(data.size()) - 1;
                  const double bias = data[static_cast<std::size_t>(std::min(element, last))];
                  return score.capped + bias + score.alibi;
                });
}

Mistake of_clause(std::string clause, Mistake mistake) {
  mistake.clause = std::move(clause);
  return mistake;
}

std::vector<Mistake> biases() {
  const auto bias_as = [](std::string name, double (*change)(const Problem&, double)) {
    return scored(std::move(name), "SCORE-3", has_bias,
                  [change](const Setting& s, const Position&, const Score& score) {
                    return score.capped + change(s.problem, score.bias) + score.alibi;
                  });
  };
  return {
      {"no bias", "SCORE-3",
       [](Setting& s) {
         s.inputs.bias = {};
         return std::exchange(s.problem.bias_shape, std::nullopt).has_value();
       }},
      bias_as("the bias times the scale",
              [](const Problem& p, double bias) { return p.scale * bias; }),
      bias_as("the bias over the scale",
              [](const Problem& p, double bias) { return bias / p.scale; }),
      bias_as("the bias with the other sign",
              [](const Problem&, double bias) { return std::isinf(bias) ? bias : -bias; }),
      bias_as("the bias times ln 2", [](const Problem&, double bias) { return ln2 * bias; }),
      bias_as("the bias over ln 2", [](const Problem&, double bias) { return bias / ln2; }),
      bias_as("a boolean in place of the bias",
              [](const Problem&, double bias) { return bias != 0 ? 0.0 : -kInfinite; }),
      bias_as("the bias taken for a boolean, true being masked",
              [](const Problem&, double bias) { return bias == 0 ? 0.0 : -kInfinite; }),
      of_clause("MASK-14", bias_as("-10000 for a bias of -inf",
                                   [](const Problem&, double bias) {
                                     return std::isinf(bias) ? -10000 : bias;
                                   })),
  };
}

std::vector<Mistake> misread_biases() {
  return {
      bias_of("the bias of the first query", [](const Problem&, Position& p) { p.query = 0; }),
      bias_of("the bias of the first key", [](const Problem&, Position& p) { p.key = 0; }),
      bias_of("the bias of the first head", [](const Problem&, Position& p) { p.head = 0; }),
      bias_of("the bias of the first batch element",
              [](const Problem&, Position& p) { p.batch = 0; }),
      bias_of("the bias of the next query", [](const Problem&, Position& p) { ++p.query; }),
      bias_of("the bias of the query before", [](const Problem&, Position& p) { --p.query; }),
      bias_of("the bias of the next key", [](const Problem&, Position& p) { ++p.key; }),
      bias_of("the bias of the key before", [](const Problem&, Position& p) { --p.key; }),
      bias_of("the bias of the next head", [](const Problem&, Position& p) { ++p.head; }),
      bias_of("the bias of the next batch element", [](const Problem&, Position& p) { ++p.batch; }),
      bias_of("the bias with queries and keys exchanged",
              [](const Problem&, Position& p) { std::swap(p.query, p.key); }),
      bias_of("the bias of the first 32 keys again",
              [](const Problem&, Position& p) { p.key %= 32; }),
      bias_of("the bias of the first 64 keys again",
              [](const Problem&, Position& p) { p.key %= 64; }),
      bias_of("the bias of the first 128 keys again",
              [](const Problem&, Position& p) { p.key %= 128; }),
      bias_of("the bias of the first 64 heads again",
              [](const Problem&, Position& p) { p.head %= 64; }),
      bias_read("a bias of one row read along the queries", kPosition,
                [](const Problem& p, const Position& at) {
                  return at.query - broadcast((*p.bias_shape)[kChannel], at.key);
                }),
      bias_read("a bias of one column read along the keys", kChannel,
                [](const Problem&, const Position& at) { return at.key; }),
      bias_read("a bias that batch elements share read as if each had its own", kBatch,
                [](const Problem& p, const Position& at) {
                  return at.batch * element_count(*p.bias_shape);
                }),
      bias_read("a bias that heads share read as if each had its own", kHead,
                [](const Problem& p, const Position& at) {
                  const Shape& shape = *p.bias_shape;
                  const Index before = shape[kBatch] > 1 ? at.batch * (p.query_heads - 1) : 0;
                  return (before + at.head) * shape[kPosition] * shape[kChannel];
                }),
  };
}

// ALiBi whose distance, or whose slope, is another.
Mistake alibi(std::string name, std::function<double(const Setting&, const Position&)> term) {
  return scored(std::move(name), "SCORE-4", has_alibi,
                [term = std::move(term)](const Setting& s, const Position& at, const Score& score) {
                  return score.capped + score.bias + term(s, at);
                });
}

double slope(const Setting& s, const Position& at) {
  return s.inputs.slopes.data[broadcast_index(*s.problem.slopes_shape, at)];
}
Index corner(const Setting& s, const Position& at) {
  const Lengths lens = s.problem.lengths(at.batch);
  return lens.key - lens.query;
}
double ahead(const Position& at, Index diagonal) {
  return static_cast<double>(at.key - at.query - diagonal);
}

std::vector<Mistake> alibis() {
  const auto term = [=](std::function<double(const Setting&, const Position&, double)> change) {
    return [=](const Setting& s, const Position& at) {
      return change(s, at, -slope(s, at) * std::abs(ahead(at, corner(s, at))));
    };
  };
  const auto with_corner = [=](std::function<Index(const Setting&, const Position&)> other) {
    return [=](const Setting& s, const Position& at) {
      return -slope(s, at) * std::abs(ahead(at, other(s, at)));
    };
  };
  const auto with_head = [=](std::function<Index(const Problem&, Index)> other) {
    return [=](const Setting& s, const Position& at) {
      Position of = at;
      of.head = other(s.problem, at.head) % s.problem.query_heads;
      return -slope(s, of) * std::abs(ahead(at, corner(s, at)));
    };
  };
  return {
      alibi("no ALiBi", term([](const Setting&, const Position&, double) { return 0.0; })),
      alibi("ALiBi with the other sign",
            term([](const Setting&, const Position&, double bias) { return -bias; })),
      alibi("ALiBi times the scale", term([](const Setting& s, const Position&, double bias) {
              return s.problem.scale * bias;
            })),
      alibi("ALiBi counted from the top left",
            with_corner([](const Setting&, const Position&) { return Index(0); })),
      alibi("ALiBi counted from one key further",
            with_corner([](const Setting& s, const Position& at) { return corner(s, at) + 1; })),
      alibi("ALiBi counted from one key before",
            with_corner([](const Setting& s, const Position& at) { return corner(s, at) - 1; })),
      alibi("ALiBi counted from the diagonal of the longest lengths",
            with_corner([](const Setting& s, const Position&) {
              return s.problem.key_len - s.problem.query_len;
            })),
      alibi("ALiBi with the slope of the next head",
            with_head([](const Problem&, Index h) { return h + 1; })),
      alibi("ALiBi with the slope of the head before",
            with_head([](const Problem& p, Index h) { return h + p.query_heads - 1; })),
      alibi("ALiBi with the slope of the key head",
            with_head([](const Problem& p, Index h) { return h / p.group_size(); })),
      alibi("ALiBi with the slopes of the first 64 heads again",
            with_head([](const Problem&, Index h) { return h % 64; })),
  };
}

// The same where a slope or a position is another.
std::vector<Mistake> alibis_misread() {
  return {
      alibi("ALiBi with slopes rounded to bf16",
            [](const Setting& s, const Position& at) {
              return -rounded_to_bf16(slope(s, at)) * std::abs(ahead(at, corner(s, at)));
            }),
      alibi("ALiBi with rows counted from their tile of 64",
            [](const Setting& s, const Position& at) {
              Position of = at;
              of.query %= 64;
              return -slope(s, at) * std::abs(ahead(of, corner(s, at)));
            }),
      alibi("ALiBi with keys counted from their part of 128",
            [](const Setting& s, const Position& at) {
              Position of = at;
              of.key %= 128;
              return -slope(s, at) * std::abs(ahead(of, corner(s, at)));
            }),
      alibi("ALiBi with the standard slopes, whatever is given",
            [](const Setting& s, const Position& at) {
              const double power = -8.0 * static_cast<double>(at.head + 1) /
                                   static_cast<double>(s.problem.query_heads);
              return -std::exp2(power) * std::abs(ahead(at, corner(s, at)));
            }),
      alibi("ALiBi with the sign of the distance",
            [](const Setting& s, const Position& at) {
              return slope(s, at) * ahead(at, corner(s, at));
            }),
  };
}

Mistake sink(std::string name, std::function<double(const Setting&, Index)> logit) {
  return {std::move(name), "SINK-1", [logit = std::move(logit)](Setting& s) {
            if (!s.problem.sink) return false;
            const Setting before = s;
            for (Index h = 0; h < s.problem.query_heads; ++h) {
              s.inputs.sink.data[static_cast<std::size_t>(h)] = logit(before, h);
            }
            return true;
          }};
}

// The sink once for each part of the keys: how many there are is the kernel's, and the lengths'.
std::vector<Mistake> sinks_of_parts() {
  std::vector<Mistake> all;
  for (const int parts : {2, 3, 4, 5, 6, 7, 8, 16}) {
    all.push_back(sink("the sink in every part", [parts](const Setting& s, Index h) {
      return s.inputs.sink.data[static_cast<std::size_t>(h)] + std::log(parts);
    }));
    all.back().yields_to = {"the sink twice"};
  }
  return all;
}

std::vector<Mistake> sinks() {
  const auto of = [](const Setting& s, Index h) {
    return s.inputs.sink.data[static_cast<std::size_t>(h % s.problem.query_heads)];
  };
  return {
      {"no sink", "SINK-1",
       [](Setting& s) {
         s.inputs.sink = {};
         return std::exchange(s.problem.sink, false);
       }},
      sink("the sink twice", [=](const Setting& s, Index h) { return of(s, h) + ln2; }),
      sink("the sink times the scale",
           [=](const Setting& s, Index h) { return s.problem.scale * of(s, h); }),
      sink("the sink of the key head",
           [=](const Setting& s, Index h) { return of(s, h / s.problem.group_size()); }),
      sink("the sink of the next head", [=](const Setting& s, Index h) { return of(s, h + 1); }),
      sink("the sink of the first head", [=](const Setting& s, Index) { return of(s, 0); }),
      sink("the sinks of the first 64 heads again",
           [=](const Setting& s, Index h) { return of(s, h % 64); }),
      sink("a sink of 0", [](const Setting&, Index) { return 0.0; }),
      {"exp(sink) without the maximum taken off",
       "SINK-1",
       [](Setting& s) {
         if (!s.problem.sink) return false;
         const Setting before = s;
         const auto largest = largest_scores(before);
         return set_scores(s, [&](const Position& at, const Score& score) {
           return score.whole() - largest(at);
         });
       },
       {},
       {TensorName::o}},
  };
}

}  // namespace

std::vector<Mistake> score_mistakes() {
  std::vector<Mistake> all = scales();
  for (auto family : {caps(), biases(), misread_biases(), alibis(), alibis_misread(), sinks(),
                      sinks_of_parts()}) {
    for (Mistake& each : family) all.push_back(std::move(each));
  }
  return all;
}

}  // namespace attest
