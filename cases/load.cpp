// Reads cases/**/*.json. The shape of a file:
//
//   {"about": "...",
//    "defaults": {fields of a problem, "dtypes", "data", "hidden", "check", "tier"},
//    "cases": [{"name": "...", "clauses": ["MASK-3"], "because": "one sentence",
//               "problem": {fields}, "for": {axes} (expand.h) or "cover": {...} (cover.h),
//               "dtypes": ["f32"], "data": ["normal"], "hidden": "nan", "check": "threads",
//               "laws": ["ones"], "tier": "smoke", "bits": "..."}]}
#include <fmt/format.h>

#include <map>
#include <string_view>

#include "cases/case.h"
#include "cases/entry.h"
#include "cases/entry_reader.h"
#include "cases/fit.h"
#include "cases/located_json.h"
#include "spec/json_reader.h"
#include "spec/read_file.h"

namespace attest {
namespace {

void read_cases(const nlohmann::json& root, FileRead source, std::vector<Case>& cases) {
  ObjectReader reader(root, "");
  reader.get<std::string>("about");
  if (const nlohmann::json* value = reader.find("defaults")) {
    ObjectReader own(*value, "/defaults");
    source.defaults.read(own);
    source.fields = *value;
    for (const char* key : kSettingKeys) source.fields.erase(key);
  }
  const nlohmann::json& list = reader.at("cases");
  if (!list.is_array() || list.empty()) {
    throw InputError("/cases", "\"cases\" takes a list of at least one entry");
  }
  reader.finish();
  for (std::size_t i = 0; i < list.size(); ++i) {
    read_entry(list[i], fmt::format("/cases/{}", i), source, cases);
  }
}

// All cases below `root`, or in it if it is a file; those that are `wanted` as entries too.
std::vector<Case> read_all(const std::filesystem::path& root, std::uint64_t seed,
                           WantedCases* wanted, CaseChoice* choice = nullptr) {
  namespace fs = std::filesystem;
  std::map<std::string, fs::path> files;  // by their path below the root: a stable order
  if (fs::is_regular_file(root)) {
    files[root.stem().generic_string()] = root;
  } else if (!fs::is_directory(root)) {
    throw InputError("", fmt::format("{}: no such folder of cases", root.generic_string()));
  } else {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root)) {
      if (!entry.is_regular_file() || entry.path().extension() != ".json") continue;
      const fs::path below = entry.path().lexically_relative(root);
      files[(below.parent_path() / below.stem()).generic_string()] = entry.path();
    }
  }
  if (files.empty()) {
    throw InputError("", fmt::format("{}: no case files (*.json) here", root.generic_string()));
  }
  std::vector<Case> cases;
  for (const auto& [stem, path] : files) {
    const std::string file = path.generic_string();
    const LocatedJson located(read_file(path), file);
    // A file of shapes (shapes.h) lies there for those who ask for it.
    const bool of_shapes = located.root().is_object() && located.root().contains("shapes");
    if (of_shapes && fs::is_directory(root)) continue;
    try {
      read_cases(located.root(),
                 {.stem = stem,
                  .file = file,
                  .json = &located,
                  .seed = seed,
                  .wanted = wanted,
                  .choice = choice},
                 cases);
    } catch (const InputError& error) {
      throw located.locate(error);
    }
  }
  std::map<std::string_view, const Case*> by_id;
  for (const Case& test_case : cases) {
    if (by_id.emplace(test_case.id, &test_case).second) continue;
    throw InputError("", fmt::format("{}:{}: the id {} stands twice", test_case.file,
                                     test_case.line, test_case.id));
  }
  return cases;
}

}  // namespace

Case read_entry(const nlohmann::json& entry, const std::string& stem, std::uint64_t seed) {
  FileRead source = {.stem = stem, .json = nullptr, .seed = seed};
  std::vector<Case> cases;
  read_entry(entry, "", source, cases);
  if (cases.size() != 1) {
    throw InputError("", fmt::format("the entry is {} cases, not one", cases.size()));
  }
  return std::move(cases.front());
}

nlohmann::json entry_of(const Case& test_case) {
  // The stem is the longest end of the file's path that the id begins with.
  const std::string path =
      std::filesystem::path(test_case.file).replace_extension().generic_string();
  std::size_t begin = 0;
  while (!test_case.id.starts_with(path.substr(begin) + "/")) {
    begin = path.find('/', begin);
    if (begin++ == std::string::npos) throw InputError("", test_case.id + " has no file");
  }
  const LocatedJson json(read_file(test_case.file), test_case.file);
  const std::string stem = path.substr(begin);
  WantedCases wanted = {.id = std::string(base_id(test_case.id))};
  std::vector<Case> cases;
  read_cases(json.root(), {.stem = stem, .json = &json, .seed = test_case.seed, .wanted = &wanted},
             cases);
  if (wanted.entries.empty()) {
    throw InputError("", fmt::format("{} no longer has {}", test_case.file, wanted.id));
  }
  nlohmann::json& base = wanted.entries.front();
  const auto fit = fit_of(test_case.id);
  if (fit.empty()) return std::move(base);
  return entry_with_fit({read_entry(base, stem, test_case.seed), base}, Fit::parse(fit));
}

std::vector<CaseWithEntry> load_entries(const std::filesystem::path& root) {
  WantedCases wanted = {.id = ""};
  std::vector<Case> cases = read_all(root, 1, &wanted);
  std::vector<CaseWithEntry> all;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    all.push_back({std::move(cases[i]), std::move(wanted.entries[i])});
  }
  return all;
}

std::vector<Case> load_cases(const std::filesystem::path& root, std::uint64_t seed) {
  return read_all(root, seed, nullptr);
}

std::vector<Case> load_cases(const std::filesystem::path& root, std::uint64_t seed,
                             CaseChoice& choice) {
  return read_all(root, seed, nullptr, &choice);
}

}  // namespace attest
