#include "harness/examine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "cases/generate.h"
#include "harness/judge.h"
#include "harness/wire.h"
#include "spec/assert.h"

namespace attest {
namespace {

constexpr std::size_t kCaptureBytes = std::size_t(64) << 10;
constexpr std::size_t kMessageBytes = 4096;

// What went wrong, before it becomes a verdict.
struct Finding {
  Outcome outcome;
  Reason reason = {};
  std::string message;
  std::string clause = {};  // the one it breaks, if not simply those of the case
};

// The clause that each kind of misbehaviour breaks.
std::string clause_of(const Reason& reason) {
  if (reason == "guard") return "SAFE-1";
  if (reason == "input_mutated") return "SAFE-2";
  if (reason == "unwritten") return "SAFE-3";
  if (reason == "wrong_refusal") return "CALL-1";
  if (reason == "nondeterministic") return "DET-1";
  return "";
}

Finding failure(const Reason& reason, const std::string& message) {
  return {
      .outcome = Outcome::fail, .reason = reason, .message = message, .clause = clause_of(reason)};
}

// A text of a reply; empty if there is none, whatever stands there instead.
std::string text_of(const Reply& reply, const char* key) {
  const auto place = reply.body.find(key);
  return place != reply.body.end() && place->is_string() ? place->get<std::string>() : "";
}

Finding finding_of(const Reply& reply, const char* pass) {
  const auto ended = [&](Outcome outcome) {
    return Finding{.outcome = outcome,
                   .message = fmt::format("{}: {}", pass, reply.message),
                   .clause = "SAFE-4"};
  };
  switch (reply.kind) {
    case Reply::Kind::crashed:
      return ended(Outcome::crash);
    case Reply::Kind::timed_out:
      return ended(Outcome::timeout);
    case Reply::Kind::protocol_error:
      return ended(Outcome::protocol_error);
    case Reply::Kind::interrupted:
      return ended(Outcome::not_run);
    case Reply::Kind::out_of_memory:
      return failure("memory", fmt::format("{}: {}", pass, reply.message));
    case Reply::Kind::answered:
      break;
  }
  const std::string status = text_of(reply, "status");
  if (status == "fault") {
    const std::string reason =
        text_of(reply, "reason") == "input_mutated" ? "input_mutated" : "guard";
    return failure(reason, fmt::format("{}: {}", pass, text_of(reply, "message")));
  }
  if (status == "error") {
    // It said that it can, and then it did not.
    return {.outcome = Outcome::fail,
            .reason = "wrong_refusal",
            .message = fmt::format("{} failed: {}", pass, text_of(reply, "message")),
            .clause = "CALL-1"};
  }
  return {.outcome = Outcome::protocol_error,
          .message = fmt::format("{}: a reply of status \"{}\"", pass, status),
          .clause = "SAFE-4"};
}

struct OutputSpec {
  const char* record_name;
  const char* wire_name;
  DType dtype;
  Shape shape;
  Layout layout;
};

std::vector<OutputSpec> outputs_of(const Problem& p, bool backward, bool with_lse) {
  if (!backward) {
    std::vector<OutputSpec> outputs = {{"O", "o", p.dtype, p.o_shape(), p.layouts.o}};
    if (with_lse) outputs.push_back({"LSE", "lse", p.lse_dtype(), p.lse_shape(), Layout()});
    return outputs;
  }
  return {{"dQ", "dq", p.dtype, p.q_shape(), p.layouts.dq},
          {"dK", "dk", p.dtype, p.k_shape(), p.layouts.dk},
          {"dV", "dv", p.dtype, p.v_shape(), p.layouts.dv}};
}

void add_tables(Exchange& exchange, const Mask& mask, int& tables) {
  if (mask.kind == Mask::Kind::dense) {
    exchange.add_input("mask" + std::to_string(tables++), mask.table->shape, mask.table->allowed);
  }
  for (const Mask& part : mask.parts) add_tables(exchange, part, tables);
}

// The tensors that belong to the problem itself: lengths and the tables of masks.
void add_problem(Exchange& exchange, const Problem& p) {
  if (!p.key_lens.empty()) exchange.add_input("key_lens", p.key_lens);
  if (!p.query_lens.empty()) exchange.add_input("query_lens", p.query_lens);
  int tables = 0;
  add_tables(exchange, p.mask, tables);
}

// An upper bound of what the tensors of any call take.
std::size_t arena_bytes(const Problem& p) {
  const Layouts& l = p.layouts;
  Index elements = 2 * l.o.span(p.o_shape()) + 2 * l.d_o.span(p.o_shape()) + l.q.span(p.q_shape()) +
                   l.k.span(p.k_shape()) + l.v.span(p.v_shape()) + l.dq.span(p.q_shape()) +
                   l.dk.span(p.k_shape()) + l.dv.span(p.v_shape()) +
                   2 * element_count(p.lse_shape());
  Index flags = 0, tables = 0;
  const std::function<void(const Mask&)> count = [&](const Mask& mask) {
    if (mask.table) flags += element_count(mask.table->shape), ++tables;
    for (const Mask& part : mask.parts) count(part);
  };
  count(p.mask);
  constexpr Index kTensors = 12;
  return Exchange::bytes_needed(static_cast<std::size_t>(8 * elements + flags + 16 * p.batch),
                                static_cast<std::size_t>(kTensors + tables));
}

// One run of a case: forward, and backward on what forward returned.
class Run {
 public:
  Run(PreparedCase& prepared, const Description& testee, const std::string& kernel,
      Executor& executor, int threads, Placement placement, std::string& captured)
      : prepared_(prepared),
        testee_(testee),
        kernel_(kernel),
        executor_(executor),
        threads_(threads),
        placement_(placement),
        with_lse_(testee.has("lse")),
        captured_(captured) {}

