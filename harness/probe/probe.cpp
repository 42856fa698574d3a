#include "harness/probe/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

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

// Of calls that broke down: how many, the first, and the problems of the first few.
Answers answers_of(const std::vector<Breakdown>& breakdowns) {
  constexpr int kMostProblems = 3;
  using enum Breakdown::Kind;
  const std::pair<Breakdown::Kind, const char*> kinds[] = {
      {unwritten, "calls that left outputs unwritten"},
      {crashed, "calls that crashed"},
      {hung, "calls that did not come back"},
      {other, "calls that did what none may"}};
  Answers answers;
  for (const auto& [kind, key] : kinds) {
    Answer answer = {.key = key, .is_key = false};
    int count = 0;
    for (const Breakdown& each : breakdowns) {
      if (each.kind != kind) continue;
      if (++count == 1) answer.words = each.words;
      if (count <= kMostProblems) answer.inputs += (count == 1 ? "" : "; ") + each.problem;
    }
    answer.value = count;
    if (count > 0) answers.push_back(std::move(answer));
  }
  return answers;
}

}  // namespace

Probed probe(const Testee& testee, Executor& executor, const ProbeOptions& options) {
  Bench bench(testee, executor, options.threads, options.interrupted);
  const std::string reasons = bench.set_up(options.formats);
  Probed probed = {.formats = bench.formats(), .answers = {}};
  if (probed.formats.empty()) {
    throw InputError(
        "", fmt::format("{} takes no problem of those that a probe begins with; the first of each "
                        "format:{}",
                        testee.name, reasons));
  }
  for (const Family& family : families()) {
    if (family.ask) {
      family.ask(bench, probed.answers);
    } else {
      for (const DType dtype : probed.formats) {
        if (bench.plain(dtype).stored.empty()) family.ask_format(bench, dtype, probed.answers);
      }
    }
  }
  if (!bench.plain(bench.telling_format()).stored.empty()) {
    Answer arithmetic = untold(
        "arithmetic",
        "it takes Q, K and V in 8 bits alone, which the numbers by which it is asked are not");
    arithmetic.is_key = false;
    probed.answers.push_back(std::move(arithmetic));
  }
  Answers broken = answers_of(bench.breakdowns());
  probed.answers.insert(probed.answers.begin(), broken.begin(), broken.end());
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
