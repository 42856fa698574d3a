#include "cases/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "cases/philox.h"
#include "spec/assert.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

enum Tensor { kQ, kK, kV, kDO };
constexpr std::array<std::string_view, 4> kTensorNames = {"q", "k", "v", "d_o"};

using Coordinates = std::array<Index, 4>;

// The random numbers of one element: as many as it wants, each from its own counter.
class Random {
 public:
  Random(std::array<std::uint32_t, 2> key, Index element, std::uint32_t stream)
      : key_(key), element_(static_cast<std::uint64_t>(element)), stream_(stream) {}

  Philox next() {
    return philox({static_cast<std::uint32_t>(element_), static_cast<std::uint32_t>(element_ >> 32),
                   draw_++, stream_},
                  key_);
  }

  // The sum of eight uniform 16-bit numbers, centred and scaled to standard deviation 1;
  // within 4.9.
  double normal() {
    std::int64_t sum = 0;
    for (const std::uint32_t word : next()) sum += (word & 0xffff) + (word >> 16);
    return (static_cast<double>(sum) - 4 * 65535.0) / std::sqrt(8.0 / 12.0 * 65536.0 * 65536.0);
  }

  double uniform() { return next()[0] / 4294967296.0; }  // [0, 1)

  // Student's t with two degrees of freedom, whose distribution function has a closed inverse.
  // Within +-256, so that no score is too large for a bound that says something.
  double heavy() {
    const double u = ((next()[0] >> 16) + 0.5) / 65536.0;
    return (2 * u - 1) / std::sqrt(2 * u * (1 - u));
  }

  Index integer(Index low, Index high) {  // both ends included
    const auto count = static_cast<std::uint64_t>(high - low + 1);
    return low + static_cast<Index>((next()[0] * count) >> 32);
  }

  double sign() { return next()[0] >> 31 ? -1.0 : 1.0; }

 private:
  std::array<std::uint32_t, 2> key_;
  std::uint64_t element_;
  std::uint32_t stream_, draw_ = 0;
};

// Gives each element of each tensor its random numbers. Coordinates along an expanded axis count as
// 0, so expanded elements are equal.
class Source {
 public:
  explicit Source(const Case& test_case) : problem(test_case.problem) {
    const Layouts& layouts = problem.layouts;
    shapes_ = {problem.q_shape(), problem.k_shape(), problem.v_shape(), problem.o_shape()};
    layouts_ = {layouts.q, layouts.k, layouts.v, layouts.d_o};
    for (std::size_t tensor = 0; tensor < 4; ++tensor) {
      keys_[tensor] = philox_key(fmt::format("{}#{}", test_case.id, kTensorNames[tensor]));
    }
  }

  const Shape& shape(Tensor tensor) const { return shapes_[tensor]; }

  Coordinates canonical(Tensor tensor, Coordinates at) const {
    for (const Axis axis : {kBatch, kHead, kPosition, kChannel}) {
      if (layouts_[tensor].expands(axis)) at[axis] = 0;
    }
    return at;
  }

  // A stream is an independent sequence: what several elements share has a stream of its own.
  Random random(Tensor tensor, Coordinates at, std::uint32_t stream = 0) const {
    const auto [b, h, s, d] = canonical(tensor, at);
    return Random(keys_[tensor], dense_index(shapes_[tensor], b, h, s, d), stream);
  }

  const Problem& problem;

 private:
  std::array<Shape, 4> shapes_;
  std::array<Layout, 4> layouts_;
  std::array<std::array<std::uint32_t, 2>, 4> keys_;
};

struct Element {
  const Source& source;
  const Problem& problem;
  Coordinates at;
  Random random;

  Index key_head() const { return at[kHead] / problem.group_size(); }  // of an element of Q
};

using Make = double (*)(Element&);

double power_of_two(int exponent) {
  double power = 1;  // by exact products only
  for (int i = 0; i < std::abs(exponent); ++i) power = exponent > 0 ? power * 2 : power / 2;
  return power;
}

// |scale|, or 1 where the scale is 0 and no amplitude can make up for it.
double reach(const Problem& p) { return p.scale == 0 ? 1 : std::abs(p.scale); }
double direction(const Problem& p) { return p.scale < 0 ? -1 : 1; }

// The amplitude of q and k for which scale q.k, summed over `channels`, has that deviation.
double amplitude(const Problem& p, double logit_deviation, Index channels) {
  const auto count = static_cast<double>(std::max<Index>(channels, 1));
  return std::sqrt(logit_deviation / (reach(p) * std::sqrt(count)));
}

double normal(Element& e) { return e.random.normal(); }

template <int kDeviation>
double spread(Element& e) {
  return e.random.normal() * amplitude(e.problem, kDeviation, e.problem.head_dim);
}