  // What stopped the run; empty if it came to its end.
  std::optional<Finding> perform() {
    if (auto finding = call(false)) return finding;
    return prepared_.problem().backward ? call(true) : std::nullopt;
  }

  const std::vector<Returned>& returned() const { return returned_; }

  // Whether element `i` of the returned tensor `t` is still as it was before the call.
  bool unwritten(std::size_t t, std::size_t i) const { return returned_[t].bits[i] == poison_[t]; }

 private:
  std::optional<Finding> call(bool backward) {
    const Problem& p = prepared_.problem();
    const Inputs& in = prepared_.inputs();
    Exchange exchange(executor_.arena(arena_bytes(p)), placement_, testee_.alignment);
    exchange.add_input("q", p.dtype, in.q, p.layouts.q);
    exchange.add_input("k", p.dtype, in.k, p.layouts.k);
    exchange.add_input("v", p.dtype, in.v, p.layouts.v);
    add_problem(exchange, p);
    if (backward) {
      exchange.add_input_bits("o", p.dtype, p.o_shape(), returned_[0].bits, p.layouts.o);
      if (with_lse_) {
        exchange.add_input_bits("lse", p.lse_dtype(), p.lse_shape(), returned_[1].bits, Layout());
      }
      exchange.add_input("d_o", p.dtype, in.d_o, p.layouts.d_o);
    }
    const auto outputs = outputs_of(p, backward, with_lse_);
    for (const OutputSpec& output : outputs) {
      exchange.add_output(output.wire_name, output.dtype, output.shape, output.layout);
    }
    exchange.seal();
    const char* pass = backward ? "backward" : "forward";
    const Reply reply = executor_.execute({{"op", pass},
                                           {"kernel", kernel_},
                                           {"threads", threads_},
                                           {"problem", problem_to_json(p)},
                                           {"tensors", exchange.to_json()}});
    captured_ += reply.captured;
    // Damage first: a call that wrote astray and then failed is damaged above all.
    if (const auto damage = exchange.damage()) {
      return failure(damage->reason, fmt::format("{}: {}", pass, damage->message));
    }
    if (!reply.ok()) return finding_of(reply, pass);
    for (const OutputSpec& output : outputs) {
      returned_.push_back(
          {output.record_name, output.dtype, output.shape, exchange.read(output.wire_name)});
      poison_.push_back(exchange.poison(output.dtype));
    }
    return std::nullopt;
  }

