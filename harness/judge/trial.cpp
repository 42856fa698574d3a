#include "harness/judge/trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <string>
#include <vector>

#include "harness/process/stage.h"
#include "harness/process/tensors.h"
#include "harness/process/wire.h"

namespace attest {
namespace {

// What a reply says of the call.
CallFacts facts_of(const Reply& reply, bool traced) {
  CallFacts facts;
  facts.peak_bytes = reply.peak_bytes;
  facts.touched_bytes = reply.touched_bytes;
  facts.thread_seconds = reply.thread_seconds;
  facts.wall_seconds = reply.wall_seconds;
  facts.cpu_seconds = reply.cpu_seconds;
  facts.running_threads = reply.running_threads;
  const auto workspace = reply.body.find("workspace_bytes");
  if (workspace != reply.body.end()) facts.workspace_bytes = workspace->get<double>();
  const auto on_device = reply.body.find("device_seconds");
  if (on_device != reply.body.end() && on_device->is_number()) {
    facts.device_seconds = on_device->get<double>();
  }
  if (!traced) return facts;
  const auto blocks = reply.body.find("blocks");
  if (blocks != reply.body.end()) facts.blocks = blocks_from_json(*blocks);
  const auto left_out = reply.body.find("blocks_left_out");
  facts.blocks_left_out = left_out != reply.body.end() && *left_out != 0;
  return facts;
}

void add_returned(Exchange& exchange, const Returned& t) {
  exchange.add_input_bits(wire_name(t.name), t.dtype, t.shape, t.bits, t.layout);
}

constexpr std::array kFaults = {SIGSEGV, SIGBUS};

// Who declares no LSE and reads or writes it all the same dies of that, by one of these.
std::string absence_of_lse(const Description& testee, DType dtype) {
  if (!testee.returns_lse(dtype))
    return "lse is absent, its data NULL: the feature is not declared";
  if (!testee.dialect.lse.apart) return "";
  return "lse is absent, its data NULL: as declared, maximum and sum stand in its place";
}

Finding stopped_by(const Reply& reply, const char* pass, const Description& testee, DType dtype) {
  Finding finding = finding_of(reply, pass);
  const std::string absence = absence_of_lse(testee, dtype);
  const bool by_memory = std::any_of(kFaults.begin(), kFaults.end(), [&](int signal) {
    return reply.message.find(fmt::format("signal {} ", signal)) != std::string::npos;
  });
  if (reply.kind == Reply::Kind::crashed && by_memory && !absence.empty()) {
    finding.message += fmt::format(" ({})", absence);
  }
  return finding;
}

bool draws(const Problem& p, bool backward) {
  return p.dropout.mode == Dropout::Mode::generated && !backward;
}

// What a call reads, and where it is to write.
void lay_out(const Problem& p, const Inputs& in, bool backward, const Trial& trial,
             const std::vector<Crossing>& outputs, Exchange& exchange) {
  const InStage stage(RunStage::encode);
  add_problem(exchange, p);
  add_inputs(exchange, p, in, backward);
  const std::string keep = wire_name(TensorName::keep);
  if (draws(p, backward)) exchange.add_keep_output(keep, p.keep_shape());
  if (backward) {
    if (trial.keep) exchange.add_input(keep, *trial.keep);
    for (const Returned& t : trial.returned) {
      const bool translated = t.name == TensorName::lse && !trial.statistics.empty();
      if (!translated) add_returned(exchange, t);
    }
    for (const Returned& t : trial.statistics) add_returned(exchange, t);
  }
  for (const Crossing& t : outputs) {
    exchange.add_output(wire_name(t.name), t.dtype, t.shape, t.layout);
  }
  exchange.seal();
}

// One call; what it returned is added to the trial.
void call(const Calling& calling, const Problem& p, const Inputs& in, Placement placement,
          bool backward, Trial& trial) {
  // Tables have slack in one of the two placements: for those alone who take strides (LAYOUT-2).
  const bool roomy = placement == Placement::start_flush && calling.testee.has("strides");
  Executor& executor = backward ? calling.executor.of_backward() : calling.executor;
  Exchange exchange(executor.arena(arena_bytes(p)), placement, calling.testee.alignment,
                    roomy ? Spacing::roomy : Spacing::dense);
  const Dialect& dialect = calling.testee.dialect;
  const auto outputs = outputs_of(p, backward, calling.testee.statistics_in(p.dtype));
  lay_out(p, in, backward, trial, outputs, exchange);

  const char* pass = backward ? "backward" : "forward";
  nlohmann::json request;
  request["op"] = pass;
  request["kernel"] = calling.kernel;
  request["problem"] = problem_to_json(p, dialect.window);
  request["threads"] = calling.threads;
  request["tensors"] = exchange.to_json();
  if (calling.trace) request["trace"] = true;
  if (!calling.mode.empty()) request["mode"] = calling.mode;
  const Reply reply =
      calling.measure ? executor.measure(std::move(request)) : executor.execute(std::move(request));
  const InStage stage(RunStage::decode);
  calling.captured += reply.captured;
  if (!reply.ok()) {
    trial.stopped = stopped_by(reply, pass, calling.testee, p.dtype);
  } else if (const auto damage = exchange.damage()) {
    trial.stopped = failure(damage->reason, std::string(pass) + ": " + damage->message);
  } else {
    try {
      (backward ? trial.backward : trial.forward) = facts_of(reply, calling.trace);
    } catch (const std::exception& error) {
      trial.stopped = Finding{.outcome = Outcome::protocol_error,
                              .message = std::string(pass) + ": " + error.what(),
                              .clause = "SAFE-4"};
      return;
    }
    if (draws(p, backward)) trial.keep = exchange.read_keep(wire_name(TensorName::keep));
    for (const Crossing& t : outputs) {
      const bool stands_for_lse = !backward && t.name != TensorName::o && dialect.lse != LseForm{};
      auto& to = stands_for_lse ? trial.statistics : trial.returned;
      to.push_back({.name = t.name,
                    .dtype = t.dtype,
                    .shape = t.shape,
                    .bits = exchange.read(wire_name(t.name)),
                    .poison = exchange.poison(t.dtype),
                    .layout = t.layout});
    }
    if (!backward && !trial.statistics.empty()) {
      trial.returned.push_back(
          in_base_e(dialect.lse, trial.statistics, exchange.poison(DType::f64)));
    }
  }
}

}  // namespace

Returned in_base_e(const LseForm& form, const std::vector<Returned>& statistics,
                   std::uint64_t poison) {
  const Returned &first = statistics.front(), &last = statistics.back();
  Returned lse = {.name = TensorName::lse,
                  .dtype = DType::f64,
                  .shape = first.shape,
                  .bits = {},
                  .poison = poison};
  lse.bits.reserve(first.bits.size());
  for (std::size_t i = 0; i < first.bits.size(); ++i) {
    const bool written = first.bits[i] != first.poison && last.bits[i] != last.poison;
    const double value =
        natural_lse(form, decode(first.dtype, first.bits[i]), decode(last.dtype, last.bits[i]));
    lse.bits.push_back(written ? encode(DType::f64, value) : poison);
  }
  return lse;
}

std::optional<Finding> left_out(const Description& testee, const Problem& problem) {
  auto excluded = exclusion(problem, testee);
  if (!excluded) return std::nullopt;
  return Finding{.outcome = Outcome::unsupported,
                 .reason = std::move(excluded->reason),
                 .message = std::move(excluded->what)};
}

std::optional<Finding> ask(const Calling& calling, const Problem& problem) {
  if (auto excluded = left_out(calling.testee, problem)) return excluded;
  if (dynamic_cast<Computing*>(&calling.executor)) return std::nullopt;
  Exchange question(calling.executor.arena(arena_bytes(problem)), Placement::end_flush,
                    calling.testee.alignment);
  add_problem(question, problem);
  nlohmann::json request;
  request["op"] = "supports";
  request["kernel"] = calling.kernel;
  request["problem"] = problem_to_json(problem, calling.testee.dialect.window);
  request["tensors"] = question.to_json();
  const Reply reply = calling.executor.execute(std::move(request));
  calling.captured += reply.captured;
  if (reply.ok()) return std::nullopt;
  if (reply.kind != Reply::Kind::answered || text_of(reply, "status") != "refused") {
    return finding_of(reply, "supports");
  }
  const std::string why = text_of(reply, "message");
  if (why.empty()) return failure("wrong_refusal", "refused without a reason");
  return failure("wrong_refusal",
                 fmt::format("refused what it declares, {}: {}", to_string(problem), why));
}

Trial try_out(const Calling& calling, const Problem& problem, const Inputs& inputs,
              Placement placement, const Interlude* between) {
  if (auto* const computing = dynamic_cast<Computing*>(&calling.executor)) {
    return computing->compute(problem, inputs);
  }
  Trial trial;
  call(calling, problem, inputs, placement, false, trial);
  if (between && problem.backward && !trial.stopped) {
    Trial other;
    call(calling, between->problem, between->inputs, placement, false, other);
    trial.stopped = other.stopped;
  }
  if (problem.backward && !trial.stopped) call(calling, problem, inputs, placement, true, trial);
  return trial;
}

}  // namespace attest
