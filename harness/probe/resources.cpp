// What calls take beside their tensors: threads, memory, alignment; and whether they report blocks.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cases/generate.h"
#include "harness/judge/schedule.h"
#include "harness/probe/drawn_case.h"
#include "harness/probe/questions.h"

namespace attest {
namespace {

Case square(const Bench& bench, DType dtype, Index length, Index heads = 1) {
  const Plain& plain = bench.plain(dtype);
  return drawn_case(bench, dtype,
                    {{"query_len", length},
                     {"key_len", length},
                     {"batch", heads},
                     {"query_heads", plain.query_heads}});
}

Reaction measured(Bench& bench, const Case& it, int threads) {
  bench.measures = true;
  const Reaction reaction = bench.ask(it.problem, generate(it), threads);
  bench.measures = false;
  return reaction;
}

// Threads that computed for a tenth of what the busiest did; any call tells that there are several.
// That there are not, some that are long enough must agree on: where the machine does other work,
// one thread may have done all of it before the second one got a processor.
void ask_own_threads(Bench& bench, Answers& answers) {
  constexpr double kLongEnough = 0.05;
  constexpr int kAgreeing = 5;
  Answer answer = {.key = "threads", .declared = Answer::Declared::any};
  int agreeing = 0;
  for (Index length = 512; length <= 4096 && agreeing < kAgreeing && answer.value != true;) {
    const Case it = square(bench, bench.telling_format(), length, 2);
    const Reaction reaction = measured(bench, it, 2);
    answer.inputs = to_string(it.problem) + ", 2 threads";
    if (!reaction.taken()) {
      if (!answer.told()) answer.words = reaction.refused;
      break;
    }
    const auto& seconds = reaction.trial.forward.thread_seconds;
    const double most = seconds.empty() ? 0 : *std::max_element(seconds.begin(), seconds.end());
    const auto busy = std::count_if(seconds.begin(), seconds.end(),
                                    [&](double each) { return each > most / 10; });
    if (most > 0) {
      answer.value = busy > 1;
      // Whoever may use more need not.
      if (busy > 1) answer.declared = Answer::Declared::equal;
      answer.words = fmt::format("{} threads computed, {:.3g} s the busiest", busy, most);
    }
    agreeing += most > kLongEnough;
    if (agreeing == 0) length *= 2;
  }
  if (!answer.told() && answer.words.empty()) answer.words = "the system does not tell";
  answers.push_back(std::move(answer));
}

// Lengths are doubled until it can be told.
void ask_memory(Bench& bench, Answers& answers) {
  Answer answer = {.key = "memory.growth", .declared = Answer::Declared::promise};
  std::vector<double> bytes;
  std::string listed;
  for (Index length = 256; !answer.told() && length <= 4096; length *= 2) {
    const Case it = square(bench, bench.telling_format(), length);
    const Reaction reaction = measured(bench, it, 1);
    answer.inputs = to_string(it.problem);
    if (!reaction.taken()) {
      answer.words = fmt::format("not taken: {}; ", reaction.refused);
      break;
    }
    const CallFacts& facts = reaction.trial.forward;
    const double own = facts.peak_bytes ? facts.peak_bytes->most : 0;
    bytes.push_back(std::max(own, facts.workspace_bytes));
    listed += fmt::format("{}{:.4g}", listed.empty() ? "" : ", ", bytes.back());
    if (const auto growth = growth_of(bytes)) answer.value = name(*growth);
  }
  answer.words += fmt::format("bytes for rows and keys from 256 on, doubled each time: {}",
                              listed.empty() ? "none" : listed);
  answers.push_back(std::move(answer));
}

void ask_blocks_reported(Bench& bench, Answers& answers) {
  const Case it = square(bench, bench.telling_format(), 128);
  bench.traces = true;
  const Reaction reaction = bench.ask(it.problem, generate(it));
  bench.traces = false;
  Answer answer = {
      .key = "schedule", .inputs = to_string(it.problem), .declared = Answer::Declared::promise};
  if (reaction.taken()) {
    const auto& blocks = reaction.trial.forward.blocks;
    const auto masked = std::count_if(blocks.begin(), blocks.end(),
                                      [](const Block& block) { return block.masked; });
    answer.value = blocks.empty() ? nlohmann::json("none") : nlohmann::json("reported");
    answer.words = fmt::format("{} blocks are reported, {} of them masked", blocks.size(), masked);
  } else {
    answer.words = reaction.refused;
  }
  answers.push_back(std::move(answer));
}

// The least that it bears: with less, calls end or come to something else. Sizes are odd, so that
// tensors lie as closely to the ends of their pages as elements may.
void ask_alignment(Bench& bench, Answers& answers) {
  const DType dtype = bench.formats().back();
  const Index declared = bench.terms().alignment, element = format_of(dtype).bytes;
  Answer answer = {.key = "alignment", .declared = Answer::Declared::at_least};
  const Case it = drawn_case(bench, dtype,
                             {{"head_dim", 7}, {"value_dim", 9}, {"query_len", 3}, {"key_len", 5}});
  answer.inputs = to_string(it.problem);
  const Inputs inputs = generate(it);
  for (const Index alignment : {256, 128, 64, 32, 16, 8, 4, 2, 1}) {
    if (alignment < element) break;
    bench.terms().alignment = alignment;
    const Reaction reaction = bench.ask(it.problem, inputs);
    if (!reaction.taken() || wrong_of(bench, it, inputs, reaction)) break;
    answer.value = alignment;
  }
  bench.terms().alignment = declared;
  // With less than its elements have nothing was tried.
  if (answer.value == element) answer.declared = Answer::Declared::any;
  answer.words = answer.told()
                     ? fmt::format("right where tensors are aligned to {} bytes and no more",
                                   answer.value.dump())
                     : "it takes no sizes by which tensors lie anywhere";
  answers.push_back(std::move(answer));
}

}  // namespace

std::optional<Growth> growth_of(std::span<const double> bytes) {
  // What the system tells of memory is off by some pages, more where it counts on each processor
  // apart; and what a kernel takes at once for many lengths hides a share of how it grows.
  constexpr double kNoise = 1 << 16;
  if (bytes.size() < 3) return std::nullopt;
  const double before = bytes[bytes.size() - 2] - bytes[bytes.size() - 3];
  const double last = bytes[bytes.size() - 1] - bytes[bytes.size() - 2];
  // Twice as long, what grows with the length grows by twice as much, and with its square by four
  // times.
  if (last - kNoise > 2.7 * (std::max(before, 0.0) + kNoise)) return Growth::quadratic;
  if (bytes.size() < 4) return std::nullopt;
  if (last <= kNoise) return Growth::constant;
  if (before > kNoise && last + kNoise < 2.6 * (before - kNoise)) return Growth::linear;
  return std::nullopt;
}

void ask_resources(Bench& bench, Answers& answers) {
  ask_own_threads(bench, answers);
  ask_memory(bench, answers);
  ask_blocks_reported(bench, answers);
  ask_alignment(bench, answers);
}

}  // namespace attest
