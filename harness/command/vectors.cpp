#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cases/device_check.h"
#include "harness/command/commands.h"
#include "harness/command/identity.h"
#include "harness/command/option_groups.h"
#include "harness/command/outputs_testee.h"
#include "harness/command/session.h"
#include "harness/judge/prepared.h"
#include "harness/judge/promise.h"
#include "harness/run/asking.h"
#include "harness/run/conclude.h"
#include "harness/run/examine.h"
#include "harness/run/run.h"
#include "harness/vectors/folder.h"
#include "harness/vectors/problem_json.h"
#include "reports/files.h"
#include "reports/text.h"
#include "spec/dtype.h"
#include "spec/feature.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

constexpr const char* kReadme = R"(# Vectors of Attest

Each folder that has a `problem.json` is a problem of attention with its inputs. Compute what its
`outputs` say and save it beside them, then let it be judged:

    attest judge THIS_FOLDER

In Python:

    import json, pathlib, numpy as np
    for file in pathlib.Path("THIS_FOLDER").rglob("problem.json"):
        about = json.loads(file.read_text())
        tensors = {name: np.load(file.parent / t["file"]) for name, t in about["inputs"].items()}
        for name, array in my_attention(about["problem"], tensors).items():  # "o", "lse", "dq", ...
            np.save(file.parent / about["outputs"][name]["file"], array)

`problem` is said as to a worker (SPEC.md, chapters "Vectors" and "Worker"). All tensors are dense,
[batch, heads, positions, channels]; LSE may be saved without its last axis. bf16, which NumPy has
not, lies there as uint16, its bits; `.view(ml_dtypes.bfloat16)` reads them, and is taken back too.
Results are saved in the type that `outputs` says, rounded to it by whoever computes them.

`description.json` says by what name and arithmetic outputs are judged, and which features and
formats these problems may need: mend it to say what your kernel is (SPEC.md, chapter
"Description"; `spec/description.schema.json`). There are no expected values here.
)";

struct VectorsArguments {
  CaseOptions cases;
  fs::path folder;
  fs::path description;
  std::vector<std::string> dtypes;
  std::vector<std::string> features;
  std::string max_bytes = "1GiB";
};

nlohmann::json declaration(const VectorsArguments& asked) {
  if (!asked.description.empty()) return read_declaration(asked.description);
  std::vector<std::string> dtypes = asked.dtypes;
  if (dtypes.empty()) {
    for (const DType dtype : kDTypes) dtypes.emplace_back(name(dtype));
  }
  std::vector<std::string> features = asked.features;
  if (features.empty()) {  // all but promises of calls on a device
    features = known_features();
    for (const DeviceCheck& check : kDeviceChecks) std::erase(features, std::string(check.feature));
  }
  return {{"name", "outputs"}, {"version", ""},
          {"vendor", ""},      {"profiles", nlohmann::json::array()},
          {"dtypes", dtypes},  {"features", features}};
}

std::string bytes_text(double bytes) {
  for (const char* unit : {"KiB", "MiB", "GiB"}) {
    bytes /= 1024;
    if (bytes < 1024) return fmt::format("{:.{}f} {}", bytes, bytes < 100 ? 1 : 0, unit);
  }
  return fmt::format("{:.1f} TiB", bytes / 1024);
}

// 1000, 1e9, 1.5G, 10MiB: a number, and what it is multiplied by; nothing for another text.
std::optional<double> bytes_in(const std::string& text) {
  static const std::map<std::string_view, double> kUnits = {
      {"", 1},         {"B", 1},    {"K", 1e3},   {"k", 1e3},      {"KB", 1e3}, {"kB", 1e3},
      {"KiB", 0x1p10}, {"M", 1e6},  {"MB", 1e6},  {"MiB", 0x1p20}, {"G", 1e9},  {"GB", 1e9},
      {"GiB", 0x1p30}, {"T", 1e12}, {"TB", 1e12}, {"TiB", 0x1p40}};
  constexpr double kMost = 0x1p50;
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  const auto unit = kUnits.find(std::string_view(rest, static_cast<std::size_t>(end - rest)));
  if (error != std::errc() || unit == kUnits.end()) return std::nullopt;
  const double bytes = number * unit->second;
  return bytes >= 1 && bytes <= kMost ? std::optional(bytes) : std::nullopt;
}

// Says how much will be written; throws InputError if that is more than may be.
void announce(const std::vector<Case>& cases, std::size_t selected, const VectorsArguments& asked) {
  const double most = *bytes_in(asked.max_bytes);
  double bytes = 0;
  std::size_t fit = 0;
  for (const Case& c : cases) {
    bytes += bytes_of_inputs(c.problem);
    fit += bytes <= most;
  }
  const std::string what = fmt::format(
      "{} of {} selected, about {}", count_text(static_cast<Index>(cases.size()), "problem"),
      count_text(static_cast<Index>(selected), "case"), bytes_text(bytes));
  if (bytes > most) {
    throw InputError("", fmt::format("{}, are more than --max-bytes {}, which has room for the "
                                     "first {}; --tier, --cases, --dtype and --features select",
                                     what, asked.max_bytes, fit));
  }
  fmt::print(stderr, "attest: {} in {}\n", what, asked.folder.string());
}

