#include "harness/probe/questions.h"

#include <fmt/format.h>

#include <cmath>

namespace attest {
namespace {

// In this order: what is told first is what later ones are asked by.
constexpr Family kFamilies[] = {
    {.about = "what stands for LSE", .ask = ask_statistics},
    {.about = "masks, and rows without keys", .ask = ask_masks},
    {.about = "features", .ask = ask_features},
    {.about = "limits", .ask = ask_limits},
    {.about = "scores and dropout", .ask = ask_scores},
    {.about = "products", .ask_format = ask_products},
    {.about = "the softmax", .ask_format = ask_softmax},
    {.about = "P", .ask_format = ask_weights},
    {.about = "parts and steps", .ask_format = ask_blocks},
    {.about = "gradients", .ask_format = ask_gradients},
    {.about = "the edges of formats", .ask_format = ask_formats},
    {.about = "equal bits", .ask_format = ask_promises},
    {.about = "threads, memory, blocks, alignment", .ask = ask_resources},
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

bool near(double value, double expected) {
  return std::abs(value - expected) <= 0.01 * std::abs(expected);
}

DType wide_of(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

}  // namespace attest
