#include "harness/command/gating.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/fuzz/fuzz.h"
#include "harness/gate/armed.h"
#include "harness/gate/stale.h"
#include "harness/gate/timed.h"
#include "harness/gate/two_workers.h"
#include "harness/process/pool.h"
#include "harness/process/processes.h"
#include "harness/process/worker.h"
#include "harness/run/asking.h"
#include "harness/run/sha256.h"
#include "harness/selfcheck/hunt.h"
#include "reports/files.h"
#include "reports/text.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

// Larger ones are no exact numbers for all who read JSON.
constexpr std::uint64_t kMostOfAHiddenSeed = std::uint64_t(1) << 53;

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

std::vector<std::string> owners(const std::vector<Library>& libraries) {
  std::vector<std::string> names;
  for (const Library& each : libraries) {
    if (std::find(names.begin(), names.end(), each.of) == names.end()) names.push_back(each.of);
  }
  return names;
}

// It can neither compute before it is asked, nor after its reply, nor while another is timed.
// Those of one kernel that have another number have another home.
WorkerOptions still_worker(const Testee& testee, const TesteeOptions& options,
                           const Surroundings& around, int number = 0) {
  WorkerOptions worker = worker_options(testee, options.limits, around);
  worker.number = number;
  worker.interrupted = interrupted;
  worker.still_between_requests = true;
  return worker;
}

// A worker whose calls are timed.
struct Guarded {
  Guarded(const WorkerOptions& options, std::uint64_t seed)
      : worker(options), armed(worker), stale(armed, seed) {}

  WorkerExecutor worker;
  Armed armed;
  Stale stale;
};

// One that is timed.
struct Timed {
  Timed(const Testee& testee, const TesteeOptions& options, const Surroundings& around,
        std::uint64_t seed)
      : has_two(testee.description.has("backward")),
        first(still_worker(testee, options, around, 0), seed),
        second(still_worker(testee, options, around, 1), seed),
        workers(first.stale, second.stale),
        contender{.testee = testee,
                  .executor = has_two ? static_cast<Executor&>(workers) : first.stale,
                  .workers = has_two ? &workers : nullptr,
                  .threads = options.threads} {}

  void load() {
    first.armed.load();
    if (has_two) second.armed.load();
    contender.on_device = [this] {
      has_device = has_device || have_a_gpu(family());
      return has_device;
    };
  }

  // Whether that is true of one of the workers.
  template <class Is>
  bool any(const Is& is) const {
    return is(first.worker) || is(second.worker);
  }

