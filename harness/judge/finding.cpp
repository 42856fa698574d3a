#include "harness/judge/finding.h"

#include <fmt/format.h>

namespace attest {
namespace {

std::string clause_of(const Reason& reason) {
  if (reason == "guard") return "SAFE-1";
  if (reason == "input_mutated") return "SAFE-2";
  if (reason == "unwritten") return "SAFE-3";
  if (reason == "wrong_refusal") return "CALL-1";
  if (reason == "threads") return "CALL-2";
  if (reason == "nondeterministic") return "DET-1";
  return "";
}

}  // namespace

Finding failure(const Reason& reason, const std::string& message, const std::string& clause) {
  const std::size_t sentence = clause.find('.');
  return {
      .outcome = Outcome::fail,
      .reason = reason,
      .message = sentence == std::string::npos ? message : fmt::format("{} ({})", message, clause),
      .clause = clause.substr(0, sentence)};
}

Finding failure(const Reason& reason, const std::string& message) {
  return failure(reason, message, clause_of(reason));
}

std::string text_of(const Reply& reply, const char* key) {
  const auto place = reply.body.find(key);
  return place != reply.body.end() && place->is_string() ? place->get<std::string>() : "";
}

Finding finding_of(const Reply& reply, const std::string& pass) {
  const auto ended = [&](Outcome outcome) {
    return Finding{.outcome = outcome,
                   .message = fmt::format("{}: {}", pass, reply.message),
                   .clause = "SAFE-4",
                   .time = reply.time};
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
    // What others hold for a while says nothing of the kernel.
    if (text_of(reply, "reason") == "no_memory") {
      return {.outcome = Outcome::not_run,
              .reason = "no_memory",
              .message = fmt::format("{}: {}", pass, text_of(reply, "message"))};
    }
    // It said that it can, and then it did not.
    return failure("wrong_refusal", fmt::format("{} failed: {}", pass, text_of(reply, "message")));
  }
  return {.outcome = Outcome::protocol_error,
          .message = fmt::format("{}: a reply of status \"{}\"", pass, status),
          .clause = "SAFE-4"};
}

}  // namespace attest
