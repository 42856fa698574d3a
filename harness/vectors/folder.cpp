#include "harness/vectors/folder.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/process/problem_tables.h"
#include "harness/process/tensors.h"
#include "harness/vectors/npy.h"
#include "reports/files.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"
#include "spec/read_file.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifestFile = "vectors.json";
constexpr const char* kSchema = "attest-vectors-1";

std::string npy_name(const std::string& tensor) { return tensor + ".npy"; }

}  // namespace

void write_manifest(const std::filesystem::path& folder, const Manifest& m) {
  const nlohmann::json json = {{"schema", kSchema},
                               {"suite_version", m.suite_version},
                               {"suite_commit", m.suite_commit},
                               {"cases", m.cases_digest},
                               {"tier", m.tier},
                               {"filters", m.filters},
                               {"seed", m.seed},
                               {"from", m.from},
                               {"shapes", m.shapes},
                               {"problems", m.problems}};
  write_file(folder / kManifestFile, json_text(json, 2) + "\n");
}

Manifest read_manifest(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kManifestFile;
  if (std::error_code none; !fs::exists(file, none)) {
    throw InputError("", fmt::format("{} is no folder of vectors: it has no {}; attest vectors "
                                     "makes one",
                                     folder.string(), kManifestFile));
  }
  const std::string text = read_file(file);
  try {
    const nlohmann::json json = parse_json(text);
    ObjectReader reader(json, "");
    if (const auto schema = reader.get<std::string>("schema"); schema != kSchema) {
      throw InputError("/schema", fmt::format("is {}, this program reads {}", schema, kSchema));
    }
    Manifest m = {.suite_version = reader.get<std::string>("suite_version"),
                  .suite_commit = reader.get<std::string>("suite_commit"),
                  .cases_digest = reader.get<std::string>("cases"),
                  .tier = reader.get<std::string>("tier"),
                  .filters = reader.get<std::vector<std::string>>("filters"),
                  .seed = reader.get<std::uint64_t>("seed"),
                  .from = reader.get<std::string>("from"),
                  .shapes = reader.get<std::vector<std::string>>("shapes"),
                  .problems = reader.get<Index>("problems")};
    reader.finish();
    return m;
  } catch (const InputError& error) {
    throw InputError("", fmt::format("{}: {}{}{}", file.string(), error.pointer(),
                                     error.pointer().empty() ? "" : " ", error.what()));
  } catch (const nlohmann::json::exception& error) {
    throw InputError("", fmt::format("{}: {}", file.string(), error.what()));
  }
}

std::filesystem::path folder_of(const std::filesystem::path& root, const Case& test_case) {
  return root / test_case.id;
}

std::vector<ProblemFile> input_files(const Problem& problem, const Inputs& inputs) {
  std::vector<ProblemFile> files;
  for_each_table(problem, [&](const std::string& name, const Shape& shape, const auto& numbers) {
    files.push_back({npy_name(name), npy_of(shape, numbers)});
  });
  for (const Crossing& t : inputs_of(problem, problem.backward)) {
    files.push_back({npy_name(wire_name(t.name)),
                     npy_of(t.shape, stored_values(problem, inputs, t.name).data, t.dtype)});
  }
  if (problem.dropout.mode == Dropout::Mode::given) {
    files.push_back(
        {npy_name(wire_name(TensorName::keep)), npy_of(inputs.keep.shape, inputs.keep.kept)});
  }
  return files;
}

double bytes_of_inputs(const Problem& problem) {
  constexpr double kHeader = 128, kDescription = 2048;
  double bytes = kDescription;
  const auto add = [&](const Shape& shape, std::size_t width) {
    bytes += kHeader + static_cast<double>(element_count(shape)) * static_cast<double>(width);
  };
  for_each_table(problem, [&](const std::string&, const Shape& shape, const auto& numbers) {
    add(shape, sizeof(numbers.front()));
  });
  for (const Crossing& t : inputs_of(problem, problem.backward)) {
    add(t.shape, static_cast<std::size_t>(format_of(t.dtype).bytes));
  }
  if (problem.dropout.mode == Dropout::Mode::given) add(problem.keep_shape(), 1);
  return bytes;
}

}  // namespace attest
