#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cases/shapes.h"
#include "harness/command/commands.h"
#include "harness/command/identity.h"
#include "harness/command/option_groups.h"
#include "harness/command/session.h"
#include "harness/command/terminal.h"
#include "harness/fuzz/draws.h"
#include "harness/fuzz/fuzz.h"
#include "harness/gate/gate.h"
#include "harness/gate/stale.h"
#include "harness/run/conclude.h"
#include "harness/selfcheck/hunt.h"
#include "reports/files.h"
#include "reports/groups.h"
#include "reports/text.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSchema = "attest-gate-1";

// Larger ones are no exact numbers for all who read JSON.
constexpr std::uint64_t kMostOfAHiddenSeed = std::uint64_t(1) << 53;

struct GateArguments {
  TesteeOptions testees;
  CaseOptions cases = {};  // of which it takes shapes
  std::uint64_t seed = 0;  // a hidden one
  std::string baseline = {};
  RecordingOptions recording = {.jobs = hardware_threads()};
  double seconds = 60;
  std::uint64_t steps = 0, rounds = 0;
  bool declared = false;
  bool json = false;
};

// A library of attention kernels, or of what they are made of, that a testee may call.
struct Library {
  std::string file;
  std::string of;
};

std::vector<Library> libraries_among(const std::vector<std::string>& code) {
  constexpr std::pair<const char*, const char*> kKnown[] = {{"libtorch", "PyTorch"},
                                                            {"flash_attn", "flash-attention"},
                                                            {"xformers", "xFormers"},
                                                            {"cudnn", "cuDNN"},
                                                            {"cublas", "cuBLAS"},
                                                            {"onnxruntime", "ONNX Runtime"},
                                                            {"libmlx", "MLX"},
                                                            {"libggml", "ggml"},
                                                            {"flashinfer", "FlashInfer"},
                                                            {"aiter", "AITER"},
                                                            {"xla_extension", "XLA"},
                                                            {"jaxlib", "JAX"},
                                                            {"libmkl", "MKL"},
                                                            {"openblas", "OpenBLAS"},
                                                            {"libdnnl", "oneDNN"},
                                                            {"tensorflow", "TensorFlow"}};
  std::vector<Library> found;
  for (const std::string& file : code) {
    for (const auto& [part, of] : kKnown) {
      if (file.find(part) == file.npos) continue;
      found.push_back({file, of});
      break;
    }
  }
  return found;
}

// Whether its worker has loaded what drives one.
bool runs_on_a_device(const std::vector<std::string>& code) {
  return std::any_of(code.begin(), code.end(), [](const std::string& file) {
    const std::string name = fs::path(file).filename();
    return name.starts_with("libcuda.") || name.starts_with("libamdhip") ||
           name.starts_with("libze_loader");
  });
}

std::vector<std::string> owners(const std::vector<Library>& libraries) {
  std::vector<std::string> names;
  for (const Library& each : libraries) {
    if (std::find(names.begin(), names.end(), each.of) == names.end()) names.push_back(each.of);
  }
  return names;
}

// All that is told.
struct Told {
  std::string testee, baseline;
  std::string isolation;
  std::uint64_t seed = 0;
  double seconds = 0;
  GateResult result = {};
  FileSums files = {};
  std::vector<Library> libraries = {};
  std::vector<std::string> undecided = {};
  std::vector<std::string> notes = {};
  std::vector<std::string> repros = {};  // of the counterexamples
  std::string again = {}, next = {};

  int exit_code() const {
    if (!result.conforms()) return kNotConformant;
    return result.whole ? kConformant : kIncomplete;
  }
  const char* verdict() const {
    const int exit = exit_code();
    if (exit == kConformant) return "conformant";
    return exit == kNotConformant ? "not conformant" : "incomplete";
  }
  // Of the ratios of all timed problems.
  std::optional<double> mean_ratio() const {
    double sum = 0;
    int count = 0;
    for (const Speed& speed : result.speeds) {
      if (!speed.ratio) continue;
      sum += std::log(speed.ratio->median);
      ++count;
    }
    if (count == 0) return std::nullopt;
    return std::exp(sum / count);
  }
};

