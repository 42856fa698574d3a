#include "cases/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "cases/keep.h"
#include "cases/normal.h"
#include "cases/philox.h"
#include "spec/assert.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

enum Tensor { kQ, kK, kV, kDO };
constexpr std::array<TensorName, 4> kTensorNames = {TensorName::q, TensorName::k, TensorName::v,
                                                    TensorName::d_o};

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

  double normal() { return normal_from(next()); }

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

// Where an element lies that others share: along an expanded axis all are the first.
Coordinates canonical(const Layout& layout, Coordinates at) {
  for (const Axis axis : {kBatch, kHead, kPosition, kChannel}) {
    if (layout.expands(axis)) at[axis] = 0;
  }
  return at;
}

// Of the random numbers of a tensor.
std::array<std::uint32_t, 2> key_of(const Case& test_case, TensorName tensor) {
  return philox_key(fmt::format("{}#{}", test_case.bits.empty() ? test_case.id : test_case.bits,
                                wire_name(tensor)));
}

// Where the rows of a stored tensor belong: for each batch element and position of it, the batch
// element and the position that a formula counts (LAYOUT-5, PAGE-1). A page that several share
// belongs to the first of them; one that nobody uses, to a batch element beyond the last.
std::vector<Place> owners_of_queries(const Problem& p) {
  const Shape shape = p.q_shape();
  std::vector<Place> owners(static_cast<std::size_t>(shape[kBatch] * shape[kPosition]));
  for (Index b = 0; b < p.batch; ++b) {
    for (Index i = 0; i < p.stored_queries(b); ++i) {
      const Place place = p.query_place(b, i);
      owners[static_cast<std::size_t>(place.batch * shape[kPosition] + place.position)] = {b, i};
    }
  }
  return owners;
}
std::vector<Place> owners_of_keys(const Problem& p) {
  const Shape shape = p.k_shape();
  std::vector<Place> owners;
  for (Index b = 0; b < shape[kBatch]; ++b) {
    for (Index s = 0; s < shape[kPosition]; ++s) owners.push_back({p.batch + b, s});
  }
  const auto own = [&](Place place, Place owner) {
    Place& known =
        owners[static_cast<std::size_t>(place.batch * shape[kPosition] + place.position)];
    if (known.batch >= p.batch) known = owner;
  };
  if (const Index size = p.paging.page_size; size > 0) {
    for (Index b = 0; b < p.batch; ++b) {
      const auto& row = p.paging.table[static_cast<std::size_t>(b)];
      for (std::size_t n = 0; n < row.size(); ++n) {
        for (Index slot = 0; slot < size && row[n] >= 0; ++slot) {
          own({row[n], slot}, {b, static_cast<Index>(n) * size + slot});
        }
      }
    }
  } else {
    for (Index b = 0; b < p.batch; ++b) {
      for (Index j = 0; j < p.stored_keys(b); ++j) own(p.key_place(b, j), {b, j});
    }
  }
  return owners;
}

// Gives each element of each tensor its random numbers. Coordinates are those of the formulas, with
// b, i and j, however the tensor is stored. Those along an expanded axis count as 0, so expanded
// elements are equal.
class Source {
 public:
  explicit Source(const Case& test_case) : problem(test_case.problem) {
    const Problem& p = problem;
    stored_ = {p.q_shape(), p.k_shape(), p.v_shape(), p.o_shape()};
    shapes_ = {Shape{p.batch, p.query_heads, p.query_len, p.head_dim},
               Shape{p.batch, p.key_heads, p.key_len, p.head_dim},
               Shape{p.batch, p.key_heads, p.key_len, p.value_dim},
               Shape{p.batch, p.query_heads, p.query_len, p.value_dim}};
    for (std::size_t tensor = 0; tensor < 4; ++tensor) {
      layouts_[tensor] = p.layouts[kTensorNames[tensor]];
      keys_[tensor] = key_of(test_case, kTensorNames[tensor]);
    }
    owners_[0] = owners_of_queries(p);
    owners_[1] = owners_of_keys(p);
  }

  const Shape& stored_shape(Tensor tensor) const { return stored_[tensor]; }

