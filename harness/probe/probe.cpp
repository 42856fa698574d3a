#include "harness/probe/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "harness/probe/questions.h"
#include "spec/contains.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

// "arithmetic.f16.products.accumulator" of that of one product, "limits" of each limit.
std::string row_of(const std::string& key) {
  for (const char* group : {"features", "limits"}) {
    if (key.starts_with(group)) return group;
  }
  const std::size_t product = key.find(".products.");
  if (product == std::string::npos) return key;
  return key.substr(0, product + 9) + key.substr(key.rfind('.'));
}

}  // namespace

Probed probe(const Testee& testee, Executor& executor, const ProbeOptions& options) {
  Bench bench(testee, executor, options.threads, options.interrupted);
  bench.set_up(options.formats);
  Probed probed = {.formats = bench.formats(), .answers = {}};
  if (probed.formats.empty()) {
    throw InputError(
        "", fmt::format("{} takes no problem of those that a probe begins with", testee.name));
  }
  for (const Family& family : families()) {
    if (family.ask) {
      family.ask(bench, probed.answers);
    } else {
      for (const DType dtype : probed.formats) family.ask_format(bench, dtype, probed.answers);
    }
  }
  return probed;
}

KeysTold keys_told(const Answers& answers) {
  std::map<std::string, bool> rows;
  for (const Answer& answer : answers) {
    if (!answer.is_key) continue;
    const auto row = rows.emplace(row_of(answer.key), true).first;
    row->second &= answer.told();
  }
  KeysTold keys = {.told = 0, .of = static_cast<int>(rows.size())};
  for (const auto& row : rows) keys.told += row.second;
  return keys;
}

}  // namespace attest