nlohmann::json to_json(const Interval& interval) {
  return {{"median", interval.median},
          {"least", interval.least},
          {"most", interval.most},
          {"level", interval.level}};
}

nlohmann::json to_json(const Speed& speed) {
  nlohmann::json json = {{"problem", speed.problem},
                         {"pass", speed.pass},
                         {"calls", speed.calls},
                         {"seconds", to_json(speed.seconds)},
                         {"least_believed", speed.least}};
  if (speed.baseline) json["baseline_seconds"] = to_json(*speed.baseline);
  if (speed.ratio) json["ratio"] = to_json(*speed.ratio);
  return json;
}

nlohmann::json to_json(const Counterexample& example, const std::string& repro) {
  const Verdict& v = example.verdict;
  nlohmann::json tensors = nlohmann::json::object();
  for (const auto& [tensor, e] : v.tensors) {
    if (e.worst.empty()) continue;
    // Numbers that JSON has not are text.
    const auto number = [](double value) {
      return std::isfinite(value) ? nlohmann::json(value)
                                  : nlohmann::json(fmt::format("{}", value));
    };
    tensors[std::string(name(tensor))] = {{"worst", e.worst},
                                          {"actual", number(e.actual)},
                                          {"exact", number(e.exact)},
                                          {"bound", number(e.bound)}};
  }
  return {{"found_by", example.found_by},
          {"problem", example.problem},
          {"entry", example.entry},
          {"outcome", name(v.outcome)},
          {"reason", v.reason},
          {"message", v.message},
          {"blamed", v.blamed},
          {"did_you_mean", example.meant},
          {"seen_again", example.seen_again},
          {"tensors", tensors},
          {"captured", v.captured},
          {"repro", repro}};
}

nlohmann::json to_json(const Told& told) {
  const GateResult& result = told.result;
  nlohmann::json examples = nlohmann::json::array(), speeds = nlohmann::json::array(),
                 libraries = nlohmann::json::array();
  for (std::size_t n = 0; n < result.counterexamples.size(); ++n) {
    examples.push_back(to_json(result.counterexamples[n], told.repros[n]));
  }
  for (const Speed& speed : result.speeds) speeds.push_back(to_json(speed));
  for (const Library& each : told.libraries) {
    libraries.push_back({{"file", each.file}, {"of", each.of}});
  }
  const bool named = !result.counterexamples.empty();
  nlohmann::json json = {{"schema", kSchema},
                         {"suite_version", ATTEST_VERSION},
                         {"suite_commit", suite_commit()},
                         {"testee", told.testee},
                         {"files", told.files},
                         {"isolation", told.isolation},
                         {"verdict", told.verdict()},
                         {"blamed", named ? result.counterexamples[0].verdict.blamed : ""},
                         {"did_you_mean", named ? result.counterexamples[0].meant : ""},
                         {"next", told.next},
                         {"seed", told.seed},
                         {"steps", result.steps},
                         {"rounds", result.rounds},
                         {"again", told.again},
                         {"seconds", told.seconds},
                         {"judged",
                          {{"cases", result.cases},
                           {"random_problems", result.problems},
                           {"timed_calls", result.calls}}},
                         {"outcomes", result.outcomes},
                         {"faults", result.faults},
                         {"counterexamples", examples},
                         {"not_believed", result.not_believed},
                         {"declared_too_loose", result.declared_too_loose},
                         {"speeds", speeds},
                         {"libraries", libraries},
                         {"undecided", told.undecided},
                         {"notes", told.notes}};
  if (!told.baseline.empty()) {
    json["baseline"] = {{"testee", told.baseline}, {"faults", result.baseline_faults}};
  }
  if (const auto ratio = told.mean_ratio()) json["mean_ratio"] = *ratio;
  return json;
}

