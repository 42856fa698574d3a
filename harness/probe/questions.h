// All questions, in families, a file each. A family of a format is asked once for each format that
// the testee takes; what it told stands in the answers that later families are given.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "harness/probe/answer.h"
#include "harness/probe/bench.h"
#include "spec/description.h"

namespace attest {

struct Family {
  // One of these.
  void (*ask)(Bench& bench, Answers& answers) = nullptr;
  void (*ask_format)(Bench& bench, DType dtype, Answers& answers) = nullptr;
};
std::span<const Family> families();

void ask_statistics(Bench& bench, Answers& answers);  // what stands for LSE; first of all
void ask_features(Bench& bench, Answers& answers);
void ask_limits(Bench& bench, Answers& answers);
void ask_masks(Bench& bench, Answers& answers);
void ask_scores(Bench& bench, Answers& answers);
void ask_resources(Bench& bench, Answers& answers);
void ask_products(Bench& bench, DType dtype, Answers& answers);
void ask_softmax(Bench& bench, DType dtype, Answers& answers);
void ask_weights(Bench& bench, DType dtype, Answers& answers);
void ask_blocks(Bench& bench, DType dtype, Answers& answers);
void ask_gradients(Bench& bench, DType dtype, Answers& answers);
void ask_formats(Bench& bench, DType dtype, Answers& answers);
void ask_promises(Bench& bench, DType dtype, Answers& answers);

// "arithmetic.f16.exp_ulp"
std::string key_of(DType dtype, std::string_view key);
// What was told of a key; null if nothing was.
nlohmann::json told(const Answers& answers, const std::string& key);
// An answer to a question whose problem was not taken: that it was refused, or nothing where the
// testee broke down.
Answer untaken(Answer answer, const Reaction& reaction);
// Whether sums over weights of equal scores are exact: as LSE told of exp(0), or else as O tells.
bool sums_are_exact(Bench& bench, DType dtype, const Answers& answers);
// Whether it is as good as that: what is to be told differs by far more.
bool near(double value, double expected);
// How bytes grow with the lengths, each twice the one before; none if that cannot be told of these.
std::optional<Growth> growth_of(std::span<const double> bytes);
// The format in which a format is accumulated.
DType wide_of(DType dtype);

}  // namespace attest