double heavy(Element& e) { return e.random.heavy(); }
double uniform(Element& e) { return e.random.uniform(); }
double outlier(Element& e) {
  return e.random.normal() * (e.random.integer(0, 999) == 0 ? 10.0 : 1.0);
}

// near_ties: all keys are one vector, but for a 64th.
double near_key(Element& e) {
  const auto [b, h, s, d] = e.at;
  return e.source.random(kK, {b, h, 0, d}, 1).normal() + e.random.normal() / 64;
}

template <int kNumerator, int kDenominator = 1>
double constant(Element&) {
  return double(kNumerator) / kDenominator;
}

double equal_huge(Element& e) { return e.problem.dtype == DType::f16 ? 240 : 133120; }

// one_hot: keys are random signs, and each query is one of them, loud enough to drown the others.
double sign(Element& e) { return e.random.sign(); }
double one_hot_query(Element& e) {
  const auto [b, h, s, d] = e.at;
  const Problem& p = e.problem;
  if (p.key_len == 0) return e.random.normal();
  const Index target = e.source.random(kQ, {b, h, s, 0}, 1).integer(0, p.key_len - 1);
  const double loudness = 48 / (reach(p) * static_cast<double>(p.head_dim));
  return direction(p) * loudness * e.source.random(kK, {b, e.key_head(), target, d}).sign();
}

// ascending: the score of key j is proportional to j, exactly. j = 64 high + low, and half of the
// channels hold low, half hold high, so that 8 bits are enough; q weighs them 1 to 64. Over all
// keys the scores rise by 4, 8 or 16, so that the first blocks still count.
double ramp(Element& e, Index j) {
  const auto [b, h, s, d] = e.at;
  const Index half = e.problem.head_dim / 2;
  const double side = e.source.random(kK, {b, h, 0, d}, 1).sign();
  if (half == 0) return side * static_cast<double>(j);
  return d < half       ? side * static_cast<double>(j % 64)
         : d < 2 * half ? side * static_cast<double>(j / 64)
                        : 0;
}
double ascending_key(Element& e) { return ramp(e, e.at[kPosition]); }
double descending_key(Element& e) { return ramp(e, e.problem.key_len - 1 - e.at[kPosition]); }
double ramp_query(Element& e) {
  const auto [b, h, s, d] = e.at;
  const Problem& p = e.problem;
  const Index half = p.head_dim / 2;
  const auto rise = static_cast<double>(4 << e.source.random(kQ, {b, h, s, 0}, 1).integer(0, 2));
  const auto terms = static_cast<double>(std::max<Index>(half, 1) * std::max<Index>(p.key_len, 1));
  const double step = round_to(p.dtype, direction(p) * rise / (reach(p) * terms));
  const double side = e.source.random(kK, {b, e.key_head(), 0, d}, 1).sign();
  return side * step * (half > 0 && d >= half ? 64 : 1);
}

double small_integer(Element& e) { return static_cast<double>(e.random.integer(-2, 2)); }
double integer(Element& e) { return static_cast<double>(e.random.integer(-100, 100)); }
double sparse_integer(Element& e) {
  return e.random.integer(0, 9) < 6 ? 0
                                    : e.random.sign() * static_cast<double>(e.random.integer(1, 2));
}

// key_names: each row of V is zero but for one channel, which with its value names the key.
double name_of_key(Element& e) {
  const auto [b, h, s, d] = e.at;
  const Index dim = e.problem.value_dim;
  if ((s + 3 * h + 5 * b) % dim != d) return 0;
  return 1 + static_cast<double>((s / dim) % 64) / 64;
}
double name_of_query(Element& e) {
  const auto [b, h, s, d] = e.at;
  return (s + 3 * h + 5 * b) % e.problem.value_dim == d ? 1 + static_cast<double>(s % 3) : 0;
}
double quiet(Element& e) { return e.random.normal() / 2; }

double cancelling(Element& e) { return e.at[kPosition] % 2 == 0 ? 1000 : -1000; }
double halves(Element& e) { return 2 * e.at[kPosition] < e.problem.key_len ? 1000 : -1000; }
double offset(Element& e) { return e.random.normal() + 100; }

// Scores of about `level` with a spread of 1: half of the channels hold one constant each, which
// makes the level, and the other half are random. Beyond a level of 10^6 / D the rounding errors of
// a correct sum of D products would move the scores so much that no bound could say anything.
double level_query(Element& e, double level, bool is_key) {
  const Problem& p = e.problem;
  const auto [b, h, s, d] = e.at;
  const Index constants = std::max<Index>(p.head_dim / 2, 1);
  if (d >= constants) return e.random.normal() * amplitude(p, 1, p.head_dim - constants);
  const double most = 1e6 / static_cast<double>(p.head_dim);
  const double height = std::min(std::abs(level), most);
  const double size = std::sqrt(height / (reach(p) * static_cast<double>(constants)));
  const double side = e.source.random(kK, {b, is_key ? h : e.key_head(), 0, d}, 1).sign();
  return side * size * (is_key ? 1 : direction(p) * (level < 0 ? -1 : 1));
}
template <int kLevel>
double query_at(Element& e) {
  return level_query(e, kLevel, false);
}
template <int kLevel>
double key_at(Element& e) {
  return level_query(e, kLevel, true);
}

