// Whether the same numbers come to the same bits: twice, with other threads, with other neighbours
// in the batch. That they differ is seen; that they never do is not: the sizes tried are said.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "cases/generate.h"
#include "harness/judge/alone.h"
#include "harness/probe/drawn_case.h"
#include "harness/probe/questions.h"

namespace attest {
namespace {

// Which tensor differs first; empty if none does.
std::string difference(const Trial& a, const Trial& b) {
  for (std::size_t n = 0; n < a.returned.size(); ++n) {
    if (a.returned[n].bits != b.returned[n].bits) return std::string(name(a.returned[n].name));
  }
  return "";
}

// Large enough that threads are worth their start.
Case large(const Bench& bench, DType dtype, Index batch) {
  return drawn_case(
      bench, dtype,
      {{"batch", batch}, {"query_len", 256}, {"key_len", 256}, {"backward", bench.has_backward}});
}

Answer answer_of(DType dtype, const char* key, const std::string& differs, const std::string& what,
                 const Case& it) {
  return {.key = key_of(dtype, key),
          .value = differs.empty(),
          .words = differs.empty() ? fmt::format("the same bits {}", what)
                                   : fmt::format("{} has other bits {}", differs, what),
          .inputs = to_string(it.problem),
          .declared = Answer::Declared::promise};
}

void ask_threads(Bench& bench, DType dtype, Answers& answers) {
  const Case it = large(bench, dtype, 1);
  const Inputs inputs = generate(it);
  const Reaction first = bench.ask(it.problem, inputs, 1), again = bench.ask(it.problem, inputs, 1);
  std::string threads, differs, not_taken;
  if (!first.taken() || !again.taken()) {
    const std::string& why = first.taken() ? again.refused : first.refused;
    for (const char* key : {"deterministic", "thread_invariant"}) {
      answers.push_back(untold(key_of(dtype, key), why));
    }
    return;
  }
  std::string twice = difference(first.trial, again.trial);
  for (const int count : {2, 4}) {
    const Reaction more = bench.ask(it.problem, inputs, count);
    if (!more.taken()) {
      not_taken = more.refused;
      continue;
    }
    if (differs.empty()) differs = difference(first.trial, more.trial);
    threads += fmt::format("{}{}", threads.empty() ? "" : ", ", count);
    if (count == 2) continue;
    const Reaction repeated = bench.ask(it.problem, inputs, count);
    if (twice.empty() && repeated.taken()) twice = difference(more.trial, repeated.trial);
  }
  answers.push_back(answer_of(dtype, "deterministic", twice,
                              "in two equal calls, with 1 and with 4 threads", it));
  if (!not_taken.empty() && differs.empty()) {
    return answers.push_back(
        untold(key_of(dtype, "thread_invariant"), not_taken, to_string(it.problem)));
  }
  answers.push_back(answer_of(dtype, "thread_invariant", differs,
                              fmt::format("with {} threads as with 1", threads), it));
}

void ask_neighbours(Bench& bench, DType dtype, Answers& answers) {
  // As many as there are threads: whoever shares out heads and then parts of them has none to
  // share.
  const Case it = large(bench, dtype, 4);
  const Inputs inputs = generate(it);
  std::string differs;
  for (const int threads : {1, 4}) {
    const Reaction whole = bench.ask(it.problem, inputs, threads);
    const Alone one = alone(it.problem, inputs, 1);
    const Reaction single = bench.ask(one.problem, one.inputs, threads);
    if (!whole.taken() || !single.taken()) {
      return answers.push_back(
          untold(key_of(dtype, "batch_invariant"), whole.taken() ? single.refused : whole.refused));
    }
    Trial share;
    for (const Returned& tensor : whole.trial.returned) {
      if (auto part = share_of(it.problem, tensor, 1)) share.returned.push_back(std::move(*part));
    }
    if (differs.empty()) differs = difference(share, single.trial);
  }
  answers.push_back(answer_of(dtype, "batch_invariant", differs,
                              "alone and as one of four, with 1 and with 4 threads", it));
}

}  // namespace

void ask_promises(Bench& bench, DType dtype, Answers& answers) {
  ask_threads(bench, dtype, answers);
  ask_neighbours(bench, dtype, answers);
}

}  // namespace attest
