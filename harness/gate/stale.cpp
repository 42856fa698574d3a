#include "harness/gate/stale.h"

#include <fmt/format.h>

#include "harness/fuzz/dice.h"
#include "harness/process/arena.h"
#include "harness/process/elements.h"
#include "spec/dtype.h"
#include "spec/json_text.h"
#include "spec/tensor_name.h"

namespace attest {
namespace {

// Larger outputs hold poison.
constexpr Index kMostElements = Index(1) << 22;

}  // namespace

Arena& Stale::arena(std::size_t bytes) {
  arena_ = &executor_.arena(bytes);
  return *arena_;
}

Reply Stale::execute(nlohmann::json request) {
  fill(request);
  return executor_.execute(std::move(request));
}

Reply Stale::measure(nlohmann::json request) {
  fill(request);
  return executor_.measure(std::move(request));
}

void Stale::fill(const nlohmann::json& request) {
  constexpr Index kParts = 1000;
  const auto tensors = request.find("tensors");
  if (tensors == request.end() || !arena_) return;
  Dice dice(fmt::format("stale/{}/{}", seed_, json_text(request)));
  for (const auto& [name, tensor] : tensors->items()) {
    const auto dtype = dtype_named(tensor.at("dtype").get<std::string>());
    if (tensor.at("memory") != "output" || tensor.contains("there") || !dtype) continue;
    if (dice.chance(50)) continue;  // poison stays
    Elements out(tensor, arena_->outputs());
    if (out.count() > kMostElements) continue;
    // What a mean of values, a log of a sum of weights, or a gradient may be.
    const double size = name == wire_name(TensorName::lse) ? 8 : 1;
    for (Index n = 0; n < out.count(); ++n) {
      out.put(n, size * static_cast<double>(dice.within(-kParts, kParts)) / kParts);
    }
  }
}

}  // namespace attest
