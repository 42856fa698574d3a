#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "harness/command/commands.h"
#include "harness/command/option_groups.h"
#include "harness/command/session.h"
#include "harness/probe/declaration.h"
#include "harness/probe/probe.h"
#include "harness/process/worker.h"
#include "harness/run/conclude.h"
#include "reports/files.h"
#include "reports/text.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"

namespace attest {
namespace {

struct ProbeArguments {
  std::string testee;
  std::vector<std::string> dtypes;
  TesteeOptions testees;
  std::filesystem::path file;
  bool json = false;
};

std::string text_of(const nlohmann::ordered_json& from) {
  return from.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string told_as(const Answer& answer) {
  return !answer.told()             ? "cannot tell"
         : answer.value.is_string() ? answer.value.get<std::string>()
                                    : json_text(answer.value);
}

void print_text(const Testee& testee, const Probed& probed,
                const std::vector<Contradiction>& against, const std::vector<std::string>& left_out,
                double seconds) {
  std::size_t width = 0;
  for (const Answer& answer : probed.answers) width = std::max(width, answer.key.size());
  for (const Answer& answer : probed.answers) {
    fmt::print("{:<{}}  {}\n{:{}}  {}\n", answer.key, width, clean(told_as(answer)), "", width,
               clean(answer.words));
    if (!answer.inputs.empty()) fmt::print("{:{}}  {}\n", "", width, clean(answer.inputs));
  }
  for (const Contradiction& each : against) {
    fmt::print("\n{} contradicts what is declared: {}\n  seen    {}\n  inputs  {}\n", each.key,
               clean(each.declared), clean(each.seen), clean(each.inputs));
  }
  for (const std::string& each : left_out) {
    fmt::print("\nmay not be declared: {}\n", clean(each));
  }
  const KeysTold keys = keys_told(probed.answers);
  fmt::print("\n{}: told {} of {} keys in {:.1f} s; {} of its own declaration {} contradicted\n",
             testee.name, keys.told, keys.of, seconds,
             against.empty() ? "nothing" : std::to_string(against.size()),
             against.size() == 1 || against.empty() ? "is" : "are");
}

nlohmann::ordered_json as_json(const Testee& testee, const Probed& probed,
                               const std::vector<Contradiction>& against,
                               const nlohmann::ordered_json& declaration) {
  const KeysTold keys = keys_told(probed.answers);
  nlohmann::ordered_json out = {{"testee", testee.name},
                                {"told", keys.told},
                                {"keys", keys.of},
                                {"answers", nlohmann::json::array()},
                                {"contradictions", nlohmann::json::array()},
                                {"declaration", declaration}};
  for (const Answer& answer : probed.answers) {
    out["answers"].push_back({{"key", answer.key},
                              {"value", answer.value},
                              {"words", answer.words},
                              {"inputs", answer.inputs},
                              {"of_description", answer.is_key}});
  }
  for (const Contradiction& each : against) {
    out["contradictions"].push_back({{"key", each.key},
                                     {"declared", each.declared},
                                     {"seen", each.seen},
                                     {"inputs", each.inputs}});
  }
  return out;
}

int probe(const ProbeArguments& asked) {
  const Installation installation = installation_for({});
  TesteeOptions options = asked.testees;
  options.testees = {asked.testee};
  const Surroundings around = surroundings_for(options, installation);
  const auto testees = testees_for(options, installation, around);
  if (testees.size() != 1) {
    throw InputError("",
                     fmt::format("{} names {} kernels: probe one", asked.testee, testees.size()));
  }
  const Testee& testee = testees.front();
  WorkerOptions worker = worker_options(testee, options.limits, around);
  worker.interrupted = interrupted;
  WorkerExecutor executor(std::move(worker));
  ProbeOptions how = {.threads = options.threads, .interrupted = interrupted};
  for (const std::string& dtype : asked.dtypes) how.formats.push_back(*dtype_named(dtype));
  const auto start = std::chrono::steady_clock::now();
  const Probed probed = probe(testee, executor, how);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::vector<std::string> left_out;
  const auto declaration = declaration_of(testee, probed, left_out);
  const auto against = contradictions(testee.description, probed.answers);
  if (!asked.file.empty()) write_file(asked.file, text_of(declaration) + "\n");
  if (asked.json) {
    fmt::print("{}\n", text_of(as_json(testee, probed, against, declaration)));
  } else {
    print_text(testee, probed, against, left_out, seconds);
  }
  return kConformant;
}

}  // namespace

Command add_probe(CLI::App& app) {
  const auto asked = std::make_shared<ProbeArguments>();
  CLI::App& command = *app.add_subcommand("probe", "Tell from its results what a kernel computes");
  command.add_option("testee", asked->testee, "One kernel, named as for --testee")->required();
  add_testee_limits(command, asked->testees);
  command.add_option("--dtype", asked->dtypes, "Of these formats alone; may be given again")
      ->check(takes_dtype());
  command.add_option("--write", asked->file, "Write what was told as a declaration");
  command.add_flag("--json", asked->json, "As JSON, with the declaration");
  return {.parser = &command, .carry_out = [=] { return probe(*asked); }};
}

}  // namespace attest