void write_problem(const fs::path& root, const Case& c, const Testee& testee, int threads) {
  const PreparedCase prepared(c, threads);
  const fs::path folder = folder_of(root, c);
  make_folder(folder);
  for (const ProblemFile& file : input_files(c.problem, prepared.inputs())) {
    write_file(folder / file.name, file.content);
  }
  // Last: a folder that has it is whole.
  write_file(folder / kProblemFile, json_text(problem_json(c, testee.description), 2) + "\n");
}

// Less the cases that judge could say nothing of, whatever their outputs; it says which.
std::vector<Case> told_by_outputs(std::vector<Case> cases, const Testee& testee) {
  std::set<std::string> reasons;
  const auto left_out = std::erase_if(cases, [&](const Case& c) {
    const std::string why = untold_by_outputs(c, testee.description);
    if (!why.empty())
      reasons.insert(why.starts_with(kNoPromise) ? why.substr(kNoPromise.size()) : why);
    return !why.empty();
  });
  if (left_out > 0) {
    fmt::print(stderr,
               "attest: left out, as they are about what is not declared, of which outputs "
               "tell nothing: {} ({})\n",
               count_text(static_cast<Index>(left_out), "case"), fmt::join(reasons, ", "));
  }
  return cases;
}

// All files of the folder.
void fill(const fs::path& root, const std::vector<Case>& cases, const nlohmann::json& declared,
          const Testee& testee, const Manifest& manifest) {
  for (const Case& c : cases) {
    if (interrupted()) throw Interrupted();
    write_problem(root, c, testee, hardware_threads());
  }
  write_file(root / "README.md", kReadme);
  write_file(root / kDescriptionFile, json_text(declared, 2) + "\n");
  write_manifest(root, manifest);
}

int vectors(const VectorsArguments& asked) {
  NewFolder folder(asked.folder);  // first of all: no folder is too late to be refused
  const CaseOptions& options = asked.cases;
  const Installation installation = installation_for(options);
  const nlohmann::json declared = declaration(asked);
  const Testee testee =
      outputs_testee(declared, asked.folder,
                     asked.description.empty() ? "the description" : asked.description.string());
  const auto [selected, complete] = selected_cases(options, installation);
  const std::vector<Case> cases = told_by_outputs(
      Asking(selected, {testee}, installation.cases).asked(testee.name, selected), testee);
  if (cases.empty()) {
    fmt::print(stderr, "attest: nothing is selected that the description takes\n");
    return kIncomplete;
  }
  announce(cases, selected.size(), asked);
  const Plan plan = plan_for(options, installation, complete, selected.size());
  fill(folder.path(), cases, declared, testee,
       {.suite_version = ATTEST_VERSION,
        .suite_commit = suite_commit(),
        .cases_digest = plan.header.cases.digest,
        .tier = plan.header.tier,
        .filters = plan.header.filters,
        .seed = options.seed,
        .from = plan.header.from,
        .shapes = plan.header.shapes,
        .problems = std::ssize(cases)});
  folder.put_in_place();
  fmt::print("{} in {}\nNext: attest judge {}\n", count_text(std::ssize(cases), "problem"),
             asked.folder.string(), quoted(asked.folder.string()));
  return kConformant;
}

}  // namespace

Command add_vectors(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "vectors", "Write problems and inputs as files, for outputs computed by whatever means");
  const auto asked = std::make_shared<VectorsArguments>();
  command.add_option("folder", asked->folder, "A new folder")->required();
  add_selection(command, asked->cases);
  add_shapes(command, asked->cases);
  command
      .add_option("--description", asked->description,
                  "What the kernel declares, as JSON: only problems that it takes")
      ->type_name("FILE");
  command.add_option("--dtype", asked->dtypes, "Only this format; may be given again")
      ->check(takes_dtype())
      ->excludes("--description");
  command
      .add_option("--features", asked->features,
                  "Only problems that need no other features, as a,b. Default: all")
      ->delimiter(',')
      ->excludes("--description");
  command
      .add_option("--max-bytes", asked->max_bytes, "Write nothing if it would be more than that")
      ->check(takes("--max-bytes",
                    "a number of bytes up to 1024TiB, as 1000000, 1e9, 1.5G or 10MiB",
                    [](const std::string& text) { return bytes_in(text).has_value(); }))
      ->type_name("SIZE")
      ->capture_default_str();
  return {.parser = &command, .carry_out = [=] { return vectors(*asked); }};
}

}  // namespace attest
