// What becomes of numbers at the edges of a format: subnormal inputs and results, and the last
// digit of O.
#include <fmt/format.h>

#include <cmath>

#include "harness/probe/questions.h"

namespace attest {
namespace {

// A subnormal number times a large one is an ordinary one: a term of dP, which nothing has touched
// before, or else a score.
void ask_inputs(Bench& bench, DType dtype, Answers& answers) {
  const std::string key = key_of(dtype, "subnormal_inputs");
  const bool backward = bench.has_backward;
  if (!backward && !bench.returns_lse()) return answers.push_back(untold(key, bench.no_lse));
  const double small = smallest_normal(dtype) / 8;
  const double large = dtype == DType::f16 ? 0x1p14 : 1 / (64 * small);
  Stage stage = bench.stage(dtype, 1, 2, 64, backward);
  if (backward) {
    stage.v(0, 0) = small;
    stage.v(1, 0) = -small;
    stage.d_o(0, 0) = large;
    stage.k(0, 0) = 1;
  } else {
    stage.q(0, 0) = small;
    stage.k(0, 0) = stage.k(1, 0) = large;
  }
  const Reaction reaction = bench.ask(stage);
  if (!reaction.taken()) return answers.push_back(untold(key, reaction.refused));
  // The score is the same for both keys: LSE is that and ln 2.
  const double seen = backward ? Bench::of_row(reaction, TensorName::dq, stage, 0)
                               : Bench::of_row(reaction, TensorName::lse, stage, 0) - std::log(2.0);
  const double kept = (backward ? 0.5 : 1) * small * large;  // P is 1/2
  const bool flushed = std::abs(seen) < kept / 2;
  // Operands of a shorter range are something else than subnormal numbers of this one.
  const std::string operands =
      key_of(dtype, fmt::format("products.{}.operands", backward ? "dp" : "qk"));
  if ((!flushed && !near(seen, kept)) || (flushed && told(answers, operands).is_null())) {
    return answers.push_back(
        untold(key, fmt::format("{:g} times {:g} comes to {:g}", small, large, seen),
               to_string(stage.problem)));
  }
  answers.push_back(
      {.key = key,
       .value = flushed ? "flushed" : "kept",
       .words = fmt::format("{:g} times {:g} comes to {:g}", small, large, seen),
       .inputs = fmt::format("{}, {}", to_string(stage.problem), backward ? "V and dO" : "Q and K"),
       .declared = flushed ? Answer::Declared::equal : Answer::Declared::any});
}

// The mean of a normal number and three times 0.
void ask_outputs(Bench& bench, DType dtype, Answers& answers) {
  const std::string key = key_of(dtype, "subnormal_outputs");
  Stage stage = bench.stage(dtype, 1, 4);
  const double normal = smallest_normal(dtype);
  stage.v(0, 0) = normal;
  const Reaction reaction = bench.ask(stage);
  if (!reaction.taken()) return answers.push_back(untold(key, reaction.refused));
  const double o = Bench::of_row(reaction, TensorName::o, stage, 0, 0);
  const std::string inputs =
      fmt::format("{}; the mean of {:g}, 0, 0, 0 is {:g}", to_string(stage.problem), normal, o);
  // A short range is computed in a format that has its subnormals among the normal numbers.
  const bool in_doubt =
      told(answers, key_of(dtype, "products.pv.operands")).is_null() ||
      (!has_short_range(dtype) && told(answers, key_of(dtype, "subnormal_inputs")) != "kept");
  if (o == 0 && in_doubt) {
    return answers.push_back(
        untold(key, "inputs may be flushed: what O is computed from, not O itself", inputs));
  }
  answers.push_back({.key = key,
                     .value = o == 0 ? "flushed" : "kept",
                     .words = o == 0 ? "a subnormal result is 0" : "a subnormal result is there",
                     .inputs = inputs,
                     .declared = o == 0 ? Answer::Declared::equal : Answer::Declared::any});
}

// Means of four numbers that lie between two numbers of the format.
void ask_rounding(Bench& bench, DType dtype, Answers& answers) {
  const std::string key = key_of(dtype, "output_rounding");
  if (told(answers, key_of(dtype, "exp_zero")) == "inexact") {
    return answers.push_back(untold(key, "exp(0) is not 1: no mean is exact"));
  }
  if (dtype == wide_of(dtype)) {
    return answers.push_back({.key = key,
                              .value = "nearest",
                              .words = "O is stored in the format in which it is computed",
                              .declared = Answer::Declared::any});
  }
  Stage stage = bench.stage(dtype, 1, 4);
  const double digit = 2 * unit_roundoff(dtype);
  const Index channels = stage.problem.value_dim;
  std::vector<double> exact;
  for (Index c = 0; c < channels; ++c) {
    const double sign = c % 2 == 0 ? 1 : -1;
    double sum = 0;
    for (Index j = 0; j < 4; ++j) {
      stage.v(j, c) = sign * (1 + digit * static_cast<double>((c / 2 * (j + 1) + j * j) % 7));
      sum += stage.v(j, c);
    }
    exact.push_back(sum / 4);
  }
  const Reaction reaction = bench.ask(stage);
  if (!reaction.taken()) return answers.push_back(untold(key, reaction.refused));
  Index nearest = 0, neighbour = 0;
  for (Index c = 0; c < channels; ++c) {
    const double o = Bench::of_row(reaction, TensorName::o, stage, 0, c);
    const double mean = exact[static_cast<std::size_t>(c)];
    nearest += o == round_to(dtype, mean);
    neighbour += std::abs(o - mean) < digit;
  }
  Answer answer = {
      .key = key,
      .words = fmt::format("of {} means, {} are the nearest number", channels, nearest),
      .inputs = to_string(stage.problem) + "; means of four numbers next to 1 and -1"};
  if (nearest == channels) {
    answer.value = "nearest";
    answer.declared = Answer::Declared::any;
  } else if (neighbour == channels && sums_are_exact(bench, dtype, answers)) {
    answer.value = "faithful";
  }
  answers.push_back(std::move(answer));
}

}  // namespace

void ask_formats(Bench& bench, DType dtype, Answers& answers) {
  ask_inputs(bench, dtype, answers);
  ask_outputs(bench, dtype, answers);
  ask_rounding(bench, dtype, answers);
}

}  // namespace attest