// Times in the unit of their median.
std::string time_text(const Interval& seconds) {
  const auto [unit, factor] = seconds.median < 1e-3 ? std::pair("us", 1e6)
                              : seconds.median < 1  ? std::pair("ms", 1e3)
                                                    : std::pair("s", 1.0);
  return fmt::format("{:.3g} ({:.3g} to {:.3g}) {}", seconds.median * factor,
                     seconds.least * factor, seconds.most * factor, unit);
}

std::string to_text(const Speed& speed) {
  const std::string text =
      fmt::format("  {:<14} {:<8} {}", speed.problem, speed.pass, time_text(speed.seconds));
  if (!speed.ratio) return text + "\n";
  return fmt::format("{:<51} x {:.3g} ({:.3g} to {:.3g})\n", text, speed.ratio->median,
                     speed.ratio->least, speed.ratio->most);
}

std::string to_text(const Told& told) {
  constexpr std::size_t kKept = 300;
  const GateResult& result = told.result;
  std::string verdict = told.verdict();
  verdict[0] = static_cast<char>(std::toupper(verdict[0]));
  std::string text =
      fmt::format("{}: {}. Judged {}, {}, {}; {} wrong.\n", verdict, one_line(told.testee),
                  count_text(result.cases, "case"), count_text(result.problems, "random problem"),
                  count_text(result.calls, "timed call"), result.faults);
  for (std::size_t n = 0; n < result.counterexamples.size(); ++n) {
    const Counterexample& example = result.counterexamples[n];
    const Verdict& v = example.verdict;
    text += fmt::format("{}  {}\n    {}\n", outcome_text(v), example.problem,
                        one_line(excerpt(v.message, kKept, "--json")));
    if (!v.blamed.empty()) text += fmt::format("    clause  {}\n", clause_with_title(v.blamed));
    if (!example.meant.empty()) text += fmt::format("    did you mean  {}\n", example.meant);
    if (!example.seen_again)
      text += "    tried alone, it is right: it depends on what came before\n";
    text += fmt::format("    {}\n", told.repros[n]);
  }
  for (const std::string& each : result.not_believed) text += fmt::format("{}\n", each);
  for (const std::string& each : result.declared_too_loose) {
    text += fmt::format("It declares more than a profile takes by its bare name (NUM-2): {}\n",
                        one_line(each));
  }
  if (!result.speeds.empty()) {
    text += told.baseline.empty()
                ? "Time of a call\n"
                : fmt::format("Time of a call, and how many times as fast as {}\n",
                              one_line(told.baseline));
    for (const Speed& speed : result.speeds) text += to_text(speed);
  }
  if (const auto ratio = told.mean_ratio()) {
    text += fmt::format("  {:.3g} times as fast in the geometric mean\n", *ratio);
  }
  if (!result.baseline_faults.empty()) {
    text += fmt::format("The baseline is wrong itself, {}: {}\n",
                        count_text(std::ssize(result.baseline_faults), "time"),
                        one_line(excerpt(result.baseline_faults.front(), kKept, "--json")));
  }
  for (const std::string& each : told.undecided) text += fmt::format("Undecided: {}\n", each);
  for (const std::string& each : told.notes) text += fmt::format("Note: {}\n", each);
  return text + fmt::format("Again: {}\nNext: {}\n", told.again, told.next);
}

// What nothing here can tell.
std::vector<std::string> undecided_of(const Testee& testee, const std::vector<Library>& libraries) {
  std::vector<std::string> all;
  if (!libraries.empty()) {
    all.push_back(fmt::format("it runs code of {}: whether the kernel is its own is not told",
                              fmt::join(owners(libraries), ", ")));
  }
  if (!has_namespaces(testee.isolation)) {
    all.push_back(
        fmt::format("its isolation is {}: files and sockets that it shares with others "
                    "are not seen{}",
                    describe(testee.isolation),
                    testee.unisolated.empty() ? "" : " (" + testee.unisolated + ")"));
  }
  return all;
}

std::uint64_t hidden_seed() {
  std::random_device device;
  const std::uint64_t high = device();
  return 1 + ((high << 32 | device()) % (kMostOfAHiddenSeed - 1));
}