// Numbers times a power of two: one for f16, whose range is small, and one for the other formats.
template <int kOther, int kHalf>
double scaled(Element& e) {
  return e.random.normal() * power_of_two(e.problem.dtype == DType::f16 ? kHalf : kOther);
}

// Below the smallest normal number of the dtype, and a factor that brings the product back to 2^-6:
// little enough for a bound that allows flushing, which some testees declare, to stay finite.
double subnormal_query(Element& e) {
  return e.random.normal() * smallest_normal(e.problem.dtype) / 2;
}
double subnormal_key(Element& e) {
  return e.random.normal() / (smallest_normal(e.problem.dtype) * 32);
}
// A subnormal V gives a subnormal O. Only f16 can judge it: elsewhere a kernel computes in the
// format of the subnormals themselves, and its sums may lose them.
double subnormal_value(Element& e) {
  const double unit = 2 * half_smallest_subnormal(DType::f16);
  return e.problem.dtype == DType::f16 ? unit * static_cast<double>(e.random.integer(-1000, 1000))
                                       : e.random.normal();
}

struct Recipe {
  InputClass input_class;
  Make q, k, v, d_o;
};

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> kRecipes = {
      {{"normal", "logits of deviation 1 at the usual scale: everything in its ordinary range"},
       normal,
       normal,
       normal,
       normal},
      {{"std10", "logits of deviation 10: errors of the score and of exp come through"},
       spread<10>,
       spread<10>,
       normal,
       normal},
      {{"std50", "logits of deviation 50: nearly one-hot rows, P underflows elsewhere"},
       spread<50>,
       spread<50>,
       normal,
       normal},
      {{"heavy_tail", "Student's t with 2 degrees of freedom: a few numbers dominate"},
       heavy,
       heavy,
       heavy,
       heavy},
      {{"near_ties", "all scores of a row nearly equal: rounding of P has one sign"},
       normal,
       near_key,
       normal,
       normal},
      {{"all_equal", "all scores equal: O is the mean of the visible V, LSE counts the keys"},
       constant<3, 2>,
       constant<3, 2>,
       normal,
       normal},
      {{"equal_huge", "Q, K and V one huge number: s - max must be exactly 0"},
       equal_huge,
       equal_huge,
       equal_huge,
       normal},
      {{"one_hot", "each row sees one key only: an exchanged key is an exchanged row of V"},
       one_hot_query,
       sign,
       normal,
       normal},
      {{"ascending", "scores rise with the key: every block rescales what came before"},
       ramp_query,
       ascending_key,
       normal,
       normal},
      {{"descending", "scores fall with the key: no block after the first rescales"},
       ramp_query,
       descending_key,
       normal,
       normal},
      {{"q0int", "Q = 0 and V integer: O is the mean, nearly exactly, and any miscount shows"},
       constant<0>,
       normal,
       integer,
       small_integer},
      {{"outliers", "one number in 1000 is ten times as large"},
       outlier,
       outlier,
       outlier,
       outlier},
      {{"sparse_ints", "small integers, mostly 0: sums are exact"},
       sparse_integer,
       sparse_integer,
       sparse_integer,
       sparse_integer},
      {{"key_names", "V names its key: a lost, doubled or leaked key shows at any length"},
       quiet,
       quiet,
       name_of_key,
       name_of_query},
      {{"cancelling", "V alternates +-1000: the sum cancels"}, normal, normal, cancelling, normal},
      {{"halves", "V is 1000, then -1000: partial sums are far from the result"},
       normal,
       normal,
       halves,
       normal},
      {{"offset", "V around 100: what is lost from the denominator shows"},
       normal,
       normal,
       offset,
       normal},
      {{"huge", "scores and V as large as f32 arithmetic bears"},
       query_at<67000>,
       key_at<67000>,
       scaled<60, 11>,
       normal},
      {{"deep", "all scores far below any finite stand-in for -inf (-67000 for D up to 14)"},
       query_at<-67000>,
       key_at<-67000>,
       normal,
       normal},
      {{"low", "all scores near -120: exp(0 - LSE) of a padded key overflows f32"},
       query_at<-120>,
       key_at<-120>,
       normal,
       normal},
      {{"unbalanced", "Q huge and K tiny: only their product is moderate"},
       scaled<56, 7>,
       scaled<-56, -7>,
       normal,
       normal},
      {{"tiny", "scores vanish and V is near the smallest normal numbers"},
       scaled<-40, -10>,
       scaled<-40, -10>,
       scaled<-100, -8>,
       normal},
      {{"uniform", "[0, 1), as many suites use: nearly flat softmax"},
       uniform,
       uniform,
       uniform,
       uniform},
      {{"subnormal", "Q below the smallest normal number, K large; V subnormal in f16"},
       subnormal_query,
       subnormal_key,
       subnormal_value,
       normal},
  };
  return kRecipes;
}

