#include "harness/process/device_call.h"

#include <fmt/format.h>

#include <cstddef>
#include <utility>

#include "spec/json_reader.h"

namespace attest {

attest_call_mode mode_of(const nlohmann::json& request) {
  const std::string text = request.value("mode", "");
  if (text.empty()) return ATTEST_CALL_ORDINARY;
  if (text == "stream") return ATTEST_CALL_STREAM;
  if (text == "two-streams") return ATTEST_CALL_TWO_STREAMS;
  if (text == "graph") return ATTEST_CALL_GRAPH;
  throw InputError("", fmt::format("no mode of a call is called {}", text));
}

void Regions::note(const std::string& name, const nlohmann::json& tensor, void* data) {
  const auto offset = tensor.at("offset").get<std::uint64_t>();
  const std::uint64_t before = offset - tensor.at("region_offset").get<std::uint64_t>();
  std::vector<attest_stretch>& there = there_.emplace_back();
  for (const auto& [begin, end] :
       tensor.value("there", std::vector<std::pair<std::uint64_t, std::uint64_t>>())) {
    there.push_back({begin, end});
  }
  const bool is_whole = !tensor.contains("there");
  regions_.push_back({.struct_size = sizeof(attest_region),
                      .name = names_.emplace_back(name).c_str(),
                      .data = static_cast<std::byte*>(data) - before,
                      .bytes = tensor.at("region_bytes").get<std::uint64_t>(),
                      .tensor_offset = before,
                      .tensor_bytes = tensor.at("bytes").get<std::uint64_t>(),
                      .output = tensor.at("memory") == "output",
                      .reserved = 0,
                      .there = is_whole ? nullptr : there.data(),
                      .there_count = there.size()});
}

void Regions::note(const std::string& name, void* data, std::uint64_t bytes) {
  regions_.push_back({.struct_size = sizeof(attest_region),
                      .name = names_.emplace_back(name).c_str(),
                      .data = data,
                      .bytes = bytes,
                      .tensor_offset = 0,
                      .tensor_bytes = bytes,
                      .output = 0,
                      .reserved = 0,
                      .there = nullptr,
                      .there_count = 0});
}

void Regions::tell(attest_context& context) const {
  context.regions = regions_.data();
  context.region_count = regions_.size();
}

nlohmann::json reply_to(attest_status status, const char* message) {
  const char* const text = message[0] ? message : "no message";
  if (status == ATTEST_GUARD || status == ATTEST_INPUT_MUTATED) {
    const char* const reason = status == ATTEST_GUARD ? "guard" : "input_mutated";
    return {{"status", "fault"}, {"reason", reason}, {"message", text}};
  }
  if (status == ATTEST_NO_MEMORY) {
    return {{"status", "error"}, {"reason", "no_memory"}, {"message", text}};
  }
  if (status == ATTEST_DEVICE_LOST) {
    return {{"status", "error"},
            {"message", fmt::format("the device is lost: {}", text)},
            {"ends", true}};
  }
  return {{"status", "error"}, {"message", fmt::format("status {}: {}", status, text)}};
}

}  // namespace attest
