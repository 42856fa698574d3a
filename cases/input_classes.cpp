#include "cases/input_classes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "spec/json_reader.h"

namespace attest {

double normal(Element& e) { return e.random.normal(); }

double reach(const Problem& p) { return p.scale == 0 ? 1 : std::abs(p.scale); }

namespace {

double direction(const Problem& p) { return p.scale < 0 ? -1 : 1; }

// The amplitude of q and k for which scale q.k, summed over `channels`, has that deviation.
double amplitude(const Problem& p, double logit_deviation, Index channels) {
  const auto count = static_cast<double>(std::max<Index>(channels, 1));
  return std::sqrt(logit_deviation / (reach(p) * std::sqrt(count)));
}

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

double equal_huge(Element& e) { return has_short_range(e.problem.dtype) ? 240 : 133120; }

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

// far_above: behind a diagonal, keys whose scores are 1e6 and more for the first half of the rows,
// which do not see them; all rows that may see one have a query of 0, and so equal scores, whatever
// the keys are. Without a band that ends to the right, all is normal.
constexpr double kLoud = 64, kFarAbove = 32768;
Index rows_before(const Problem& p, Index b) { return (p.lengths(b).query + 1) / 2; }
bool ends_to_the_right(const Mask& mask) {
  return mask.kind == Mask::Kind::band && mask.right != kUnbounded;
}
double far_query(Element& e) {
  const Problem& p = e.problem;
  if (!ends_to_the_right(p.mask)) return e.random.normal();
  const bool before = e.at[kPosition] < rows_before(p, e.at[kBatch]);
  return before ? kLoud * e.random.normal() : 0;
}
double far_key(Element& e) {
  const Problem& p = e.problem;
  const Mask& mask = p.mask;
  if (!ends_to_the_right(mask)) return e.random.normal();
  const Lengths lengths = p.lengths(e.at[kBatch]);
  const Index corner = mask.anchor == Anchor::bottom_right ? lengths.key - lengths.query : 0;
  const Index last_seen = rows_before(p, e.at[kBatch]) - 1 + corner + mask.offset + mask.right;
  return e.at[kPosition] > last_seen ? kFarAbove * e.random.sign() : e.random.normal() / kLoud;
}

// stagnant, stagnant_blocks: all scores are 0 and all weights equal, since q and k never meet in a
// channel. Every sum of the backward pass but D has terms of one sign, the first 64 of them 1 and
// each further block of 64, or of 128, together three quarters of what a sum rounded to the dtype
// still takes notice of.
template <int kBlock>
double fading(Element& e) {
  const int digits = std::min(format_of(e.problem.dtype).digits, 11);
  return e.at[kPosition] < 64 ? 1 : 0.75 * 64 / kBlock * power_of_two(-digits);
}
double turning(Element& e) { return e.at[kPosition] % 2 == 0 ? 1 : -1; }
double stagnant_query(Element& e) { return 2 * e.at[kChannel] < e.problem.head_dim ? 1 : 0; }
template <int kBlock>
double stagnant_key(Element& e) {
  return stagnant_query(e) != 0 ? 0 : turning(e) * fading<kBlock>(e);
}

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

// Numbers times a power of two: one for formats of a short range, as f16, and one for the others.
template <int kOther, int kShort>
double scaled(Element& e) {
  return e.random.normal() * power_of_two(has_short_range(e.problem.dtype) ? kShort : kOther);
}

// Below the smallest normal number of the dtype, and a factor that brings the product back to 2^-6:
// little enough for a bound that allows flushing, which some testees declare, to stay finite.
double subnormal_query(Element& e) {
  return e.random.normal() * smallest_normal(e.problem.dtype) / 2;
}
double subnormal_key(Element& e) {
  return e.random.normal() / (smallest_normal(e.problem.dtype) * 32);
}
// A subnormal V gives a subnormal O. Only formats of a short range can judge it: elsewhere a kernel
// computes in the format of the subnormals themselves, and its sums may lose them.
double subnormal_value(Element& e) {
  const DType dtype = e.problem.dtype;
  if (!has_short_range(dtype)) return e.random.normal();
  return 2 * half_smallest_subnormal(dtype) * static_cast<double>(e.random.integer(-1000, 1000));
}

// exponents: row i sees half of its keys 2^(-e) times as much as the other half, e = i/8 modulo
// 48/8; channel c of V is 1 for the former and -2^(-c/8) for the latter, so that it is nearly 0
// where c and i meet: an error of exp that these exponents have in common shows there. All scores
// are stirred by up to 1/16, so that P is rounded at random. head_exponents: i counts query heads.
constexpr Index kEighths = 48;
bool is_faint(Element& e) {  // of a key
  const auto [b, h, s, d] = e.at;
  return e.source.random(kK, {b, h, s, 0}, 1).integer(0, 1) == 0;
}
double exponent_of_row(Element& e, Index row) {
  const Index eighths = row % kEighths;
  const double size = direction(e.problem) / reach(e.problem);
  return e.at[kChannel] == 0   ? -size * std::numbers::ln2 * static_cast<double>(eighths) / 8
         : e.at[kChannel] == 1 ? size
                               : 0;
}
double exponent_query(Element& e) { return exponent_of_row(e, e.at[kPosition]); }
// Where there is but one query, its heads are tried instead.
double exponent_head(Element& e) {
  return exponent_of_row(e, e.at[kHead] + e.at[kBatch] * e.problem.query_heads);
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

// counted: by a formula of the element's place in dense order without packing, of which no digit is
// lost in any format, so that a script of a few lines has the same numbers (harness/script).
template <MainTensor kTensor>
double counted(Element& e) {
  const Problem& p = e.problem;
  const bool of_keys = kTensor == kK || kTensor == kV, of_values = kTensor == kV || kTensor == kDO;
  const auto [b, h, s, d] = e.at;
  const Index row =
      (b * (of_keys ? p.key_heads : p.query_heads) + h) * (of_keys ? p.key_len : p.query_len) + s;
  const Index n = (row * (of_values ? p.value_dim : p.head_dim) + d) % 61;
  return static_cast<double>((n * n + 11 * n + 29 * kTensor) % 61 - 30) / 16;
}

constexpr bool kGeneric = true;

constexpr Recipe kRecipes[] = {
    {"normal", "logits of deviation 1 at the usual scale: everything in its ordinary range", normal,
     normal, normal, normal, kGeneric},
    {"std10", "logits of deviation 10: errors of the score and of exp come through", spread<10>,
     spread<10>, normal, normal, kGeneric},
    {"std50", "logits of deviation 50: nearly one-hot rows, P underflows elsewhere", spread<50>,
     spread<50>, normal, normal},
    {"heavy_tail", "Student's t with 2 degrees of freedom: a few numbers dominate", heavy, heavy,
     heavy, heavy},
    {"near_ties", "all scores of a row nearly equal: rounding of P has one sign", normal, near_key,
     normal, normal},
    {"all_equal", "all scores equal: O is the mean of the visible V, LSE counts the keys",
     constant<3, 2>, constant<3, 2>, normal, normal},
    {"equal_huge", "Q, K and V one huge number: s - max must be exactly 0", equal_huge, equal_huge,
     equal_huge, normal},
    {"one_hot", "each row sees one key only: an exchanged key is an exchanged row of V",
     one_hot_query, sign, normal, normal},
    {"ascending", "scores rise with the key: every block rescales what came before", ramp_query,
     ascending_key, normal, normal},
    {"descending", "scores fall with the key: no block after the first rescales", ramp_query,
     descending_key, normal, normal},
    {"q0int", "Q = 0 and V integer: O is the mean, nearly exactly, and any miscount shows",
     constant<0>, normal, integer, small_integer},
    {"outliers", "one number in 1000 is ten times as large", outlier, outlier, outlier, outlier},
    {"sparse_ints", "small integers, mostly 0: sums are exact", sparse_integer, sparse_integer,
     sparse_integer, sparse_integer},
    {"key_names", "V names its key: a lost, doubled or leaked key shows among a thousand", quiet,
     quiet, name_of_key, name_of_query},
    {"cancelling", "V alternates +-1000: the sum cancels", normal, normal, cancelling, normal},
    {"halves", "V is 1000, then -1000: partial sums are far from the result", normal, normal,
     halves, normal},
    {"offset", "V around 100: what is lost from the denominator shows", normal, normal, offset,
     normal},
    {"huge", "scores and V as large as f32 arithmetic bears", query_at<67000>, key_at<67000>,
     scaled<60, 11>, normal},
    {"deep", "all scores far below any finite stand-in for -inf (-67000 for D up to 14)",
     query_at<-67000>, key_at<-67000>, normal, normal},
    {"low", "all scores near -120: exp(0 - LSE) of a padded key overflows f32", query_at<-120>,
     key_at<-120>, normal, normal},
    {"high", "all scores near 120: exp without the maximum taken off overflows f32", query_at<120>,
     key_at<120>, normal, normal},
    {"unbalanced", "Q huge and K tiny: only their product is moderate", scaled<56, 7>,
     scaled<-56, -7>, normal, normal},
    {"tiny", "scores vanish and V is near the smallest normal numbers", scaled<-40, -10>,
     scaled<-40, -10>, scaled<-100, -8>, normal},
    {"uniform", "[0, 1), as many suites use: nearly flat softmax", uniform, uniform, uniform,
     uniform},
    {"small", "of deviation 0.2, as some suites use: a tolerance may be as large as the signal",
     small_normal, small_normal, small_normal, small_normal},
    {"std3", "of deviation 3, as some suites use: rows are nearly one-hot where D is large",
     large_normal, large_normal, large_normal, large_normal},
    {"positive", "Q and K in [0, 1/2), V in [0, 1/sqrt D), as some suites use: nearly a mean",
     half_uniform, half_uniform, uniform_value, normal},
    {"subnormal", "Q below the smallest normal number, K large; V subnormal in f16",
     subnormal_query, subnormal_key, subnormal_value, normal},
    {"stagnant", "gradients whose first terms are large: a narrow sum takes no notice of the rest",
     stagnant_query, stagnant_key<64>, turning, fading<64>},
    {"stagnant_blocks", "the same, where a sum is rounded after blocks of 128 or fewer",
     stagnant_query, stagnant_key<128>, turning, fading<128>},
    {"far_above", "scores of 1e6 and more behind a diagonal: a mask that adds a number shows",
     far_query, far_key, normal, normal},
    {"exponents", "weights that cancel, up to what exp errs alike over an eighth of an octave",
     exponent_query, exponent_key, exponent_value, normal, kGeneric},
    {"lse_loss", "dO = 0: what gradient there is comes through LSE", normal, normal, normal,
     constant<0>},
    {"head_exponents", "the same of one query for each head, as decoding has it", exponent_head,
     exponent_key, exponent_value, normal, kGeneric},
    {"counted", "by a formula that a line of any language says: a failure told without Attest",
     counted<kQ>, counted<kK>, counted<kV>, counted<kDO>},
};

}  // namespace

std::span<const Recipe> recipes() { return kRecipes; }

const Recipe& recipe_of(const Case& test_case) {
  for (const Recipe& recipe : kRecipes) {
    if (recipe.name == test_case.data) return recipe;
  }
  throw InputError("", fmt::format("{}: no input class \"{}\"", test_case.id, test_case.data));
}

}  // namespace attest