std::string again(const GateArguments& asked, const Told& told) {
  std::string line = fmt::format("attest gate {}", quoted(told.testee));
  if (!told.baseline.empty()) line += fmt::format(" --baseline {}", quoted(told.baseline));
  for (const std::string& each : asked.cases.shapes)
    line += fmt::format(" --shapes {}", quoted(each));
  if (asked.declared) line += " --declared";
  if (asked.testees.threads != 1) line += fmt::format(" --threads {}", asked.testees.threads);
  return line + fmt::format(" --seed {} --steps {} --rounds {}", told.seed, told.result.steps,
                            told.result.rounds);
}

// The counterexamples as a case file, and the commands that repeat them.
void write_examples(const GateArguments& asked, const Testee& testee, const RunOptions& run,
                    Told& told) {
  const fs::path file = fs::absolute(asked.recording.out / fmt::format("{}.json", kFuzzStem));
  std::vector<nlohmann::json> entries;
  for (Counterexample& example : told.result.counterexamples) {
    example.entry["name"] = fmt::format("counterexample_{}", entries.size() + 1);
    entries.push_back(example.entry);
    told.repros.push_back(
        record_of({example.entry, example.verdict}, testee, run, file).verdict.repro);
  }
  if (entries.empty()) return;
  fs::create_directories(asked.recording.out);
  write_file(file, to_case_file("What attest gate found.", entries));
}

// It can neither compute before it is asked, nor after its reply, nor while another is timed.
WorkerOptions still_worker(const Testee& testee, const TesteeOptions& options,
                           const Surroundings& around) {
  WorkerOptions worker = worker_options(testee, options.limits, around);
  worker.interrupted = interrupted;
  worker.still_between_requests = true;
  return worker;
}

// One whose calls are timed.
struct Guarded {
  Guarded(const Testee& testee, const TesteeOptions& options, const Surroundings& around,
          std::uint64_t seed)
      : worker(still_worker(testee, options, around)),
        stale(worker, seed),
        contender{testee, stale, options.threads} {}

  WorkerExecutor worker;
  Stale stale;
  Contender contender;
};

Testee the_one(const std::string& spec, TesteeOptions options, const Installation& installation,
               const Surroundings& around, const char* option) {
  options.testees = {spec};
  auto testees = testees_for(options, installation, around);
  if (testees.size() != 1) {
    throw InputError("", fmt::format("{} {} is {} kernels, and one is taken: {}", option, spec,
                                     testees.size(), testees.front().spec));
  }
  return std::move(testees.front());
}