  // The coordinates in the formulas of an element at its stored ones.
  Coordinates owner(Tensor tensor, Coordinates at) const {
    at = canonical(tensor, at);
    const auto& owners = owners_[tensor == kK || tensor == kV];
    const Place place =
        owners[static_cast<std::size_t>(at[kBatch] * stored_[tensor][kPosition] + at[kPosition])];
    return {place.batch, at[kHead], place.position, at[kChannel]};
  }

  Coordinates canonical(Tensor tensor, Coordinates at) const {
    return attest::canonical(layouts_[tensor], at);
  }

  // A stream is an independent sequence: what several elements share has a stream of its own.
  Random random(Tensor tensor, Coordinates at, std::uint32_t stream = 0) const {
    const auto [b, h, s, d] = canonical(tensor, at);
    return Random(keys_[tensor], dense_index(shapes_[tensor], b, h, s, d), stream);
  }

  // random({b, h, s, d}).normal() of the channels of a row that are not one and the same.
  void normal_row(Tensor tensor, Coordinates at, std::span<double> row) const {
    const auto [b, h, s, d] = canonical(tensor, at);
    const Index first = dense_index(shapes_[tensor], b, h, s, 0);
    normal_numbers(keys_[tensor], static_cast<std::uint64_t>(first), row);
  }

  const Problem& problem;

 private:
  std::array<Shape, 4> stored_, shapes_;
  std::array<Layout, 4> layouts_;
  std::array<std::array<std::uint32_t, 2>, 4> keys_;
  std::array<std::vector<Place>, 2> owners_;  // of queries, of keys
};

struct Element {
  const Source& source;
  const Problem& problem;
  Coordinates at;
  Random random;

  Index key_head() const { return at[kHead] / problem.group_size(); }  // of an element of Q
};

using Make = double (*)(Element&);

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
double small_normal(Element& e) { return 0.2 * e.random.normal(); }
double large_normal(Element& e) { return 3 * e.random.normal(); }
double half_uniform(Element& e) { return e.random.uniform() / 2; }
double uniform_value(Element& e) {
  return e.random.uniform() / std::sqrt(static_cast<double>(e.problem.value_dim));
}
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

// stagnant: all scores are 0 and all weights equal, since q and k never meet in a channel. Every
// sum of the backward pass but D has terms of one sign, the first 64 of them 1 and each further 64
// together three quarters of what a sum rounded to the dtype still takes notice of.
double fading(Element& e) {
  const int digits = e.problem.dtype == DType::bf16 ? 8 : 11;
  return e.at[kPosition] < 64 ? 1 : 0.75 * power_of_two(-digits);
}
double turning(Element& e) { return e.at[kPosition] % 2 == 0 ? 1 : -1; }
double stagnant_query(Element& e) { return 2 * e.at[kChannel] < e.problem.head_dim ? 1 : 0; }
double stagnant_key(Element& e) { return stagnant_query(e) != 0 ? 0 : turning(e) * fading(e); }

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

// exponents: row i sees half of its keys 2^(-e) times as much as the other half, e = i/8 modulo
// 48/8; channel c of V is 1 for the former and -2^(-c/8) for the latter, so that it is nearly 0
// where c and i meet: an error of exp that these exponents have in common shows there. All scores
// are stirred by up to 1/16, so that P is rounded at random.
constexpr Index kEighths = 48;
bool is_faint(Element& e) {  // of a key
  const auto [b, h, s, d] = e.at;
  return e.source.random(kK, {b, h, s, 0}, 1).integer(0, 1) == 0;
}
double exponent_query(Element& e) {
  constexpr double kLog2 = 0.6931471805599453;
  const Index eighths = e.at[kPosition] % kEighths;
  const double size = direction(e.problem) / reach(e.problem);
  return e.at[kChannel] == 0   ? -size * kLog2 * static_cast<double>(eighths) / 8
         : e.at[kChannel] == 1 ? size
                               : 0;
}
double exponent_key(Element& e) {
  return e.at[kChannel] == 0   ? (is_faint(e) ? 1 : 0)
         : e.at[kChannel] == 1 ? (e.random.uniform() - 0.5) / 8
                               : e.random.normal();
}
double exponent_value(Element& e) {
  if (is_faint(e)) return 1;
  const Index eighths = e.at[kChannel] % kEighths;
  double power = power_of_two(static_cast<int>(-(eighths / 8)));
  double root = 0.5;
  for (Index bit = 4; bit > 0; bit /= 2) {
    root = std::sqrt(root);  // 2^(-1/2), 2^(-1/4), 2^(-1/8)
    if (eighths % 8 & bit) power *= root;
  }
  return -power;
}

