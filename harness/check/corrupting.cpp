#include "harness/check/corrupting.h"

#include <cmath>
#include <optional>

#include "harness/process/arena.h"
#include "harness/process/elements.h"
#include "spec/assert.h"

namespace attest {
namespace {

void enlarge(Elements o) {
  std::optional<Index> largest;
  for (Index n = 0; n < o.count(); ++n) {
    if (!std::isfinite(o.value(n))) continue;
    if (!largest || std::abs(o.value(n)) > std::abs(o.value(*largest))) largest = n;
  }
  if (largest) o.put(*largest, 1.25 * o.value(*largest));
}

// In the pages of the tensor, before its data or behind it: a tensor that fills its pages has no
// such byte.
void change_beside(const nlohmann::json& o, std::byte* memory) {
  const auto number = [&](const char* key) { return o.at(key).get<std::size_t>(); };
  const std::size_t begin = number("region_offset"), end = begin + number("region_bytes");
  const std::size_t data = number("offset"), data_end = data + number("bytes");
  if (data > begin) {
    memory[data - 1] ^= std::byte(1);
  } else if (data_end < end) {
    memory[data_end] ^= std::byte(1);
  }
}

}  // namespace

const char* describe(Corruption corruption) {
  switch (corruption) {
    case Corruption::value:
      return "the largest element of O a quarter larger";
    case Corruption::beside:
      return "a byte beside O changed";
  }
  return "?";
}

Reply Corrupting::execute(nlohmann::json request) {
  const bool forward = request.at("op") == "forward";
  const nlohmann::json o = forward ? request.at("tensors").at("o") : nlohmann::json();
  Reply reply = executor_.execute(std::move(request));
  if (!forward || !reply.ok()) return reply;
  ATTEST_ASSERT(arena_);
  if (corruption_ == Corruption::value) {
    enlarge(Elements(o, arena_->outputs()));
  } else {
    change_beside(o, arena_->outputs());
  }
  return reply;
}

Arena& Corrupting::arena(std::size_t bytes) {
  arena_ = &executor_.arena(bytes);
  return *arena_;
}

}  // namespace attest
