#include "cases/repair.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "spec/tensor_name.h"

namespace attest {
namespace {

using nlohmann::json;

void clamp_list(json& lens, Index count, Index most) {
  while (lens.size() > static_cast<std::size_t>(count)) lens.erase(lens.size() - 1);
  for (json& len : lens) len = std::min(len.get<Index>(), most);
}

void clamp_prefixes(json& mask, Index batch, Index most) {
  if (mask.is_object()) {
    for (auto& [key, value] : mask.items()) {
      if (key == "prefix") {
        clamp_list(value, std::max<Index>(batch, 1), most);
      } else {
        clamp_prefixes(value, batch, most);
      }
    }
  } else if (mask.is_array()) {
    for (json& part : mask) clamp_prefixes(part, batch, most);
  }
}

}  // namespace

Index longest_of(const json& problem, const char* lens) {
  Index most = 0;
  for (const json& len : problem.value(lens, json::array()))
    most = std::max(most, len.get<Index>());
  return most;
}

void repair(json& problem) {
  const bool packed = problem.value("packed", false), paged = problem.contains("paging");
  if (!problem.value("backward", false)) problem.erase("d_lse");
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
    if (const auto list = problem.find(lens); list != problem.end()) clamp_list(*list, batch, most);
  }
  if (const auto mask = problem.find("mask"); mask != problem.end()) {
    clamp_prefixes(*mask, batch, keys);
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
