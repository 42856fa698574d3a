#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/command/commands.h"
#include "harness/command/identity.h"
#include "harness/command/option_groups.h"
#include "harness/command/outputs_testee.h"
#include "harness/command/session.h"
#include "harness/judge/prepared.h"
#include "harness/run/asking.h"
#include "harness/run/conclude.h"
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
  double max_bytes = 1 << 30;
};

nlohmann::json declaration(const VectorsArguments& asked) {
  if (!asked.description.empty()) return read_declaration(asked.description);
  std::vector<std::string> dtypes = asked.dtypes;
  if (dtypes.empty()) {
    for (const DType dtype : kDTypes) dtypes.emplace_back(name(dtype));
  }
  return {{"name", "outputs"},
          {"version", ""},
          {"vendor", ""},
          {"profiles", nlohmann::json::array()},
          {"dtypes", dtypes},
          {"features", asked.features.empty() ? known_features() : asked.features}};
}

std::string bytes_text(double bytes) {
  return bytes < 1 << 20 ? fmt::format("{:.0f} KiB", bytes / 1024)
                         : fmt::format("{:.1f} MiB", bytes / (1 << 20));
}

// Says how much will be written; throws InputError if that is more than may be.
void announce(const std::vector<Case>& cases, std::size_t selected, const VectorsArguments& asked) {
  double bytes = 0;
  std::size_t fit = 0;
  for (const Case& c : cases) {
    bytes += bytes_of_inputs(c.problem);
    fit += bytes <= asked.max_bytes;
  }
  const std::string what = fmt::format(
      "{} of {} selected, about {}", count_text(static_cast<Index>(cases.size()), "problem"),
      count_text(static_cast<Index>(selected), "case"), bytes_text(bytes));
  if (bytes > asked.max_bytes) {
    throw InputError("", fmt::format("{}, are more than --max-bytes {:.0f}, which has room for the "
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

int vectors(const VectorsArguments& asked) {
  const CaseOptions& options = asked.cases;
  const Installation installation = installation_for(options);
  const nlohmann::json declared = declaration(asked);
  const Testee testee = outputs_testee(declared, asked.folder, "the description");
  const std::vector<Case> all = all_cases(options, installation);
  const std::vector<Case> selected =
      select(all, {.tier = options.tier, .filters = options.filters, .seed = options.seed});
  const std::vector<Case> cases =
      Asking(selected, {testee}, installation.cases).asked(testee.name, selected);
  if (cases.empty()) {
    fmt::print(stderr, "attest: nothing is selected that the description takes\n");
    return kIncomplete;
  }
  std::error_code none;
  if (fs::exists(asked.folder, none) && !fs::is_empty(asked.folder, none)) {
    throw InputError("", fmt::format("{} is not empty; vectors go into a folder of their own",
                                     asked.folder.string()));
  }
  announce(cases, selected.size(), asked);
  make_folder(asked.folder);
  for (const Case& c : cases) {
    if (interrupted()) throw Interrupted();
    write_problem(asked.folder, c, testee, hardware_threads());
  }
  write_file(asked.folder / "README.md", kReadme);
  write_file(asked.folder / kDescriptionFile, json_text(declared, 2) + "\n");
  const Plan plan = plan_for(options, installation, all, selected.size());
  write_manifest(asked.folder, {.suite_version = ATTEST_VERSION,
                                .suite_commit = suite_commit(),
                                .cases_digest = plan.header.cases.digest,
                                .tier = plan.header.tier,
                                .filters = plan.header.filters,
                                .seed = options.seed,
                                .from = plan.header.from,
                                .shapes = plan.header.shapes,
                                .problems = std::ssize(cases)});
  fmt::print("{} in {}\nNext: attest judge {}\n", count_text(std::ssize(cases), "problem"),
             asked.folder.string(), asked.folder.string());
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
      ->check(takes_count("--max-bytes", 1, std::uint64_t(1) << 50))
      ->capture_default_str();
  return {.parser = &command, .carry_out = [=] { return vectors(*asked); }};
}

}  // namespace attest