  PreparedCase& prepared_;
  const Description& testee_;
  const std::string& kernel_;
  Executor& executor_;
  int threads_;
  Placement placement_;
  bool with_lse_;
  std::string& captured_;  // what the testee printed, over all calls
  std::vector<Returned> returned_;
  std::vector<std::uint64_t> poison_;
};

std::string at(const Shape& shape, std::size_t dense) {
  const auto place = coordinates(shape, static_cast<Index>(dense));
  return fmt::format("[{},{},{},{}]", place[0], place[1], place[2], place[3]);
}

// Whether the same elements are unwritten in both runs, whose poisons differ.
std::optional<Finding> unwritten(const Run& first, const Run& second) {
  for (std::size_t t = 0; t < first.returned().size(); ++t) {
    const Returned& tensor = first.returned()[t];
    for (std::size_t i = 0; i < tensor.bits.size(); ++i) {
      if (first.unwritten(t, i) && second.unwritten(t, i)) {
        return failure("unwritten",
                       fmt::format("{}{} was never written", tensor.name, at(tensor.shape, i)));
      }
    }
  }
  return std::nullopt;
}

// The first element whose bits differ between two runs, in words.
std::optional<std::string> difference(const Run& first, const Run& second) {
  for (std::size_t t = 0; t < first.returned().size(); ++t) {
    const Returned& a = first.returned()[t];
    const Returned& b = second.returned()[t];
    for (std::size_t i = 0; i < a.bits.size(); ++i) {
      if (a.bits[i] != b.bits[i]) {
        return fmt::format("{}{} was {} and then {}", a.name, at(a.shape, i),
                           decode(a.dtype, a.bits[i]), decode(b.dtype, b.bits[i]));
      }
    }
  }
  return std::nullopt;
}

// Judges what a run returned, and records the evidence where it is worse than what is there.
std::optional<Finding> judge_run(const Run& run, PreparedCase& prepared,
                                 const Arithmetic& arithmetic,
                                 std::map<std::string, TensorEvidence>& evidence) {
  std::optional<Finding> worst;
  for (const Returned& tensor : run.returned()) {
    const bool gradient = tensor.name[0] == 'd';
    // The bounds of gradients presume a forward pass within its own.
    if (gradient && worst && worst->outcome == Outcome::fail) break;
    const Expected& expected = expected_of(tensor.name, prepared, arithmetic);
    const TensorVerdict verdict =
        judge(tensor.bits, tensor.dtype, tensor.shape, expected,
              tensor.name == "LSE" ? Rounding::nearest : arithmetic.output_rounding);
    const auto [entry, fresh] = evidence.emplace(tensor.name, verdict.evidence);
    if (!fresh && verdict.evidence.max_ratio > entry->second.max_ratio)
      entry->second = verdict.evidence;
    const TensorEvidence& e = verdict.evidence;
    if (!verdict.passed) {
      if (worst && worst->outcome == Outcome::fail) continue;
      worst = failure(verdict.nonfinite ? "nonfinite" : "bound",
                      fmt::format("{}{} = {}, exact {}, bound {:.3g}: {:.3g} times the bound",
                                  tensor.name, fmt::format("[{}]", fmt::join(e.worst, ",")),
                                  e.actual, e.exact, e.bound, e.max_ratio));
    } else if (!verdict.conclusive && !worst) {
      worst = Finding{.outcome = Outcome::inconclusive,
                      .message = fmt::format("the bound of {} admits any value; a tighter declared "
                                             "arithmetic (such as kv_splits) may narrow it",
                                             tensor.name)};
    }
  }
  return worst;
}

}  // namespace

Inputs PreparedCase::generate(const Case& test_case) { return attest::generate(test_case); }

const ForwardExpected& PreparedCase::forward(const Arithmetic& arithmetic) {
  for (const auto& [known, expected] : forward_) {
    if (known == arithmetic) return *expected;
  }
  forward_.emplace_back(arithmetic, std::make_unique<ForwardExpected>(
                                        expect_forward(problem(), inputs_, arithmetic, threads_)));
  return *forward_.back().second;
}

const BackwardExpected& PreparedCase::backward(const Arithmetic& arithmetic) {
  for (const auto& [known, expected] : backward_) {
    if (known == arithmetic) return *expected;
  }
  backward_.emplace_back(arithmetic, std::make_unique<BackwardExpected>(expect_backward(
                                         problem(), inputs_, arithmetic, threads_)));
  return *backward_.back().second;
}

const Expected& expected_of(const std::string& tensor, PreparedCase& prepared,
                            const Arithmetic& arithmetic) {
  if (tensor == "O") return prepared.forward(arithmetic).o;
  if (tensor == "LSE") return prepared.forward(arithmetic).lse;
  if (tensor == "dQ") return prepared.backward(arithmetic).dq;
  if (tensor == "dK") return prepared.backward(arithmetic).dk;
  ATTEST_ASSERT(tensor == "dV");
  return prepared.backward(arithmetic).dv;
}

Examination examine(PreparedCase& prepared, const Description& testee, const std::string& kernel,
                    Executor& executor, int threads) {
  const Case& test_case = prepared.test_case();
  Examination result;
  Verdict& verdict = result.verdict;
  verdict.clauses = test_case.clauses;
  std::string captured;
  const auto conclude = [&](const Finding& finding) {
    verdict.outcome = finding.outcome;
    verdict.reason = finding.reason;
    verdict.message = finding.message.substr(0, kMessageBytes);
    verdict.captured = captured.substr(0, kCaptureBytes);
    if (!finding.clause.empty()) {
      std::erase(verdict.clauses, finding.clause);
      verdict.clauses.insert(verdict.clauses.begin(), finding.clause);
    }
    return result;
  };

  // A testee that returns no LSE is judged on O alone, and proves nothing about LSE.
  if (!testee.has("lse")) {
    for (const char* clause : {"LSE-1", "LSE-2", "EMPTY-2"}) std::erase(verdict.clauses, clause);
    if (verdict.clauses.empty()) {
      return conclude({.outcome = Outcome::unsupported, .message = "returns no LSE"});
    }
  }

  // 1. Will it?
  Exchange question(executor.arena(arena_bytes(prepared.problem())), Placement::end_flush,
                    testee.alignment);
  add_problem(question, prepared.problem());
  const Reply asked = executor.execute({{"op", "supports"},
                                        {"kernel", kernel},
                                        {"problem", problem_to_json(prepared.problem())},
                                        {"tensors", question.to_json()}});
  captured += asked.captured;
  if (!asked.ok()) {
    if (asked.kind != Reply::Kind::answered || text_of(asked, "status") != "refused") {
      return conclude(finding_of(asked, "supports"));
    }
    const std::string reason = text_of(asked, "message");
    if (reason.empty()) return conclude(failure("wrong_refusal", "refused without a reason"));
    const std::string missing = undeclared(prepared.problem(), testee);
    if (missing.empty()) {
      return conclude(
          failure("wrong_refusal", fmt::format("refused what it declares: {}", reason)));
    }
    return conclude({.outcome = Outcome::unsupported, .message = reason});
  }

  // 2. It runs twice: with the tensors flush against a guard at their end, then at their start.
  Run first(prepared, testee, kernel, executor, threads, Placement::end_flush, captured);
  const auto stopped = first.perform();
  result.returned = first.returned();
  if (stopped) return conclude(*stopped);
  Run second(prepared, testee, kernel, executor, threads, Placement::start_flush, captured);
  if (const auto finding = second.perform()) return conclude(*finding);

  // 3. What it returned.
  if (const auto finding = unwritten(first, second)) return conclude(*finding);
  const auto declared = testee.arithmetic.find(prepared.problem().dtype);
  const Arithmetic arithmetic =
      declared != testee.arithmetic.end() ? declared->second : loosest(prepared.problem().dtype);
  auto finding = judge_run(first, prepared, arithmetic, verdict.tensors);
  if (difference(first, second)) {
    // Other bits for other addresses are no crime, but they are judged as the first were.
    const auto again = judge_run(second, prepared, arithmetic, verdict.tensors);
    if (again && (!finding || finding->outcome != Outcome::fail)) finding = again;
    if (arithmetic.deterministic && !finding) {
      Run repeated(prepared, testee, kernel, executor, threads, Placement::end_flush, captured);
      if (const auto broken = repeated.perform()) return conclude(*broken);
      if (const auto where = difference(first, repeated)) {
        return conclude(
            failure("nondeterministic", fmt::format("two equal calls differ: {}", *where)));
      }
    }
  }
  if (finding) return conclude(*finding);
  verdict.outcome = Outcome::pass;
  return result;
}

}  // namespace attest
