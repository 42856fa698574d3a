#include "harness/command/machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

namespace attest {

std::string entry_of(const std::filesystem::path& file, const std::string& name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || !line.starts_with(name)) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

std::string processor() {
  constexpr const char* kTold[] = {"avx2",     "fma",      "avx512f",  "avx512_bf16", "avx512_fp16",
                                   "amx_tile", "amx_bf16", "amx_int8", "asimd",       "sve",
                                   "sve2",     "sme",      "bf16",     "i8mm"};
  const std::string cpuinfo = "/proc/cpuinfo";
  std::istringstream flags(entry_of(cpuinfo, "flags") + " " + entry_of(cpuinfo, "Features"));
  std::vector<std::string> has;
  for (std::string flag; flags >> flag;) {
    if (std::find(std::begin(kTold), std::end(kTold), flag) != std::end(kTold)) has.push_back(flag);
  }
  const std::string model = entry_of(cpuinfo, "model name");
  return fmt::format(
      "{}, {} hardware threads; {}", model.empty() ? "unknown" : model,
      std::thread::hardware_concurrency(),
      has.empty() ? "no vectors that matter" : fmt::format("{}", fmt::join(has, " ")));
}

}  // namespace attest