const Recipe& recipe_of(const Case& test_case) {
  for (const Recipe& recipe : recipes()) {
    if (recipe.input_class.name == test_case.data) return recipe;
  }
  throw InputError("", fmt::format("{}: no input class \"{}\"", test_case.id, test_case.data));
}

Values fill(const Source& source, Tensor tensor, Make make) {
  Values values = zeros(source.shape(tensor));
  const DType dtype = source.problem.dtype;
  for (Index i = 0; i < element_count(values.shape); ++i) {
    const Coordinates at = source.canonical(tensor, coordinates(values.shape, i));
    Element element{source, source.problem, at, source.random(tensor, at)};
    const double value = round_to(dtype, make(element));
    ATTEST_ASSERT(std::isfinite(value));
    values.data[static_cast<std::size_t>(i)] = value;
  }
  return values;
}

bool any_row_sees(const Problem& p, Index b, Index key_head, Index key) {
  for (Index h = key_head * p.group_size(); h < (key_head + 1) * p.group_size(); ++h) {
    for (Index i = 0; i < p.query_len; ++i) {
      if (visible(p, {.batch = b, .head = h, .query = i, .key = key})) return true;
    }
  }
  return false;
}

double largest(const Values& values) {
  double most = 1;
  for (const double value : values.data) most = std::max(most, std::abs(value));
  return most;
}

// Finite numbers for hidden keys: as large as keeps every product with Q and dO finite in the
// accumulator.
struct HugeNumbers {
  double k, v;
};
HugeNumbers huge_numbers(const Problem& p, const Inputs& inputs) {
  const double room = p.dtype == DType::f64 ? 1e300 : 1e36;
  const double most = largest_finite(p.dtype) / 4;
  const auto times = [](Index channels) {
    return static_cast<double>(std::max<Index>(channels, 1));
  };
  return {
      .k = std::min(most, room / (times(p.head_dim) * largest(inputs.q) * std::max(1.0, reach(p)))),
      .v = std::min(most, room / (times(p.value_dim) * largest(inputs.d_o)))};
}

void hide(const Case& test_case, const Source& source, Inputs& inputs) {
  const Problem& p = test_case.problem;
  const HugeNumbers sizes = huge_numbers(p, inputs);
  const auto overwrite = [&](Tensor tensor, Values& values, double size, Index b, Index h,
                             Index j) {
    for (Index d = 0; d < values.shape[kChannel]; ++d) {
      constexpr double kInfinity = std::numeric_limits<double>::infinity();
      Random random = source.random(tensor, {b, h, j, d}, 2);
      const double side = random.sign();
      const bool no_number = test_case.hidden == Hidden::nan && random.integer(0, 1) == 0;
      values.at(b, h, j, d) = no_number ? std::numeric_limits<double>::quiet_NaN()
                              : test_case.hidden == Hidden::nan ? side * kInfinity
                                                                : side * round_to(p.dtype, size);
    }
  };
  for (Index b = 0; b < p.batch; ++b) {
    for (Index h = 0; h < p.key_heads; ++h) {
      for (Index j = 0; j < p.key_len; ++j) {
        const bool hidden =
            test_case.hidden == Hidden::nan ? j >= p.lengths(b).key : !any_row_sees(p, b, h, j);
        if (!hidden) continue;
        overwrite(kK, inputs.k, sizes.k, b, h, j);
        overwrite(kV, inputs.v, sizes.v, b, h, j);
      }
    }
  }
}

}  // namespace

const std::vector<InputClass>& input_classes() {
  static const std::vector<InputClass> kClasses = [] {
    std::vector<InputClass> classes;
    for (const Recipe& recipe : recipes()) classes.push_back(recipe.input_class);
    return classes;
  }();
  return kClasses;
}

Inputs generate(const Case& test_case) {
  const Source source(test_case);
  const Recipe& recipe = recipe_of(test_case);
  Inputs inputs{.q = fill(source, kQ, recipe.q),
                .k = fill(source, kK, recipe.k),
                .v = fill(source, kV, recipe.v)};
  if (test_case.problem.backward) inputs.d_o = fill(source, kDO, recipe.d_o);
  if (test_case.hidden != Hidden::plain) hide(test_case, source, inputs);
  return inputs;
}

}  // namespace attest
