// What becomes of scores between the product and the softmax: where the softcap stands, scales of 0
// and below; and how often generated dropout keeps.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "cases/generate.h"
#include "harness/probe/drawn_case.h"
#include "harness/probe/questions.h"

namespace attest {
namespace {

// A row whose LSE is the one score, and what it comes to in each order of the steps.
void ask_softcap(Bench& bench, Answers& answers) {
  Answer answer = {.key = "place of the softcap", .is_key = false};
  const DType dtype = bench.telling_format();
  Stage stage = bench.stage(dtype, 1, 1, 1);
  Problem& p = stage.problem;
  if (!bench.returns_lse() || p.key_len != 1) {
    answer.words = bench.returns_lse() ? "it takes no single key" : bench.no_lse;
    return answers.push_back(std::move(answer));
  }
  const double scale = p.scale = 0.5, c = p.softcap = 2, product = 4, bias = 1;
  p.bias_shape = Shape{1, 1, 1, 1};
  stage.inputs.bias = {*p.bias_shape, {bias}};
  stage.q(0, 0) = product;
  stage.k(0, 0) = 1;
  const auto cap = [&](double x) { return c * std::tanh(x / c); };
  const std::pair<const char*, double> orders[] = {
      {"scale, cap, bias", cap(scale * product) + bias},
      {"scale, bias, cap", cap(scale * product + bias)},
      {"cap, scale, bias", scale * cap(product) + bias},
      {"bias, scale, cap", cap(scale * (product + bias))},
      {"scale, bias: there is no cap", scale * product + bias}};
  Reaction reaction = bench.ask(stage);
  const bool with_bias = reaction.taken() || reaction.broke;
  if (!with_bias) {
    p.bias_shape.reset();
    stage.inputs.bias = {};
    reaction = bench.ask(stage);
  }
  answer.inputs = fmt::format("{}, q k = {}, bias {}", to_string(p), product, with_bias ? bias : 0);
  if (!reaction.taken()) return answers.push_back(untaken(std::move(answer), reaction));
  const double lse = Bench::of_row(reaction, TensorName::lse, stage, 0);
  for (const auto& [order, expected] : orders) {
    const double score = with_bias ? expected : expected - bias;
    if (answer.value.is_null() && std::abs(lse - score) < 5e-3) answer.value = order;
  }
  answer.words = fmt::format("LSE of one key is {:.6g}", lse);
  answers.push_back(std::move(answer));
}

// Whether what comes back is right, of a problem of case files.
void ask_right(Bench& bench, const std::string& key, const nlohmann::json& fields,
               Answers& answers) {
  Answer answer = {.key = key, .is_key = false};
  const Case it = drawn_case(bench, bench.telling_format(), fields);
  const Inputs inputs = generate(it);
  const Reaction reaction = bench.ask(it.problem, inputs);
  answer.inputs = to_string(it.problem);
  if (!reaction.taken()) {
    answer = untaken(std::move(answer), reaction);
  } else {
    const auto wrong = wrong_of(bench, it, inputs, reaction);
    answer.value = wrong ? "wrong" : "right";
    answer.words = wrong.value_or("what comes back is right");
  }
  answers.push_back(std::move(answer));
}

// How far the rate of keeping is from 1 - p, as chance lets it be told.
void ask_keep_rate(Bench& bench, Answers& answers) {
  if (told(answers, "features.dropout-generated") != true) {
    return answers.push_back(means_nothing("keep_quantum", "it draws no keep-mask"));
  }
  Answer answer = {.key = "keep_quantum", .declared = Answer::Declared::at_least};
  const DType dtype = bench.telling_format();
  double off = 0, noise = 0;
  for (const double probability : {0.001, 0.2503, 0.7}) {
    Stage stage = bench.stage(dtype, 512, 512, 512);
    stage.problem.dropout = {
        .mode = Dropout::Mode::generated, .probability = probability, .seed = 1};
    const Reaction reaction = bench.ask(stage.problem, zero_inputs(stage.problem));
    answer.inputs = fmt::format("{}, probabilities 0.001, 0.2503, 0.7", to_string(stage.problem));
    if (reaction.broke) return answers.push_back(untaken(std::move(answer), reaction));
    if (!reaction.taken() || !reaction.trial.keep) {
      answer.value = 0;
      answer.words = reaction.refused.empty() ? "it returns no keep-mask" : reaction.refused;
      answer.declared = Answer::Declared::any;
      return answers.push_back(std::move(answer));
    }
    const auto& kept = reaction.trial.keep->kept;
    const auto all = static_cast<double>(kept.size());
    const auto rate = static_cast<double>(std::count(kept.begin(), kept.end(), 1)) / all;
    const double sigma = std::sqrt(probability * (1 - probability) / all);
    noise = std::max(noise, 5 * sigma);
    off = std::max(off, std::abs(rate - (1 - probability)) - 5 * sigma);
  }
  answer.value = std::max(0.0, off);
  answer.words = fmt::format("rates are off by {} beyond what chance may do, {:.2g}",
                             off > 0 ? fmt::format("{:.3g}", off) : "nothing", noise);
  answers.push_back(std::move(answer));
}

}  // namespace

void ask_scores(Bench& bench, Answers& answers) {
  ask_softcap(bench, answers);
  ask_right(bench, "a scale of 0", {{"scale", 0}}, answers);
  ask_right(bench, "a negative scale", {{"scale", -0.5}}, answers);
  ask_keep_rate(bench, answers);
}

}  // namespace attest