int gate(const GateArguments& asked) {
  const int jobs = crew_for(asked.recording.jobs).jobs;  // as many as the files that it may open
  const Installation installation = find_installation();
  const Surroundings around = surroundings_for(asked.testees, installation);
  const Testee testee =
      the_one(asked.testees.testees.front(), asked.testees, installation, around, "the kernel");
  std::optional<Testee> other;
  if (!asked.baseline.empty()) {
    other = the_one(asked.baseline, asked.testees, installation, around, "--baseline");
  }
  // It is loaded by now, and has described itself.
  Told told = {.testee = testee.spec,
               .baseline = other ? other->spec : "",
               .isolation = std::string(name_of(testee.isolation)),
               .seed = asked.seed > 0 ? asked.seed : hidden_seed(),
               .seconds = asked.seconds};
  const auto suite = load_entries(installation.cases);
  const auto selected = selected_cases({}, installation).cases;
  const Asking asking(selected, {testee}, installation.cases, interrupted);
  GateTasks tasks = {.cases = by_worth(asking.asked(testee.name, selected)), .suite = suite};
  if (asked.cases.shapes.empty()) {
    tasks.timed = usual_problems(testee.description);
  } else {
    const Shapes shapes = load_shapes(asked.cases.shapes, installation.cases);
    told.notes = shapes.notes;
    tasks.timed = problems_of(shapes.cases, testee.description, told.notes);
  }
  if (tasks.timed.empty()) told.notes.push_back("no problem is timed: its declaration has none");

  const TesteeOptions& options = asked.testees;
  Guarded own(testee, options, around, told.seed);
  std::optional<Guarded> baseline;
  if (other) baseline.emplace(*other, options, around, told.seed);
  // Lest the first call has the time to load it, too.
  own.worker.execute({{"op", "describe"}, {"brief", true}});
  if (baseline) baseline->worker.execute({{"op", "describe"}, {"brief", true}});
  const GateOptions gate_options = {
      .seed = told.seed,
      .seconds = asked.seconds,
      .steps = asked.steps,
      .rounds = asked.rounds,
      .takes_declared = asked.declared,
      .on_device = runs_on_a_device(own.worker.code()),
      .run = {.jobs = jobs, .threads = options.threads, .limits = options.limits}};
  const MakeExecutor start = [&](const Testee& each) {
    return std::make_unique<WorkerExecutor>(still_worker(each, options, around));
  };
  told.result = pass_gate(tasks, own.contender, baseline ? &baseline->contender : nullptr,
                          gate_options, start, interrupted);
  told.libraries = libraries_among(own.worker.code());
  told.undecided = undecided_of(testee, told.libraries);
  FileSums known;
  told.files = sums_of(testee, known);
  told.again = again(asked, told);
  write_examples(asked, testee, gate_options.run, told);
  told.next = told.repros.empty() ? fmt::format("attest run --testee {}", quoted(testee.spec))
                                  : told.repros.front();
  if (asked.json) {
    fmt::print("{}\n", json_text(to_json(told), 2));
  } else {
    Terminal(stdout, asked.recording.terminal).write_coloured(to_text(told));
  }
  return told.exit_code();
}

}  // namespace

Command add_gate(CLI::App& app) {
  const auto asked = std::make_shared<GateArguments>();
  CLI::App& command = *app.add_subcommand(
      "gate", "Whether a kernel that nobody trusts is right, and how fast, within a minute");
  command.footer(
      "Sizes and numbers come from a seed that the kernel cannot know; each timed call is judged. "
      "The last lines say how to repeat all of it.");
  command
      .add_option("kernel", asked->testees.testees,
                  "A bundled kernel's name, FILE.py, LIBRARY.so, either with :KERNEL behind it, or "
                  "exec:COMMAND")
      ->required()
      ->expected(1);
  command.add_option("--baseline", asked->baseline, "A testee whose time is taken beside");
  command
      .add_option_function<std::string>(
          "--budget", [=](const std::string& text) { asked->seconds = std::stod(text); },
          "Seconds, as 60 or 60s, before what failed is made small. Default: 60")
      ->check(takes(
          "--budget", "a number of seconds above 0, as 60 or 60s", [](const std::string& text) {
            const std::string number = text.ends_with('s') ? text.substr(0, text.size() - 1) : text;
            return takes_seconds("--budget")(number).empty();
          }));
  command
      .add_option("--steps", asked->steps,
                  "Exactly so many times 60 cases and 30 random problems, whatever time they take")
      ->check(takes_count("--steps", 1, 1'000'000));
  command.add_option("--rounds", asked->rounds, "Likewise, so many calls of each timed problem")
      ->check(takes_count("--rounds", 1, 1'000'000));
  command.add_option("--seed", asked->seed, "Of the problems and numbers. Default: a hidden one")
      ->check(takes_count("--seed", 1, kMostOfAHiddenSeed));
  add_shapes(command, asked->cases);
  command.add_flag(
      "--declared", asked->declared,
      "Take arithmetic as it is declared where that is looser than by default (NUM-2)");
  add_testee_limits(command, asked->testees);
  command
      .add_option("--jobs", asked->recording.jobs,
                  "Cases and random problems examined at a time. Default: the hardware threads")
      ->check(takes_count("--jobs", 1, 1024));
  add_out(command, asked->recording, "the counterexamples");
  add_colour(command, asked->recording.terminal);
  command.add_flag("--json", asked->json, "As JSON (gate.schema.json)");
  take_one_at_a_time(command);
  return {.parser = &command, .carry_out = [=] { return gate(*asked); }};
}

}  // namespace attest
