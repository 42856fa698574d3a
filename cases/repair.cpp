#include "cases/repair.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "cases/resize.h"
#include "spec/tensor_name.h"

namespace attest {
using nlohmann::json;

Index longest_of(const json& problem, const char* lens) {
  Index most = 0;
  for (const json& len : problem.value(lens, json::array()))
    most = std::max(most, len.get<Index>());
  return most;
}

void repair(json& problem) {
  const bool packed = problem.value("packed", false), paged = problem.contains("paging");
  problem.erase(problem.value("backward", false) ? "stored" : "d_lse");
  if (const auto layouts = problem.find("layouts");
      layouts != problem.end() && layouts->is_object()) {
    if (!problem.contains("bias")) layouts->erase(wire_name(TensorName::bias));
    if (!problem.value("backward", false)) {
      layouts->erase(wire_name(TensorName::d_o));
      for (const TensorName gradient : kGradients) layouts->erase(wire_name(gradient));
    }
    if (layouts->empty()) problem.erase("layouts");
  }
  if (packed) problem.erase("query_len");
  if (packed || paged) problem.erase("key_len");
  const Index batch = problem.value("batch", Index(1));
  const Index keys =
      packed || paged ? longest_of(problem, "key_lens") : problem.value("key_len", Index(1));
  const Index queries =
      packed ? longest_of(problem, "query_lens") : problem.value("query_len", Index(1));
  for (const auto& [lens, most] : {std::pair{"key_lens", keys}, {"query_lens", queries}}) {
    if (const auto list = problem.find(lens); list != problem.end()) shorten(*list, batch, most);
  }
  if (const auto mask = problem.find("mask"); mask != problem.end()) {
    shorten_mask(*mask, batch, keys);
  }
  if (const auto alibi = problem.find("alibi");
      alibi != problem.end() && alibi->is_object() && alibi->contains("slopes")) {
    const Index times = alibi->value("axes", "h") == "bh" ? batch : 1;
    const auto count = static_cast<std::size_t>(problem.value("query_heads", Index(1)) * times);
    json& slopes = (*alibi)["slopes"];
    if (slopes.is_array() && slopes.size() != count) slopes = "standard";
  }
}

}  // namespace attest