  std::vector<pid_t> family() const {
    std::vector<pid_t> all = first.worker.family();
    const std::vector<pid_t> more = second.worker.family();
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  bool has_two;  // if there are backward calls
  Guarded first, second;
  TwoWorkers workers;
  Contender contender;
  bool has_device = false;
};

// What nothing here can tell.
std::vector<std::string> undecided_of(const Testee& testee, const Told& told, const Timed& timed,
                                      const std::vector<std::string>& code) {
  std::vector<std::string> all;
  if (!told.libraries.empty()) {
    all.push_back(fmt::format("it runs code of {}: whether the kernel is its own is not told",
                              fmt::join(owners(told.libraries), ", ")));
  }
  const auto& speeds = told.result.speeds;
  if (std::any_of(speeds.begin(), speeds.end(), [](const Speed& each) { return each.by_events; })) {
    all.push_back(
        told.baseline.empty()
            ? "its times are told by events in its own process; with --baseline, what they leave "
              "out is compared"
            : fmt::format(
                  "its times are told by events in its own process: of what they leave out, "
                  "less than {:.0f} ms a call more than of the baseline's is not seen",
                  1e3 * kLeftOutUnseen));
  }
  if (!speeds.empty() && !told.result.threads_untold.empty()) {
    all.push_back(
        fmt::format("on how many threads it computes: the calls of {} are too short to tell",
                    count_text(std::ssize(told.result.threads_untold), "timing")));
  }
  if (timed.any([](const WorkerExecutor& each) { return each.has_left_processes(); })) {
    all.push_back(
        "it leaves processes behind, which are stopped while nothing is asked of it: what they are "
        "for is not told");
  }
  if (timed.any([](const WorkerExecutor& each) { return !each.is_stillness_told(); })) {
    all.push_back(
        "whether it computes between calls, when it is stopped, is not told: this system has no "
        "clock of another process's time");
  }
  // What compiles in its first calls does so in no later one.
  const std::size_t with_children =
      timed.first.worker.calls_with_children() + timed.second.worker.calls_with_children();
  if (with_children > std::size_t(told.result.calls) / 2) {
    all.push_back("its calls start processes: whose code those run is not told");
  }
  const std::vector<pid_t> family = timed.family();
  if (std::any_of(family.begin(), family.end(), ignores_children)) {
    all.push_back(
        "it ignores the end of processes that it starts (SIGCHLD): what those compute is told only "
        "of those that live for 50 ms");
  }
  if (std::any_of(code.begin(), code.end(),
                  [](const std::string& file) { return file.starts_with("/memfd:"); })) {
    all.push_back("it runs code that no file holds (memfd_create): whose that is, is not told");
  }
  if (const std::size_t bytes = bytes_of_code_in_memory(family); bytes > 0) {
    all.push_back(
        fmt::format("{} KiB of its code lie in memory alone, made at run time or copied: "
                    "whose that is, is not told",
                    (bytes + 1023) / 1024));
  }
  if (!told.result.long_rows.empty()) {
    all.push_back(fmt::format(
        "in rows of so many keys bounds are wider than what lower precision than is declared, or "
        "leaving out keys of little weight, costs on inputs like those of a model ({})",
        fmt::join(told.result.long_rows, ", ")));
  }
  for (const std::string& each : told.result.untold) all.push_back(each);
  if (!has_namespaces(testee.isolation)) {
    all.push_back(
        fmt::format("its isolation is {}: files, sockets and processes that it shares with others "
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

std::string again(const GateArguments& asked, const RunOptions& run, const Told& told) {
  std::string line = fmt::format("attest gate {}", quoted(told.testee));
  if (!told.baseline.empty()) line += fmt::format(" --baseline {}", quoted(told.baseline));
  for (const std::string& each : asked.cases.shapes)
    line += fmt::format(" --shapes {}", quoted(each));
  if (asked.declared) line += " --declared";
  line += options_text(run) + fmt::format(" --seed {}", told.seed);
  if (told.result.steps > 0) line += fmt::format(" --steps {}", told.result.steps);
  if (told.result.rounds > 0) line += fmt::format(" --rounds {}", told.result.rounds);
  return line;
}

// The counterexamples as a case file, and the commands that repeat them.
void write_examples(const GateArguments& asked, const Testee& testee, const RunOptions& run,
                    const std::string& name, Told& told) {
  const fs::path file = fs::absolute(asked.recording.out / name);
  std::vector<nlohmann::json> entries;
  for (Counterexample& example : told.result.counterexamples) {
    example.entry["name"] = fmt::format("counterexample_{}", entries.size() + 1);
    entries.push_back(example.entry);
    told.repros.push_back(
        record_of({example.entry, example.verdict}, testee, run, file).verdict.repro);
  }
  if (entries.empty()) return;
  make_folder(asked.recording.out);
  write_file(file, to_case_file("What attest gate found.", entries));
}

// What a reader of the result is to know beside.
void add_notes(bool is_timed, Told& told) {
  if (told.result.outcomes.contains(std::string(name(Outcome::not_run)))) {
    told.notes.push_back(
        "NOT_RUN is what was interrupted, or what there was no memory for, as the kernel says or "
        "of the machine: without it nothing is concluded");
  }
  if (told.result.outcomes.contains(std::string(name(Outcome::inconclusive)))) {
    told.notes.push_back(
        "INCONCLUSIVE is what no result would tell a right kernel from a wrong one by: it counts "
        "for neither");
  }
  told.notes.push_back(fmt::format("nothing larger was asked than {} queries and {} keys",
                                   told.result.most_queries, told.result.most_keys));
  if (told.result.conforms() && is_timed && told.result.speeds.empty() &&
      told.result.untold.empty()) {
    told.notes.push_back("no speed: the budget ended in the first round, which warms up");
  }
}

// One of each class of inputs in each format comes first: a kernel may tell by its numbers whether
// it is checked or timed.
std::vector<Case> each_class_first(std::vector<Case> cases) {
  std::set<std::pair<DType, std::string>> seen;
  std::stable_partition(cases.begin(), cases.end(), [&](const Case& each) {
    return seen.emplace(each.problem.dtype, each.data).second;
  });
  return cases;
}

// Whether the library of the baseline, or a copy, is among what it runs; the same one is its own.
bool runs_code_of(const Testee& baseline, const Testee& testee,
                  const std::vector<std::string>& code) {
  const std::string& library = baseline.command.back();
  if (!library.ends_with(".so") || library == testee.command.back()) return false;
  std::error_code none;
  const auto size = fs::file_size(library, none);
  const std::string sum = sha256_of_file(library);
  return std::any_of(code.begin(), code.end(), [&](const std::string& file) {
    return fs::file_size(file, none) == size && sha256_of_file(file) == sum;
  });
}

// What `work` gives; its errors, which speak of the option of other commands, name `option`.
template <class Work>
auto named_by(const std::string& option, const Work& work) {
  try {
    return work();
  } catch (const InputError& error) {
    const std::string what = error.what(), other = "--testee ";
    if (!what.starts_with(other)) throw;
    throw InputError("", option + what.substr(other.size()));
  }
}

// In which no file that a kernel writes is there for another, or for a later run.
Surroundings surroundings_of(const GateArguments& asked, const Installation& installation) {
  Surroundings around = named_by("", [&] { return surroundings_for(asked.testees, installation); });
  around.keeps_nothing = true;
  return around;
}

}  // namespace

Gating::Gating(const GateArguments& asked)
    : asked_(asked),
      installation_(find_installation()),
      around_(surroundings_of(asked, installation_)),
      jobs_(crew_for(asked.recording.jobs).jobs),  // as many as the files that it may open
      entries_(load_entries(installation_.cases)),
      cases_(selected_cases({}, installation_).cases) {
  make_folder(asked.recording.out);  // before anything is asked: what is found lies there
  if (!asked.baseline.empty()) {
    auto named = kernels(asked.baseline, "--baseline ");
    if (named.size() != 1) {
      throw InputError("", fmt::format("--baseline {} is {} kernels, and one is taken: {}",
                                       asked.baseline, named.size(), named.front().spec));
    }
    baseline_ = std::move(named.front());
  }
  if (!asked.cases.shapes.empty()) {
    shapes_ = load_shapes(asked.cases.shapes, installation_.cases);
  }
}

std::vector<Testee> Gating::kernels(const std::string& spec, const std::string& option) const {
  TesteeOptions options = asked_.testees;
  options.testees = {spec};
  return named_by(option, [&] { return testees_for(options, installation_, around_); });
}

std::uint64_t Gating::seed() const { return asked_.seed > 0 ? asked_.seed : hidden_seed(); }

Told Gating::told(const Testee& testee, std::uint64_t seed, const std::string& examples) const {
  Told told = {.testee = testee.spec,
               .baseline = baseline_ ? baseline_->spec : "",
               .isolation = std::string(name_of(testee.isolation)),
               .seed = seed,
               .seconds = asked_.seconds};
  const Asking asking(cases_, {testee}, installation_.cases, interrupted);
  GateTasks tasks = {.cases = each_class_first(by_worth(asking.asked(testee.name, cases_))),
                     .suite = entries_};
  if (shapes_) {
    told.notes = shapes_->notes;
    tasks.timed = problems_of(shapes_->cases, testee.description, told.notes);
  } else {
    tasks.timed = usual_problems(testee.description, seed);
  }
  if (tasks.timed.empty()) {
    told.notes.push_back(shapes_ ? "no problem is timed: none of the shapes is what it declares"
                                 : "no problem is timed: its declaration has none");
  }

  const TesteeOptions& options = asked_.testees;
  Timed own(testee, options, around_, seed);
  std::optional<Timed> other;
  if (baseline_) other.emplace(*baseline_, options, around_, seed);
  own.load();
  if (other) other->load();
  const GateOptions gate_options = {.seed = seed,
                                    .seconds = asked_.seconds,
                                    .steps = asked_.steps,
                                    .rounds = asked_.rounds,
                                    .takes_declared = asked_.declared,
                                    .run = {.jobs = jobs_,
                                            .threads = options.threads,
                                            .limits = options.limits,
                                            .surroundings = surroundings_text(options)}};
  const MakeExecutor start = [&](const Testee& each) {
    return std::make_unique<WorkerExecutor>(still_worker(each, options, around_));
  };
  told.result = pass_gate(tasks, own.contender, other ? &other->contender : nullptr, gate_options,
                          start, interrupted);
  if (shapes_ && tasks.timed.empty()) told.result.whole = false;  // what was asked for is left open
  const std::vector<std::string> code = code_of(own.family());
  told.libraries = libraries_among(code);
  add_notes(!tasks.timed.empty(), told);
  FileSums known;
  told.files = sums_of(testee, known);
  told.undecided = undecided_of(testee, told, own, code);
  if (baseline_ && runs_code_of(*baseline_, testee, code)) {
    told.undecided.push_back(
        "it runs the baseline's code: whether the kernel is its own is not told");
  }
  told.again = again(asked_, gate_options.run, told);
  write_examples(asked_, testee, gate_options.run, examples, told);
  told.next = told.repros.empty() ? fmt::format("attest run --testee {}", quoted(testee.spec)) +
                                        options_text(gate_options.run)
                                  : told.repros.front();
  return told;
}

void add_gate_options(CLI::App& command, GateArguments& asked) {
  command.add_option("--baseline", asked.baseline, "A testee whose time is taken beside");
  command
      .add_option_function<std::string>(
          "--budget", [&asked](const std::string& text) { asked.seconds = std::stod(text); },
          "Seconds, as 60 or 60s, before what failed is made small. Default: 60")
      ->check(takes(
          "--budget", "a number of seconds above 0, as 60 or 60s", [](const std::string& text) {
            const std::string number = text.ends_with('s') ? text.substr(0, text.size() - 1) : text;
            return takes_seconds("--budget")(number).empty();
          }));
  command
      .add_option("--steps", asked.steps,
                  "Exactly so many times 60 cases and 30 random problems, whatever time they take")
      ->check(takes_count("--steps", 1, 1'000'000))
      ->excludes("--budget");
  command.add_option("--rounds", asked.rounds, "Likewise, so many calls of each timed problem")
      ->check(takes_count("--rounds", 1, 1'000'000))
      ->excludes("--budget");
  command.add_option("--seed", asked.seed, "Of the problems and numbers. Default: a hidden one")
      ->check(takes_count("--seed", 1, kMostOfAHiddenSeed));
  add_shapes(command, asked.cases);
  command.add_flag(
      "--declared", asked.declared,
      "Take arithmetic as it is declared where that is looser than by default (NUM-2)");
  add_testee_limits(command, asked.testees);
  command
      .add_option("--jobs", asked.recording.jobs,
                  "Cases and random problems examined at a time. Default: the hardware threads")
      ->check(takes_count("--jobs", 1, 1024));
  add_out(command, asked.recording, "the counterexamples");
  add_colour(command, asked.recording.terminal);
  command.add_flag("--json", asked.json, "As JSON, of a schema in spec/");
}

}  // namespace attest
