// Whether the same numbers come to the same bits: each time, with other threads, with other
// neighbours in the batch. That they differ is seen; that they never do is not: the sizes tried are
// said.
#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

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

// Calls each of which may be asked again. Whatever does not come to its own bits is held against
// nothing else: neither threads nor neighbours are to be blamed for it.
class Calls {
 public:
  struct Asked {
    Problem problem;
    Inputs inputs;
    int threads;
    Trial first;
  };

  explicit Calls(Bench& bench) : bench_(bench) {}

  // None if it is not taken.
  std::optional<Asked> ask(const Problem& problem, const Inputs& inputs, int threads) {
    Reaction reaction = bench_.ask(problem, inputs, threads);
    if (!reaction.taken()) {
      refused = reaction.refused;
      return std::nullopt;
    }
    return Asked{problem, inputs, threads, std::move(reaction.trial)};
  }

  // False if it is not taken again.
  bool repeat(const Asked& asked, int times) {
    for (int n = 0; n < times && twice.empty(); ++n) {
      const Reaction again = bench_.ask(asked.problem, asked.inputs, asked.threads);
      if (!again.taken()) {
        refused = again.refused;
        return false;
      }
      twice = difference(asked.first, again.trial);
      if (!twice.empty()) where = to_string(asked.problem);
    }
    return true;
  }

  std::string refused = {};       // why, if something was not taken
  std::string twice = {}, where;  // what differs in equal calls; empty if nothing does

 private:
  Bench& bench_;
};

constexpr int kRepeats = 11;
constexpr int kRepeatsOfWhatDiffers = 3;

// What differs where the threads alone do, or the neighbours.
struct Comparison {
  std::string differs = {}, words = {}, refused = {};
  bool repeats = false;  // the plainest call was taken each time
};

Comparison see_threads(Calls& calls, const Case& it) {
  const Inputs inputs = generate(it);
  Comparison seen;
  const auto one = calls.ask(it.problem, inputs, 1);
  seen.repeats = one && calls.repeat(*one, kRepeats);
  if (!seen.repeats) {
    seen.refused = calls.refused;
    return seen;
  }
  for (const int count : {2, 4}) {
    const auto more = calls.ask(it.problem, inputs, count);
    if (!more) {
      seen.refused = calls.refused;
      continue;
    }
    seen.words += fmt::format("{}{}", seen.words.empty() ? "" : ", ", count);
    const std::string differs = difference(one->first, more->first);
    if (seen.differs.empty()) seen.differs = differs;
    calls.repeat(*more, !differs.empty() ? kRepeatsOfWhatDiffers : count == 4 ? 1 : 0);
    calls.repeat(*one, differs.empty() ? 0 : kRepeatsOfWhatDiffers);
  }
  return seen;
}

Comparison see_neighbours(Calls& calls, const Case& it) {
  const Inputs inputs = generate(it);
  const Alone one = alone(it.problem, inputs, 1);
  Comparison seen;
  for (const int threads : {1, 4}) {
    const auto whole = calls.ask(it.problem, inputs, threads);
    const auto single = calls.ask(one.problem, one.inputs, threads);
    if (!whole || !single) {
      seen.refused = calls.refused;
      return seen;
    }
    Trial share;
    for (const Returned& tensor : whole->first.returned) {
      if (auto part = share_of(it.problem, tensor, 1)) share.returned.push_back(std::move(*part));
    }
    const std::string differs = difference(share, single->first);
    if (seen.differs.empty()) seen.differs = differs;
    const int times = differs.empty() ? 0 : kRepeatsOfWhatDiffers;
    calls.repeat(*whole, times);
    calls.repeat(*single, times);
  }
  return seen;
}

}  // namespace

void ask_promises(Bench& bench, DType dtype, Answers& answers) {
  Calls calls(bench);
  // As many neighbours as there are threads: whoever shares out heads and then parts of them has
  // none to share.
  const Case base = large(bench, dtype, 1), of_four = large(bench, dtype, 4);
  const Comparison threads = see_threads(calls, base), neighbours = see_neighbours(calls, of_four);
  if (threads.repeats) {
    Answer answer =
        answer_of(dtype, "deterministic", calls.twice,
                  fmt::format("in equal calls, {} with 1 thread and 2 with 4", kRepeats + 1), base);
    if (!calls.where.empty()) answer.inputs = calls.where;
    answers.push_back(std::move(answer));
  } else {
    answers.push_back(untold(key_of(dtype, "deterministic"), threads.refused));
  }
  const auto say = [&](const char* key, const Comparison& seen, const std::string& what,
                       const Case& it) {
    if (!calls.twice.empty()) {
      answers.push_back(
          untold(key_of(dtype, key), calls.twice + " has other bits in equal calls", calls.where));
    } else if (!seen.refused.empty() && seen.differs.empty()) {
      answers.push_back(untold(key_of(dtype, key), seen.refused, to_string(it.problem)));
    } else {
      answers.push_back(answer_of(dtype, key, seen.differs, what, it));
    }
  };
  say("thread_invariant", threads, fmt::format("with {} threads as with 1", threads.words), base);
  say("batch_invariant", neighbours, "alone and as one of four, with 1 and with 4 threads",
      of_four);
}

}  // namespace attest
