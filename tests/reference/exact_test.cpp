// The exact reference against closed forms: problems whose answer can be written down, in each of
// its number types; and against the definition of what it may not touch.
#include "reference/exact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <ostream>
#include <string>

#include "tests/reference/filled.h"
#include "tests/reference/random_problem.h"

namespace attest::exact {
namespace {

const double kNan = std::numeric_limits<double>::quiet_NaN();
const double kInfinity = std::numeric_limits<double>::infinity();

// Some number in -4 ... 4, which has no pattern that a test could fall for.
double some(Index b, Index h, Index s, Index c) {
  return static_cast<double>((b * 7919 + h * 104729 + s * 1299709 + c * 15485863) % 65) / 8 - 4;
}

// What is given and expected is written in numbers that hold those of all types.
using Real = Digits100;

Inputs<Real> some_inputs(const Problem& problem) {
  return {.q = filled<Real>(problem.q_shape(), some),
          .k = filled<Real>(problem.k_shape(), [](auto... at) { return some(at...) / 3; }),
          .v = filled<Real>(problem.v_shape(), [](auto... at) { return some(at...) + 1; }),
          .d_o = filled<Real>(problem.o_shape(), [](auto... at) { return some(at...) - 1; })};
}

template <typename To, typename From>
Tensor<To> as(const Tensor<From>& from) {
  Tensor<To> to;
  to.shape = from.shape;
  for (const From& x : from.data) to.data.push_back(static_cast<To>(x));
  return to;
}

template <typename To, typename From>
Inputs<To> as(const Inputs<From>& from) {
  return {.q = as<To>(from.q),
          .k = as<To>(from.k),
          .v = as<To>(from.v),
          .bias = as<To>(from.bias),
          .slopes = as<To>(from.slopes),
          .sink = as<To>(from.sink),
          .keep = from.keep,
          .d_o = as<To>(from.d_o),
          .d_lse = as<To>(from.d_lse)};
}

// The reference in one of its number types; these tests are compiled once for all of them.
struct Arithmetic {
  std::string name;
  Real epsilon;
  Inputs<Real> (*inputs_as)(const attest::Inputs&);
  Outputs<Real> (*forward)(const Problem&, const Inputs<Real>&);
  Gradients<Real> (*backward)(const Problem&, const Inputs<Real>&);

  friend std::ostream& operator<<(std::ostream& out, const Arithmetic& type) {
    return out << type.name;
  }
};

template <typename T>
Arithmetic arithmetic(const std::string& name) {
  return {.name = name,
          .epsilon = Real(std::numeric_limits<T>::epsilon()),
          .inputs_as = [](const attest::Inputs& in) { return as<Real>(exact::inputs_as<T>(in)); },
          .forward = [](const Problem& problem, const Inputs<Real>& in) -> Outputs<Real> {
            const Outputs<T> out = exact::forward(problem, as<T>(in));
            return {as<Real>(out.o), as<Real>(out.lse)};
          },
          .backward = [](const Problem& problem, const Inputs<Real>& in) -> Gradients<Real> {
            const Gradients<T> out = exact::backward(problem, as<T>(in));
            return {as<Real>(out.dq), as<Real>(out.dk), as<Real>(out.dv), as<Real>(out.dbias),
                    as<Real>(out.dsink)};
          }};
}

class ExactTest : public testing::TestWithParam<Arithmetic> {
 protected:
  static constexpr int kUlps = 32;  // for closed forms of a few operations on numbers below 10

  static Inputs<Real> inputs_as(const attest::Inputs& in) { return GetParam().inputs_as(in); }
  static Outputs<Real> forward(const Problem& problem, const Inputs<Real>& in) {
    return GetParam().forward(problem, in);
  }
  static Gradients<Real> backward(const Problem& problem, const Inputs<Real>& in) {
    return GetParam().backward(problem, in);
  }

  static void expect_near(const Real& actual, const Real& expected) {
    EXPECT_LE(abs(Real(actual - expected)), kUlps * GetParam().epsilon)
        << actual << " is not " << expected;
  }

