#include "harness/probe/questions.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace attest {
namespace {

// In this order: what is told first is what later ones are asked by.
constexpr Family kFamilies[] = {
    {.ask = ask_statistics},        // what stands for LSE
    {.ask = ask_masks},             // masks, and rows without keys
    {.ask = ask_features},          // features
    {.ask = ask_limits},            // limits
    {.ask = ask_scores},            // scores and dropout
    {.ask_format = ask_products},   // products
    {.ask_format = ask_softmax},    // the softmax
    {.ask_format = ask_weights},    // P
    {.ask_format = ask_blocks},     // parts and steps
    {.ask_format = ask_gradients},  // gradients
    {.ask_format = ask_formats},    // the edges of formats
    {.ask_format = ask_promises},   // equal bits
    {.ask = ask_resources},         // threads, memory, blocks, alignment
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

std::string key_of(DType dtype, std::string_view key) {
  return fmt::format("arithmetic.{}.{}", name(dtype), key);
}

nlohmann::json told(const Answers& answers, const std::string& key) {
  for (const Answer& answer : answers) {
    if (answer.key == key) return answer.value;
  }
  return nullptr;
}

Answer untaken(Answer answer, const Reaction& reaction) {
  answer.value = reaction.broke ? nlohmann::json() : nlohmann::json("refused");
  answer.words = reaction.refused;
  return answer;
}

bool near(double value, double expected) {
  return std::abs(value - expected) <= 0.01 * std::abs(expected);
}

DType wide_of(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

}  // namespace attest