struct Recipe {
  InputClass input_class;
  Make q, k, v, d_o;
};

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> kRecipes = {
      {{"normal", "logits of deviation 1 at the usual scale: everything in its ordinary range",
        true},
       normal,
       normal,
       normal,
       normal},
      {{"std10", "logits of deviation 10: errors of the score and of exp come through", true},
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
      {{"key_names", "V names its key: a lost, doubled or leaked key shows among a thousand"},
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
      {{"high", "all scores near 120: exp without the maximum taken off overflows f32"},
       query_at<120>,
       key_at<120>,
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
      {{"small", "of deviation 0.2, as some suites use: a tolerance may be as large as the signal"},
       small_normal,
       small_normal,
       small_normal,
       small_normal},
      {{"std3", "of deviation 3, as some suites use: rows are nearly one-hot where D is large"},
       large_normal,
       large_normal,
       large_normal,
       large_normal},
      {{"positive", "Q and K in [0, 1/2), V in [0, 1/sqrt D), as some suites use: nearly a mean"},
       half_uniform,
       half_uniform,
       uniform_value,
       normal},
      {{"subnormal", "Q below the smallest normal number, K large; V subnormal in f16"},
       subnormal_query,
       subnormal_key,
       subnormal_value,
       normal},
      {{"stagnant",
        "gradients whose first terms are large: a narrow sum takes no notice of the rest"},
       stagnant_query,
       stagnant_key,
       turning,
       fading},
      {{"exponents", "weights that cancel, up to what exp errs alike over an eighth of an octave",
        true},
       exponent_query,
       exponent_key,
       exponent_value,
       normal},
      {{"lse_loss", "dO = 0: what gradient there is comes through LSE"},
       normal,
       normal,
       normal,
       constant<0>},
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
  const Shape shape = source.stored_shape(tensor);
  Values values = zeros(shape);
  const DType dtype = source.problem.dtype;
  const Index channels = shape[kChannel];
  const bool channels_differ = source.canonical(tensor, {0, 0, 0, 1})[kChannel] == 1;
  const Index rows = channels == 0 ? 0 : element_count(values.shape) / channels;
  for (Index row = 0; row < rows; ++row) {
    Coordinates at = source.owner(tensor, coordinates(shape, row * channels));
    if (make == normal && channels_differ) {
      const std::span numbers(values.data.begin() + row * channels,
                              static_cast<std::size_t>(channels));
      source.normal_row(tensor, at, numbers);
      for (double& number : numbers) number = round_to(dtype, number);
      continue;
    }
    for (Index d = 0; d < channels; ++d) {
      if (channels_differ) at[kChannel] = d;
      Element element{source, source.problem, at, source.random(tensor, at)};
      const double value = round_to(dtype, make(element));
      if (!std::isfinite(value)) {
        throw InputError("",
                         fmt::format("with the scale {} this problem has no finite numbers of its "
                                     "class",
                                     source.problem.scale));
      }
      values.data[static_cast<std::size_t>(row * channels + d)] = value;
    }
  }
  return values;
}

double bias_at(const Values& bias, const Position& at) {
  return bias.data[broadcast_element(bias.shape, at)];
}

// Whether a row sees the key: `visible`, and no bias of -inf (MASK-14).
bool sees(const Problem& p, const Inputs& inputs, const Position& at) {
  return visible(p, at) && (!p.bias_shape || std::isfinite(bias_at(inputs.bias, at)));
}

// For each key head and stored key, whether anybody's key lies there (within the lengths), and
// whether any row sees it.
struct KeyUse {
  std::vector<bool> exists, seen;  // in dense order of [batch, head, position] as stored
};
KeyUse use_of_keys(const Problem& p, const Inputs& inputs) {
  const Shape shape = p.k_shape();
  const auto count = static_cast<std::size_t>(shape[0] * shape[1] * shape[2]);
  KeyUse use{.exists = std::vector<bool>(count), .seen = std::vector<bool>(count)};
  for (Index b = 0; b < p.batch; ++b) {
    for (Index j = 0; j < p.lengths(b).key; ++j) {
      const Place place = p.key_place(b, j);
      for (Index h = 0; h < p.key_heads; ++h) {
        const auto index =
            static_cast<std::size_t>((place.batch * shape[1] + h) * shape[2] + place.position);
        use.exists[index] = true;
        for (Index of_group = 0; of_group < p.group_size() && !use.seen[index]; ++of_group) {
          for (Index i = 0; i < p.query_len && !use.seen[index]; ++i) {
            use.seen[index] =
                sees(p, inputs,
                     {.batch = b, .head = h * p.group_size() + of_group, .query = i, .key = j});
          }
        }
      }
    }
  }
  return use;
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

// Overwrites the row of `values` at (b, h, s), as it is stored, with NaN and infinities.
void poison(Tensor tensor, Values& values, const Source& source, Index b, Index h, Index s) {
  for (Index d = 0; d < values.shape[kChannel]; ++d) {
    Random random = source.random(tensor, {b, h, s, d}, 2);
    const double side = random.sign();
    values.at(b, h, s, d) = random.integer(0, 1) == 0
                                ? std::numeric_limits<double>::quiet_NaN()
                                : side * std::numeric_limits<double>::infinity();
  }
}

void hide_keys(const Case& test_case, const Source& source, Inputs& inputs) {
  const Problem& p = test_case.problem;
  const HugeNumbers sizes = huge_numbers(p, inputs);
  const KeyUse use = use_of_keys(p, inputs);
  const auto overwrite = [&](Tensor tensor, Values& values, double size, Index b, Index h,
                             Index s) {
    if (test_case.hidden != Hidden::huge) return poison(tensor, values, source, b, h, s);
    for (Index d = 0; d < values.shape[kChannel]; ++d) {
      const double side = source.random(tensor, {b, h, s, d}, 2).sign();
      values.at(b, h, s, d) = side * round_to(p.dtype, size);
    }
  };
  std::size_t index = 0;
  for (Index b = 0; b < inputs.k.shape[kBatch]; ++b) {
    for (Index h = 0; h < p.key_heads; ++h) {
      for (Index s = 0; s < inputs.k.shape[kPosition]; ++s, ++index) {
        const bool hidden = test_case.hidden == Hidden::nan ? !use.exists[index]
                            : test_case.hidden == Hidden::huge
                                ? !use.seen[index]
                                : use.exists[index] && !use.seen[index];
        if (!hidden) continue;
        overwrite(kK, inputs.k, sizes.k, b, h, s);
        overwrite(kV, inputs.v, sizes.v, b, h, s);
      }
    }
  }
}

// Queries beyond a length: all that is told of them.
void hide_rows(const Problem& p, const Source& source, Inputs& inputs) {
  for (Index b = 0; b < p.batch; ++b) {
    for (Index h = 0; h < p.query_heads; ++h) {
      for (Index i = p.lengths(b).query; i < p.query_len; ++i) {
        poison(kQ, inputs.q, source, b, h, i);
        if (p.backward) poison(kDO, inputs.d_o, source, b, h, i);
        if (p.d_lse) inputs.d_lse.at(b, h, i, 0) = std::numeric_limits<double>::quiet_NaN();
      }
    }
  }
}

// Whether a row of this head isn't finite. Some heads are clean in every batch element, since dSink
// sums over the batch, and some groups are, since dK and dV sum over the group; of a single group,
// some batch elements are.
bool is_spoilt(const Problem& p, Index b, Index head, bool of_keys) {
  const Index group = of_keys ? head : head / p.group_size();
  const bool clean_group = p.key_heads > 1 ? group % 2 == 1 : b % 2 == 1;
  return !clean_group && head % 2 == 0;
}

// One row of each such head, and some of its channels only.
void poison_some(const Case& test_case, const Source& source, Inputs& inputs) {
  const Problem& p = test_case.problem;
  const auto [tensor, values] = test_case.hidden == Hidden::nan_query ? std::pair(kQ, &inputs.q)
                                : test_case.hidden == Hidden::nan_key ? std::pair(kK, &inputs.k)
                                : test_case.hidden == Hidden::nan_value
                                    ? std::pair(kV, &inputs.v)
                                    : std::pair(kDO, &inputs.d_o);
  const bool of_keys = tensor == kK || tensor == kV;
  for (Index b = 0; b < p.batch; ++b) {
    const Index rows = of_keys ? p.lengths(b).key : p.lengths(b).query;
    for (Index h = 0; h < values->shape[kHead] && rows > 0; ++h) {
      if (!is_spoilt(p, b, h, of_keys)) continue;
      const Index row = source.random(tensor, {b, h, 0, 0}, 3).integer(0, rows - 1);
      const Place place = of_keys ? p.key_place(b, row) : p.query_place(b, row);
      Values whole = *values;
      poison(tensor, whole, source, place.batch, h, place.position);
      for (Index d = 0; d < values->shape[kChannel]; d += 3) {
        values->at(place.batch, h, place.position, d) = whole.at(place.batch, h, place.position, d);
      }
    }
  }
}

void hide(const Case& test_case, const Source& source, Inputs& inputs) {
  switch (test_case.hidden) {
    case Hidden::plain:
      return;
    case Hidden::huge:
    case Hidden::nan:
    case Hidden::nan_masked:
      return hide_keys(test_case, source, inputs);
    case Hidden::nan_rows:
      return hide_rows(test_case.problem, source, inputs);
    case Hidden::nan_query:
    case Hidden::nan_key:
    case Hidden::nan_value:
    case Hidden::nan_gradient:
      return poison_some(test_case, source, inputs);
  }
}

// The numbers of a tensor beside Q, K, V and dO: its random numbers come from its name.
template <class Make>
Values fill_named(const Case& test_case, TensorName tensor, const Shape& shape, DType dtype,
                  const Layout& layout, Make make) {
  Values values = zeros(shape);
  const auto key = key_of(test_case, tensor);
  for (Index i = 0; i < element_count(shape); ++i) {
    const Coordinates at = canonical(layout, coordinates(shape, i));
    Random random(key, dense_index(shape, at[0], at[1], at[2], at[3]), 0);
    values.data[static_cast<std::size_t>(i)] = round_to(dtype, make(at, random));
  }
  return values;
}

struct Kind {
  std::string_view name;
  double (*make)(const Coordinates&, Random&);
};
constexpr Kind kBiasKinds[] = {
    // As large as the scores.
    {"normal", [](const Coordinates&, Random& random) { return 2 * random.normal(); }},
    // Exact in every format; another element of the table is another number.
    {"integers",
     [](const Coordinates&, Random& random) { return static_cast<double>(random.integer(-8, 8)); }},
    // Falls with the distance from the diagonal, differently for each head and batch element.
    {"ramp",
     [](const Coordinates& at, Random&) {
       const auto distance = std::min<Index>(std::abs(at[2] - at[3]), 60);
       return -static_cast<double>(distance) / (4 << ((at[0] + at[1]) % 3));
     }},
    // Below what stands for -inf in some kernels (-10000): a masked key would win. Exact in every
    // format; a third of the keys counts.
    {"deep",
     [](const Coordinates&, Random& random) {
       return -20480 + 128 * static_cast<double>(random.integer(-1, 1));
     }},
    // The only thing that counts: a bias read from a wrong place is another row of P.
    {"loud", [](const Coordinates&,
                Random& random) { return 8 * static_cast<double>(random.integer(-2, 2)); }},
};
constexpr Kind kSinkKinds[] = {
    // Takes a few per cent of a row of some tens of keys.
    {"normal", [](const Coordinates&, Random& random) { return 2 + random.normal(); }},
    // Takes nearly all, and is above every score.
    {"dominant", [](const Coordinates&, Random& random) { return 7 + random.normal(); }},
    // Far below all scores: what is first merged into it must be rescaled.
    {"negligible", [](const Coordinates&, Random& random) { return -40 + random.normal(); }},
};

template <std::size_t N>
std::vector<std::string> names_of(const Kind (&kinds)[N]) {
  std::vector<std::string> names;
  for (const Kind& kind : kinds) names.emplace_back(kind.name);
  return names;
}

template <std::size_t N>
auto kind_named(const Kind (&kinds)[N], const std::string& name) {
  const auto kind = std::find_if(std::begin(kinds), std::end(kinds),
                                 [&](const Kind& known) { return known.name == name; });
  ATTEST_ASSERT(kind != std::end(kinds));
  return kind->make;
}

Values make_bias(const Case& test_case) {
  const Problem& p = test_case.problem;
  Values bias = fill_named(test_case, TensorName::bias, *p.bias_shape, p.dtype, p.layouts.bias,
                           kind_named(kBiasKinds, test_case.extras.bias));
  const auto& allowed = test_case.extras.bias_allows.allowed;
  ATTEST_ASSERT(allowed.empty() || allowed.size() == bias.data.size());
  for (std::size_t i = 0; i < allowed.size(); ++i) {
    const auto [b, h, q, k] =
        canonical(p.layouts.bias, coordinates(bias.shape, static_cast<Index>(i)));
    if (allowed[static_cast<std::size_t>(dense_index(bias.shape, b, h, q, k))]) continue;
    bias.data[i] = -std::numeric_limits<double>::infinity();
  }
  return bias;
}

// 2^(-8/heads) to the power of head + 1, as ALiBi has it for powers of two; heads beyond one take
// every other slope of twice as many.
double standard_slope(Index head, Index heads) {
  Index power = 1;
  while (2 * power <= heads) power *= 2;
  if (head >= power) {
    head = 2 * (head - power);
    power *= 2;
  }
  double root = power_of_two(-8);
  for (Index n = power; n > 1; n /= 2) root = std::sqrt(root);
  double slope = 1;
  for (Index n = 0; n <= head; ++n) slope *= root;
  return slope;
}

Values make_slopes(const Case& test_case) {
  const Problem& p = test_case.problem;
  const auto& given = test_case.extras.slopes;
  Values slopes = zeros(*p.slopes_shape);
  for (std::size_t i = 0; i < slopes.data.size(); ++i) {
    const auto [b, h, s, d] = coordinates(slopes.shape, static_cast<Index>(i));
    // Each further batch element has other slopes.
    const double slope =
        given.empty() ? standard_slope(h, p.query_heads) * static_cast<double>(b + 1) : given[i];
    slopes.data[i] = round_to(DType::f32, slope);
  }
  return slopes;
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

std::vector<std::string> bias_kinds() { return names_of(kBiasKinds); }
std::vector<std::string> sink_kinds() { return names_of(kSinkKinds); }

Inputs generate(const Case& test_case) {
  const Problem& p = test_case.problem;
  const Source source(test_case);
  const Recipe& recipe = recipe_of(test_case);
  Inputs inputs{.q = fill(source, kQ, recipe.q),
                .k = fill(source, kK, recipe.k),
                .v = fill(source, kV, recipe.v)};
  const auto any = [](const Coordinates&, Random& random) { return random.normal(); };
  if (p.bias_shape) inputs.bias = make_bias(test_case);
  if (p.slopes_shape) inputs.slopes = make_slopes(test_case);
  if (p.sink) {
    inputs.sink = fill_named(test_case, TensorName::sink, p.sink_shape(), DType::f32, {},
                             kind_named(kSinkKinds, test_case.extras.sink));
  }
  if (p.dropout.mode == Dropout::Mode::given) inputs.keep = make_keep(p);
  if (p.backward) inputs.d_o = fill(source, kDO, recipe.d_o);
  if (p.d_lse) {
    inputs.d_lse = fill_named(test_case, TensorName::d_lse, p.lse_shape(), p.lse_dtype(), {}, any);
  }
  if (test_case.hidden != Hidden::plain) hide(test_case, source, inputs);
  return inputs;
}

}  // namespace attest