  static void expect_near(const Tensor<Real>& actual, const Tensor<Real>& expected) {
    ASSERT_EQ(actual.shape, expected.shape);
    for (std::size_t n = 0; n < actual.data.size(); ++n) {
      if (actual.data[n] == expected.data[n]) continue;  // -inf too
      expect_near(actual.data[n], expected.data[n]);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(NumberTypes, ExactTest,
                         testing::Values(arithmetic<double>("Double"),
                                         arithmetic<long double>("LongDouble"),
                                         arithmetic<Quad>("Quad"),
                                         arithmetic<Digits100>("Digits100")),
                         [](const auto& type) { return type.param.name; });

TEST_P(ExactTest, ZeroQueriesGiveTheMeanOfTheVisibleValuesAndTheLogOfTheirNumber) {
  const Problem problem = {.query_len = 5,
                           .key_len = 5,
                           .head_dim = 3,
                           .value_dim = 2,
                           .mask = Mask::causal(Anchor::top_left)};
  Inputs<Real> in = some_inputs(problem);
  in.q = Tensor<Real>(problem.q_shape());
  const Outputs<Real> out = forward(problem, in);
  for (Index i = 0; i < 5; ++i) {
    expect_near(out.lse.at(0, 0, i, 0), log(Real(i + 1)));
    for (Index c = 0; c < 2; ++c) {
      Real sum = 0;
      for (Index j = 0; j <= i; ++j) sum += in.v.at(0, 0, j, c);
      expect_near(out.o.at(0, 0, i, c), sum / Real(i + 1));
    }
  }
}

TEST_P(ExactTest, TheOnlyVisibleKeyGivesItsValueAndItsScore) {
  const Problem problem = {.query_len = 4,
                           .key_len = 6,
                           .head_dim = 3,
                           .value_dim = 2,
                           .scale = -0.25,
                           .mask = Mask::window(0, 0, Anchor::bottom_right)};
  Inputs<Real> in = some_inputs(problem);
  in.k = filled<Real>(problem.k_shape(), some);  // of which scores are exact
  const Outputs<Real> out = forward(problem, in);
  const Gradients<Real> gradients = backward(problem, in);
  for (Index i = 0; i < 4; ++i) {
    const Index j = i + 2;
    Real score = 0;
    for (Index c = 0; c < 3; ++c) score += in.q.at(0, 0, i, c) * in.k.at(0, 0, j, c);
    EXPECT_EQ(out.lse.at(0, 0, i, 0), Real(-0.25) * score);
    for (Index c = 0; c < 2; ++c) {
      EXPECT_EQ(out.o.at(0, 0, i, c), in.v.at(0, 0, j, c));
      EXPECT_EQ(gradients.dv.at(0, 0, j, c), in.d_o.at(0, 0, i, c));
    }
  }
  EXPECT_THAT(gradients.dq.data, testing::Each(Real(0)));
  EXPECT_THAT(gradients.dk.data, testing::Each(Real(0)));
}

TEST_P(ExactTest, ValuesOfOneGiveOneAndNoGradientOfTheScores) {
  const Problem problem = {.query_heads = 2,
                           .key_heads = 2,
                           .query_len = 3,
                           .key_len = 5,
                           .head_dim = 4,
                           .value_dim = 2};
  Inputs<Real> in = some_inputs(problem);
  in.v = filled<Real>(problem.v_shape(), [](auto...) { return 1; });
  expect_near(forward(problem, in).o, filled<Real>(problem.o_shape(), [](auto...) { return 1; }));
  expect_near(backward(problem, in).dq, Tensor<Real>(problem.q_shape()));
}

TEST_P(ExactTest, TwoKeysShareByTheSigmoidOfTheDifferenceOfTheirScores) {
  const Problem problem = {.key_len = 2, .scale = 0.5};
  Inputs<Real> in = {
      .q = filled<Real>(problem.q_shape(), [](auto...) { return 2; }),
      .k = filled<Real>(problem.k_shape(), [](auto, auto, auto j, auto) { return 1 - j; }),
      .v = filled<Real>(problem.v_shape(), [](auto, auto, auto j, auto) { return 1 - j; }),
      .d_o = filled<Real>(problem.o_shape(), [](auto...) { return 1; })};
  // 1 / (1 + 1/e) and log(1 + e), in as many digits as the type can hold.
  const Real share(
      "0.7310585786300048792511592418218362743651446401650565192763659079190404530702046393"
      "87474532075981245292");
  const Real lse(
      "1.3132616875182228340489954949678556419152800856703483747190635148371949015091872209"
      "3620040627729239139");
  const Outputs<Real> out = forward(problem, in);
  expect_near(out.o.at(0, 0, 0, 0), share);
  expect_near(out.lse.at(0, 0, 0, 0), lse);
  // O = sigmoid(scale q (k0 - k1)), and the derivative of the sigmoid is O (1 - O).
  const Real slope = share * (1 - share);
  const Gradients<Real> gradients = backward(problem, in);
  expect_near(gradients.dq.at(0, 0, 0, 0), slope / 2);
  expect_near(gradients.dk.at(0, 0, 0, 0), slope);
  expect_near(gradients.dk.at(0, 0, 1, 0), -slope);
  expect_near(gradients.dv.at(0, 0, 0, 0), share);
  expect_near(gradients.dv.at(0, 0, 1, 0), 1 - share);
}

// With q = 0, n visible keys and a sink of log x share 1 : x with the sink.
TEST_P(ExactTest, ASinkTakesItsShareAndGivesNothing) {
  const Problem problem = {.batch = 2,
                           .query_heads = 2,
                           .query_len = 3,
                           .key_len = 3,
                           .value_dim = 2,
                           .mask = Mask::causal(Anchor::top_left),
                           .sink = true,
                           .backward = true,
                           .d_lse = true};
  Inputs<Real> in = some_inputs(problem);
  in.q = Tensor<Real>(problem.q_shape());
  in.sink = filled<Real>(problem.sink_shape(),
                         [](auto, auto h, auto, auto) { return log(h == 0 ? Real(1) : Real(4)); });
  in.d_lse = filled<Real>(problem.lse_shape(), some);
  const Outputs<Real> out = forward(problem, in);
  Tensor<Real> dsink(problem.sink_shape());
  for (Index n = 0; n < element_count(problem.lse_shape()); ++n) {
    const auto [b, h, i, only] = coordinates(problem.lse_shape(), n);
    const Real sink = h == 0 ? 1 : 4, sum = sink + Real(i + 1);
    expect_near(out.lse.at(b, h, i, 0), log(sum));
    Real common = 0;
    for (Index c = 0; c < 2; ++c) {
      Real o = 0;
      for (Index j = 0; j <= i; ++j) o += in.v.at(b, 0, j, c) / sum;
      expect_near(out.o.at(b, h, i, c), o);
      common += in.d_o.at(b, h, i, c) * o;
    }
    dsink.at(0, h, 0, 0) += sink / sum * (in.d_lse.at(b, h, i, 0) - common);
  }
  expect_near(backward(problem, in).dsink, dsink);
}

TEST_P(ExactTest, ASinkAloneIsTheLseOfRowsThatSeeNoKeyButNotOfThoseBeyondTheQueryLength) {
  // Of six queries on three keys the last doesn't exist, and the first two see no key.
  const Problem problem = {.query_len = 6,
                           .key_len = 3,
                           .mask = Mask::causal(Anchor::bottom_right),
                           .query_lens = {5},
                           .sink = true,
                           .backward = true,
                           .d_lse = true};
  Inputs<Real> in = some_inputs(problem);
  in.q = Tensor<Real>(problem.q_shape());
  in.v = Tensor<Real>(problem.v_shape());
  in.sink = filled<Real>(problem.sink_shape(), [](auto...) { return -2.5; });
  in.d_lse = filled<Real>(problem.lse_shape(), [](auto, auto, auto i, auto) {
    return i < 2 ? 8 + i : i < 5 ? 0.0 : kNan;
  });
  for (Index i : {0, 1, 5}) in.q.at(0, 0, i, 0) = in.d_o.at(0, 0, i, 0) = Real(kNan);
  const Outputs<Real> out = forward(problem, in);
  EXPECT_THAT(out.o.data, testing::Each(Real(0)));
  EXPECT_EQ(out.lse.at(0, 0, 0, 0), Real(-2.5));
  EXPECT_EQ(out.lse.at(0, 0, 1, 0), Real(-2.5));
  EXPECT_GT(out.lse.at(0, 0, 2, 0), Real(0));
  EXPECT_EQ(out.lse.at(0, 0, 5, 0), -std::numeric_limits<Real>::infinity());
  const Gradients<Real> gradients = backward(problem, in);
  EXPECT_EQ(gradients.dsink.at(0, 0, 0, 0), Real(17));
  EXPECT_THAT(gradients.dq.data, testing::Each(Real(0)));
  EXPECT_THAT(gradients.dk.data, testing::Each(Real(0)));
}

// One key: LSE is its score, so a dLSE of 1 makes the gradients those of the score.
TEST_P(ExactTest, TheScoreIsScaledThenCappedThenBiased) {
  const Problem problem = {.scale = 0.25,
                           .softcap = 2,
                           .bias_shape = Shape{1, 1, 1, 1},
                           .slopes_shape = Shape{1, 1, 1, 1},
                           .backward = true,
                           .d_lse = true};
  const auto one_of = [](double x) {
    return filled<Real>({1, 1, 1, 1}, [x](auto...) { return x; });
  };
  Inputs<Real> in = {.q = one_of(-4),
                     .k = one_of(1),
                     .v = one_of(3),
                     .bias = one_of(0.75),
                     .slopes = one_of(100),  // its distance is 0
                     .d_o = one_of(0),
                     .d_lse = one_of(1)};
  // tanh(1/2), which is (e - 1) / (e + 1).
  const Real tanh_half(
      "0.46211715726000975850231848364367254873028928033011303855273181583808090614040927877494"
      "90641519624905863");
  expect_near(forward(problem, in).lse.at(0, 0, 0, 0), Real(0.75) - 2 * tanh_half);
  const Gradients<Real> gradients = backward(problem, in);
  expect_near(gradients.dq.at(0, 0, 0, 0), (1 - tanh_half * tanh_half) / 4);
  expect_near(gradients.dk.at(0, 0, 0, 0), -(1 - tanh_half * tanh_half));
  EXPECT_EQ(gradients.dv.at(0, 0, 0, 0), Real(0));
  EXPECT_EQ(gradients.dbias.at(0, 0, 0, 0), Real(1));
}

TEST_P(ExactTest, ASaturatedSoftcapIsItself) {
  const Problem problem = {.key_len = 2, .softcap = 30, .backward = true, .d_lse = true};
  Inputs<Real> in = some_inputs(problem);
  in.q = filled<Real>(problem.q_shape(), [](auto...) { return 1e150; });
  in.k =
      filled<Real>(problem.k_shape(), [](auto, auto, auto j, auto) { return j == 0 ? 1 : -1e150; });
  in.d_lse = filled<Real>(problem.lse_shape(), [](auto...) { return 1; });
  expect_near(forward(problem, in).lse.at(0, 0, 0, 0), 30 + log(1 + exp(Real(-60))));
  EXPECT_THAT(backward(problem, in).dq.data, testing::Each(Real(0)));
}

// SCORE-4: queries and keys end together. Three of five queries exist, and five of six keys.
TEST_P(ExactTest, AlibiIsZeroFromTheLastQueryToTheLastKeyAndFallsOnBothSides) {
  Problem problem = {.query_heads = 2,
                     .query_len = 5,
                     .key_len = 6,
                     .mask = Mask::window(0, 0, Anchor::top_left),
                     .key_lens = {5},
                     .query_lens = {3},
                     .slopes_shape = Shape{1, 2, 1, 1}};
  Inputs<Real> in = some_inputs(problem);
  in.q = Tensor<Real>(problem.q_shape());
  in.slopes = filled<Real>(*problem.slopes_shape,
                           [](auto, auto h, auto, auto) { return h == 0 ? 0.5 : -0.25; });
  for (const Index offset : {-1, 0, 1, 2, 3, 4}) {
    problem.mask = Mask::window(0, 0, Anchor::top_left, offset);  // one key for each query
    const Outputs<Real> out = forward(problem, in);
    for (Index i = 0; i < 3; ++i) {
      if (i + offset < 0 || i + offset >= 5) continue;
      const Index distance = offset < 2 ? 2 - offset : offset - 2;
      EXPECT_EQ(out.lse.at(0, 0, i, 0), Real(distance) * Real(-0.5));
      EXPECT_EQ(out.lse.at(0, 1, i, 0), Real(distance) * Real(0.25));
    }
  }
}

// DROP-1: the denominator and LSE count the dropped keys too; a row that loses all isn't empty.
TEST_P(ExactTest, DropoutLeavesLseAndDividesByTheProbabilityOfKeeping) {
  // To the reference a mask that a testee drew is a mask like any other.
  for (const auto mode : {Dropout::Mode::given, Dropout::Mode::generated}) {
    const Problem problem = {
        .query_len = 2, .key_len = 4, .dropout = {.mode = mode, .probability = 0.75}};
    Inputs<Real> in = some_inputs(problem);
    in.q = Tensor<Real>(problem.q_shape());
    in.keep = {problem.keep_shape(), {0, 1, 0, 1, 0, 0, 0, 0}};
    const Outputs<Real> out = forward(problem, in);
    expect_near(out.o.at(0, 0, 0, 0), in.v.at(0, 0, 1, 0) + in.v.at(0, 0, 3, 0));
    EXPECT_EQ(out.o.at(0, 0, 1, 0), Real(0));
    expect_near(out.lse.at(0, 0, 0, 0), log(Real(4)));
    expect_near(out.lse.at(0, 0, 1, 0), log(Real(4)));
  }
}

TEST_P(ExactTest, FiniteScoresNeverOverflow) {
  const Problem problem = {.query_len = 2, .key_len = 3};
  const Real huge = 1e150;
  const Inputs<Real> in = {
      .q = filled<Real>(problem.q_shape(),
                        [&](auto, auto, auto i, auto) { return i == 0 ? huge : -huge; }),
      .k = filled<Real>(problem.k_shape(),
                        [&](auto, auto, auto j, auto) { return Real(j - 1) * huge; }),
      .v = filled<Real>(problem.v_shape(), [](auto, auto, auto j, auto) { return 10 + j; })};
  const Outputs<Real> out = forward(problem, in);
  EXPECT_EQ(out.o.at(0, 0, 0, 0), Real(12));
  EXPECT_EQ(out.o.at(0, 0, 1, 0), Real(10));
  expect_near(out.lse.at(0, 0, 0, 0) / (huge * huge), 1);
  expect_near(out.lse.at(0, 0, 1, 0) / (huge * huge), 1);
}

TEST_P(ExactTest, RowsThatSeeNoKeyAreZeroWithoutMassAndWithoutGradient) {
  // Five queries on three keys: the first two see none. The third batch element has no key at all.
  const Problem problem = {.batch = 3,
                           .query_len = 5,
                           .key_len = 3,
                           .head_dim = 2,
                           .value_dim = 2,
                           .mask = Mask::causal(Anchor::bottom_right),
                           .key_lens = {3, 3, 0}};
  const Inputs<Real> in = some_inputs(problem);
  const Outputs<Real> out = forward(problem, in);
  const Gradients<Real> gradients = backward(problem, in);
  for (Index b = 0; b < 3; ++b) {
    for (Index i = 0; i < 5; ++i) {
      const bool empty = b == 2 || i < 2;
      EXPECT_EQ(out.lse.at(b, 0, i, 0) == -std::numeric_limits<Real>::infinity(), empty);
      for (Index c = 0; c < 2; ++c) {
        EXPECT_EQ(out.o.at(b, 0, i, c) == Real(0), empty);
        // The row after the empty ones sees one key: no gradient of its scores either.
        EXPECT_EQ(gradients.dq.at(b, 0, i, c) == Real(0), empty || i == 2);
      }
    }
  }
  for (Index j = 0; j < 3; ++j) {
    EXPECT_EQ(gradients.dk.at(2, 0, j, 0), Real(0));
    EXPECT_EQ(gradients.dv.at(2, 0, j, 0), Real(0));
    EXPECT_NE(gradients.dv.at(1, 0, j, 0), Real(0));
  }
}

TEST_P(ExactTest, AnySizeMayBeZero) {
  const Problem usual = {.batch = 2,
                         .query_heads = 2,
                         .key_heads = 1,
                         .query_len = 3,
                         .key_len = 4,
                         .head_dim = 2,
                         .value_dim = 3};
  for (Index Problem::*size : {&Problem::batch, &Problem::query_heads, &Problem::query_len,
                               &Problem::key_len, &Problem::head_dim, &Problem::value_dim}) {
    Problem problem = usual;
    problem.*size = 0;
    const Inputs<Real> in = some_inputs(problem);
    const Outputs<Real> out = forward(problem, in);
    const Gradients<Real> gradients = backward(problem, in);
    EXPECT_EQ(out.o.shape, problem.o_shape());
    EXPECT_EQ(out.lse.shape, problem.lse_shape());
    EXPECT_EQ(gradients.dk.shape, problem.k_shape());
    if (problem.key_len == 0) {
      EXPECT_THAT(out.o.data, testing::Each(Real(0)));
      EXPECT_THAT(out.lse.data, testing::Each(-std::numeric_limits<Real>::infinity()));
    }
    if (problem.query_len == 0) {
      EXPECT_THAT(gradients.dv.data, testing::Each(Real(0)));
    }
    if (problem.head_dim == 0) {  // all scores are 0
      expect_near(out.lse.data.front(), 2 * log(Real(2)));
      expect_near(out.o.at(0, 0, 0, 0), (in.v.at(0, 0, 0, 0) + in.v.at(0, 0, 1, 0) +
                                         in.v.at(0, 0, 2, 0) + in.v.at(0, 0, 3, 0)) /
                                            4);
    }
  }
  Problem without_heads = usual;
  without_heads.query_heads = without_heads.key_heads = 0;
  EXPECT_TRUE(forward(without_heads, some_inputs(without_heads)).o.data.empty());
}

TEST_P(ExactTest, AGroupOfQueryHeadsReadsOneKeyHeadWhoseGradientIsTheSumOverTheGroup) {
  const Problem grouped = {.batch = 2,
                           .query_heads = 6,
                           .key_heads = 3,
                           .query_len = 2,
                           .key_len = 3,
                           .head_dim = 2,
                           .value_dim = 2,
                           .scale = 0.125};
  Problem repeated = grouped;
  repeated.key_heads = 6;
  const Inputs<Real> in = some_inputs(grouped);
  Inputs<Real> in_repeated = in;
  in_repeated.k = filled<Real>(
      repeated.k_shape(), [&](auto b, auto h, auto j, auto c) { return in.k.at(b, h / 2, j, c); });
  in_repeated.v = filled<Real>(
      repeated.v_shape(), [&](auto b, auto h, auto j, auto c) { return in.v.at(b, h / 2, j, c); });
  EXPECT_EQ(forward(grouped, in).o.data, forward(repeated, in_repeated).o.data);
  EXPECT_EQ(forward(grouped, in).lse.data, forward(repeated, in_repeated).lse.data);

  const Gradients<Real> one = backward(grouped, in), each = backward(repeated, in_repeated);
  EXPECT_EQ(one.dq.data, each.dq.data);
  const auto summed = [](const Tensor<Real>& of, const Shape& shape) {
    return filled<Real>(shape, [&](auto b, auto h, auto j, auto c) {
      return Real(of.at(b, 2 * h, j, c) + of.at(b, 2 * h + 1, j, c));
    });
  };
  expect_near(one.dk, summed(each.dk, one.dk.shape));
  expect_near(one.dv, summed(each.dv, one.dv.shape));
}

TEST_P(ExactTest, InputsAreTakenOverBitForBit) {
  const Problem problem = {.key_len = 3, .head_dim = 2};
  attest::Inputs numbers = {
      .q = zeros(problem.q_shape()), .k = zeros(problem.k_shape()), .v = zeros(problem.v_shape())};
  numbers.k.data = {0.1, -3e-310, 1e300, -0.0, 5, 1.0 / 3};
  const Inputs<Real> in = inputs_as(numbers);
  for (std::size_t n = 0; n < 6; ++n)
    EXPECT_EQ(static_cast<double>(in.k.data[n]), numbers.k.data[n]);
  EXPECT_EQ(in.k.shape, problem.k_shape());
  EXPECT_TRUE(in.d_o.data.empty());
}

TEST_P(ExactTest, InputsOfEveryKindAreTakenOver) {
  const auto two = [](double x) { return Values{{1, 1, 2, 1}, {x, -kInfinity}}; };
  const attest::Inputs numbers = {.q = two(1),
                                  .k = two(2),
                                  .v = two(3),
                                  .bias = two(4),
                                  .slopes = two(5),
                                  .sink = two(6),
                                  .keep = {{1, 1, 1, 3}, {0, 1, 1}},
                                  .d_o = two(7),
                                  .d_lse = two(8)};
  const Inputs<Real> in = inputs_as(numbers);
  int n = 0;
  for (const Tensor<Real>* tensor :
       {&in.q, &in.k, &in.v, &in.bias, &in.slopes, &in.sink, &in.d_o, &in.d_lse}) {
    EXPECT_EQ(tensor->shape, (Shape{1, 1, 2, 1}));
    EXPECT_THAT(tensor->data,
                testing::ElementsAre(Real(++n), -std::numeric_limits<Real>::infinity()));
  }
  EXPECT_EQ(in.keep.shape, numbers.keep.shape);
  EXPECT_EQ(in.keep.kept, numbers.keep.kept);
}

// The tutorial way to FlashAttention-2, N = 16 and d = 8 in blocks of 4 queries and 8 keys: an
// algorithm that shares no line with the formula, in so many digits that equal means equal.
TEST(ExactTutorialTest, TheOnlineSoftmaxInBlocksIsTheFormula) {
  using T = Digits100;
  constexpr Index kLength = 16, kDim = 8, kQueryBlock = 4, kKeyBlock = 8;
  const Problem problem = {.query_len = kLength,
                           .key_len = kLength,
                           .head_dim = kDim,
                           .value_dim = kDim,
                           .scale = 0.35355339059327376};
  const Inputs<T> in = some_inputs(problem);
  const T* q = in.q.data.data();
  const T* k = in.k.data.data();
  const T* v = in.v.data.data();
  const Outputs<T> out = forward(problem, in);

  for (Index top_row = 0; top_row < kLength; top_row += kQueryBlock) {
    T m[kQueryBlock], l[kQueryBlock], o[kQueryBlock][kDim];
    for (Index r = 0; r < kQueryBlock; ++r) {
      m[r] = -std::numeric_limits<T>::infinity();
      l[r] = 0;
      for (T& x : o[r]) x = 0;
    }
    for (Index left = 0; left < kLength; left += kKeyBlock) {
      for (Index r = 0; r < kQueryBlock; ++r) {
        T s[kKeyBlock], m_new = m[r];
        for (Index n = 0; n < kKeyBlock; ++n) {
          s[n] = 0;
          for (Index c = 0; c < kDim; ++c)
            s[n] += q[(top_row + r) * kDim + c] * k[(left + n) * kDim + c];
          s[n] *= T(problem.scale);
          if (s[n] > m_new) m_new = s[n];
        }
        const T shrink = left == 0 ? T(0) : T(exp(T(m[r] - m_new)));
        l[r] *= shrink;
        for (T& x : o[r]) x *= shrink;
        for (Index n = 0; n < kKeyBlock; ++n) {
          const T p = exp(T(s[n] - m_new));
          l[r] += p;
          for (Index c = 0; c < kDim; ++c) o[r][c] += p * v[(left + n) * kDim + c];
        }
        m[r] = m_new;
      }
    }
    for (Index r = 0; r < kQueryBlock; ++r) {
      EXPECT_LT(abs(out.lse.at(0, 0, top_row + r, 0) - (m[r] + log(l[r]))), T("1e-95"));
      for (Index c = 0; c < kDim; ++c) {
        EXPECT_LT(abs(out.o.at(0, 0, top_row + r, c) - o[r][c] / l[r]), T("1e-95"));
      }
    }
  }
}

// With q = 0 and a V that names its key, O lists what a query sees and dropout keeps.
RC_GTEST_PROP(ExactPropertyTest, EachQuerySeesExactlyTheVisibleKeys,
              (RandomProblem<6, kTraining> random)) {
  Problem& problem = random.problem;
  problem.value_dim = problem.key_len;
  Inputs<double> in = inputs_as<double>(random.inputs);
  in.q = Tensor<double>(problem.q_shape());
  in.v = Tensor<double>(problem.v_shape());
  for_each_position(problem, [&](const Position& at) {
    if (at.key < problem.stored_keys(at.batch)) key_element(problem, in.v, at, at.key) = 1;
  });
  const Outputs<double> out = forward(problem, in);
  for_each_position(problem, [&](const Position& at) {
    if (at.query >= problem.stored_queries(at.batch)) return;
    const bool sees = query_element(problem, out.o, at, at.key) != 0;
    const bool kept = in.keep.kept.empty() || in.keep.at(at);
    RC_ASSERT(sees == (takes_part(problem, random.inputs, at) && kept));
  });
}

// What a backward pass is given, it takes: its own O and LSE change nothing, and with an LSE that
// is larger by log 2 each P is half as large, and so is dV.
RC_GTEST_PROP(ExactPropertyTest, TheBackwardPassTakesTheOAndLseThatItIsGiven,
              (const RandomProblem<5, kTraining>& random)) {
  const Problem& problem = random.problem;
  const auto in = inputs_as<long double>(random.inputs);
  Outputs<long double> given = forward(problem, in);
  const auto gradients = backward(problem, in), again = backward(problem, in, given);
  const auto near = [](const auto& actual, const auto& expected, long double times = 1) {
    for (std::size_t n = 0; n < expected.data.size(); ++n) {
      const long double wanted = times * expected.data[n];
      RC_ASSERT(std::abs(actual.data[n] - wanted) <= 1e-12L * (1 + std::abs(wanted)));
    }
  };
  near(again.dq, gradients.dq);
  near(again.dk, gradients.dk);
  near(again.dv, gradients.dv);
  near(again.dbias, gradients.dbias);
  near(again.dsink, gradients.dsink);
  for (long double& lse : given.lse.data) lse += std::numbers::ln2_v<long double>;
  near(backward(problem, in, given).dv, gradients.dv, 0.5L);
}

// NaN in keys that nobody sees, in unused pages, in queries that see none, and in the dO of such;
// also in their dLSE, unless there is a sink; and another keep-mask wherever nothing is visible.
RC_GTEST_PROP(ExactPropertyTest, WhatIsNotVisibleIsNotTouched, (const RandomProblem<5>& random)) {
  const Problem& problem = random.problem;
  const Inputs<double> plain = inputs_as<double>(random.inputs);
  Inputs<double> poisoned = plain;
  const auto poison_but = [](const std::vector<bool>& rows, Tensor<double>& tensor) {
    const auto channels = static_cast<std::size_t>(tensor.shape[kChannel]);
    for (std::size_t n = 0; n < tensor.data.size(); ++n) {
      if (!rows[n / channels]) tensor.data[n] = kNan;
    }
  };
  const std::vector<bool> keys = keys_that_are_seen(problem, random.inputs);
  const std::vector<bool> queries = rows_that_see(problem, random.inputs);
  poison_but(keys, poisoned.k);
  poison_but(keys, poisoned.v);
  poison_but(queries, poisoned.q);
  poison_but(queries, poisoned.d_o);
  if (!problem.sink) poison_but(queries, poisoned.d_lse);
  std::size_t n = 0;
  for_each_position(problem, [&](const Position& at) {
    if (!poisoned.keep.kept.empty() && !takes_part(problem, random.inputs, at)) {
      poisoned.keep.kept[n] ^= 1;
    }
    ++n;
  });
  const Outputs<double> out = forward(problem, plain), out_poisoned = forward(problem, poisoned);
  RC_ASSERT(out.o.data == out_poisoned.o.data);
  RC_ASSERT(out.lse.data == out_poisoned.lse.data);
  if (!problem.backward) return;
  const Gradients<double> gradients = backward(problem, plain);
  const Gradients<double> gradients_poisoned = backward(problem, poisoned);
  RC_ASSERT(gradients.dq.data == gradients_poisoned.dq.data);
  RC_ASSERT(gradients.dk.data == gradients_poisoned.dk.data);
  RC_ASSERT(gradients.dv.data == gradients_poisoned.dv.data);
  RC_ASSERT(gradients.dbias.data == gradients_poisoned.dbias.data);
  RC_ASSERT(gradients.dsink.data == gradients_poisoned.dsink.data);
}

}  // namespace
}  // namespace attest::exact
