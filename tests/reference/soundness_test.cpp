// No correct kernel exceeds the bound, and faulty ones do: the simulated kernels of tests/bounds,
// right but as different as real ones are, on inputs of every kind, each judged under the
// arithmetic that it declares; and one of them with a fault planted.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <numbers>
#include <random>

#include "reference/working.h"
#include "tests/bounds/kernel.h"
#include "tests/reference/some_features.h"

namespace attest {
namespace {

using bounds::Error;
using bounds::Order;
using bounds::Style;

// Of the simulator in tests/bounds, which has more of its own: measure_bounds tries those.
std::vector<Style> styles() {
  using Scale = Style::Scale;
  using ScaleDs = Style::ScaleDs;
  using Sink = Style::Sink;
  return {
      {.name = "naive", .folds_cap = true, .folds_d_lse = true},
      {.name = "naive, P normalised",
       .order = Order::pairwise,
       .normalises_p = true,
       .sums_bias = true,
       .divides_bias = true,
       .sink = Sink::last,
       .keeps_maximum = true,
       .slope_from_score = true,
       .d_by_key = true,
       .p_from_sum = true,
       .ds_from_narrow_p = true,
       .narrows_dbias = true},
      {.name = "fa2 1",
       .order = Order::fused,
       .block = 1,
       .sink = Sink::merged,
       .merges_lone_sink = true,
       .folds_cap = true,
       .drops_first = false,
       .drops_sums = true,
       .scale_ds = ScaleDs::before,
       .folds_d_lse = true},
      {.name = "fa2 16",
       .order = Order::fused_lanes,
       .block = 16,
       .base_2 = true,
       .sink = Sink::last,
       .keeps_maximum = true,
       .folds_cap = true,
       .coarse_tanh = true,
       .tanh_error = Error::scattered,
       .drops_first = false,
       .drops_sums = true,
       .folds_d_lse = true},
      {.name = "fa2 64",
       .order = Order::reversed,
       .block = 64,
       .base_2 = true,
       .exp_ulps = 2,
       .exp_error = Error::scattered,
       .scale = Scale::query,
       .slope_from_score = true,
       .scale_ds = ScaleDs::before,
       .ds_from_narrow_p = true,
       .narrows_dbias = true},
      {.name = "fa1 16",
       .block = 16,
       .renormalises = true,
       .sink = Sink::last,
       .keeps_maximum = true,
       .folds_cap = true,
       .coarse_tanh = true,
       .tanh_error = Error::scattered,
       .d_by_key = true,
       .folds_d_lse = true},
      {.name = "fa1 4",
       .order = Order::truncated_16,
       .block = 4,
       .renormalises = true,
       .base_2 = true,
       .sums_bias = true,
       .divides_bias = true,
       .folds_cap = true,
       .folds_d_lse = true},
      {.name = "split 4",
       .block = 4,
       .splits = 4,
       .scale = Scale::query,
       .sink = Sink::last,
       .keeps_maximum = true,
       .folds_cap = true,
       .drops_first = false,
       .drops_sums = true,
       .d_by_key = true,
       .folds_d_lse = true},
      {.name = "split 5",
       .order = Order::fused_lanes,
       .block = 2,
       .splits = 5,
       .merges_by_lse = true,
       .merges_natural_lse = true,
       .base_2 = true,
       .sink = Sink::merged,
       .merges_lone_sink = true,
       .folds_cap = true,
       .folds_d_lse = true},
      {.name = "split 2",
       .block = 16,
       .splits = 2,
       .merges_by_lse = true,
       .scale = Scale::query,
       .sink = Sink::last,
       .keeps_maximum = true,
       .folds_cap = true,
       .folds_d_lse = true},
      {.name = "split 3",
       .order = Order::truncated_16,
       .block = 8,
       .splits = 3,
       .base_2 = true,
       .exp_ulps = 2,
       .exp_error = Error::scattered,
       .sink = Sink::merged,
       .merges_lone_sink = true,
       .folds_cap = true,
       .scale_ds = ScaleDs::before,
       .folds_d_lse = true},
      {.name = "tensor core",
       .order = Order::truncated_16,
       .block = 16,
       .base_2 = true,
       .exp_ulps = 2,
       .exp_error = Error::scattered,
       .slope_from_score = true,
       .coarse_tanh = true,
       .tanh_error = Error::scattered},
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
  const double huge = has_short_range(problem.dtype) ? 1e2 : 1e15;
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
  add_some_features(problem, random, {0.7, 5.0, 50.0}, {0.1, 0.5, 0.9, 0.999});
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

// `returned` by a kernel that may have misread the problem, judged by what it was asked for.
Ratios ratios(const Problem& problem, const Inputs& inputs, const bounds::Outputs& returned,
              const Arithmetic& arithmetic) {
  const ForwardExpected forward = expect_forward(problem, inputs, arithmetic);
  const BackwardExpected backward = expect_backward(problem, inputs, arithmetic);
  const auto ratio = [&](const Expected& expected, DType dtype, const std::vector<double>& values) {
    return largest_ratio(expected, dtype, values, arithmetic.output_rounding);
  };
  return {{"o", ratio(forward.o, problem.dtype, returned.o)},
          {"lse", ratio(forward.lse, problem.lse_dtype(), returned.lse)},
          {"dq", ratio(backward.dq, problem.dtype, returned.dq)},
          {"dk", ratio(backward.dk, problem.dtype, returned.dk)},
          {"dv", ratio(backward.dv, problem.dtype, returned.dv)},
          {"dbias", ratio(backward.dbias, problem.dtype, returned.dbias)},
          {"dsink", ratio(backward.dsink, DType::f32, returned.dsink)}};
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
      const bounds::Outputs returned =
          run_kernel(problem, inputs, bounds::visible_elements(problem, inputs), style);
      for (const Arithmetic& arithmetic : {declared(style, dtype), loosest(dtype)}) {
        for (const auto& [tensor, ratio] : ratios(problem, inputs, returned, arithmetic)) {
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

// A fault is a right kernel that is told something else, or whose results are changed; or one in
// its style.
struct Call {
  Problem problem;
  Inputs inputs;
  std::vector<std::uint8_t> seen;
  Style style = {.name = "fa2 8", .block = 8, .base_2 = true};

  bounds::Outputs run() const { return run_kernel(problem, inputs, seen, style); }
};

struct Fault {
  std::string name;
  std::function<void(Call&)> plant;
  std::function<void(bounds::Outputs&)> spoil = [](bounds::Outputs&) {};
};

struct Planted {
  Fault fault;
  std::vector<std::string> tensors;  // where it shows
  Kind kind = Kind::normal;
};

class FaultTest : public testing::TestWithParam<DType> {};

void expect_caught(const Problem& problem, const Planted& planted) {
  std::mt19937_64 random(11);
  const Inputs inputs = make_inputs(problem, planted.kind, random);
  Call call = {problem, inputs, bounds::visible_elements(problem, inputs)};
  const Arithmetic arithmetic = declared(call.style, problem.dtype);
  const bounds::Outputs right = call.run();
  planted.fault.plant(call);
  bounds::Outputs wrong = call.run();
  planted.fault.spoil(wrong);
  Ratios judged = ratios(problem, inputs, right, arithmetic);
  Ratios caught = ratios(problem, inputs, wrong, arithmetic);
  Ratios caught_loosely = ratios(problem, inputs, wrong, loosest(problem.dtype));
  for (const std::string& tensor : planted.tensors) {
    EXPECT_LE(judged[tensor], 1) << tensor;
    EXPECT_GT(caught[tensor], 1) << tensor << ", " << planted.fault.name;
    EXPECT_GT(caught_loosely[tensor], 1) << tensor << " judged loosely, " << planted.fault.name;
  }
}

void scale_all(std::vector<double>& values, double factor) {
  for (double& value : values) value *= factor;
}

// Changes what is seen by the rows of Q, from the last to the first.
template <class T, class Change>
void change_rows(const Shape& scores, std::vector<T>& elements, const Change& change) {
  const auto keys = scores[kChannel];
  for (auto row = elements.end(); row != elements.begin(); row -= keys) {
    const Index i = (row - elements.begin()) / keys - 1;
    change(row - keys, row, i % scores[kPosition]);
  }
}

void drop_last_key(Call& call) {
  change_rows(call.problem.keep_shape(), call.seen, [](auto begin, auto end, Index) {
    if (std::count(begin, end, 1) > 1)
      *std::find(std::reverse_iterator(end), std::reverse_iterator(begin), 1) = 0;
  });
}
// Each row sees what the next one does.
void shift_mask(Call& call) {
  const Shape scores = call.problem.keep_shape();
  const std::vector<std::uint8_t> seen = call.seen;
  change_rows(scores, call.seen, [&](auto begin, auto end, Index i) {
    if (i + 1 < scores[kPosition]) {
      std::copy_n(seen.begin() + (end - call.seen.begin()), scores[kChannel], begin);
    }
  });
}
// Each row has the keep-mask of the row before.
void shift_keep(Call& call) {
  auto& kept = call.inputs.keep.kept;
  change_rows(call.problem.keep_shape(), kept, [&](auto begin, auto end, Index i) {
    if (i > 0) std::copy(begin - (end - begin), begin, begin);
  });
}

TEST_P(FaultTest, EveryFaultExceedsTheBound) {
  using Within = Style::Fault;
  const auto within = [](Within fault) { return [=](Call& call) { call.style.fault = fault; }; };
  const auto nothing = [](Call&) {};
  Problem problem = {.dtype = GetParam(),
                     .query_len = 40,
                     .key_len = 40,
                     .head_dim = 16,
                     .value_dim = 8,
                     .scale = 0.25,
                     .mask = Mask::causal(Anchor::bottom_right),
                     .backward = true};
  for (const Planted& planted :
       {Planted{{"the last key dropped", drop_last_key}, {"o", "lse", "dv"}},
        {{"the scale squared", [](Call& call) { call.problem.scale *= call.problem.scale; }},
         {"o", "dq", "dk"}},
        {{"the mask shifted", shift_mask}, {"o"}},
        {{"LSE in base 2", nothing,
          [](bounds::Outputs& out) { scale_all(out.lse, std::numbers::log2e); }},
         {"lse"}},
        {{"no rescale", within(Within::no_rescale)}, {"o", "lse"}, Kind::ascending}}) {
    expect_caught(problem, planted);
  }
  problem.softcap = 5;
  problem.bias_shape = {1, 1, 1, problem.key_len};
  problem.slopes_shape = {1, 1, 1, 1};
  problem.sink = problem.d_lse = true;
  problem.dropout = {.mode = Dropout::Mode::given, .probability = 0.25};
  for (const Planted& planted :
       {Planted{{"the bias added before the cap", within(Within::capped_bias)}, {"o"}},
        {{"no derivative of the cap", within(Within::no_cap_slope)}, {"dq", "dk"}},
        {{"the bias scaled",
          [](Call& call) { scale_all(call.inputs.bias.data, call.problem.scale); }},
         {"lse"}},
        {{"ALiBi turned", [](Call& call) { scale_all(call.inputs.slopes.data, -1); }}, {"lse"}},
        {{"the sink scaled",
          [](Call& call) { scale_all(call.inputs.sink.data, call.problem.scale); }},
         {"lse"}},
        {{"the keep-mask shifted", shift_keep}, {"o", "dv"}},
        {{"dLSE forgotten", [](Call& call) { scale_all(call.inputs.d_lse.data, 0); }},
         {"dq", "dbias", "dsink"}},
        {{"rows of dBias forgotten", within(Within::half_of_dbias)}, {"dbias"}},
        {{"dSink turned", nothing, [](bounds::Outputs& out) { scale_all(out.dsink, -1); }},
         {"dsink"}}}) {
    expect_caught(problem, planted);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, FaultTest, testing::ValuesIn(kDTypes),
                         [](const auto& format) { return std::string(name(format.param)); });

}  // namespace
}  // namespace attest
