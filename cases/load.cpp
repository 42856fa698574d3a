// Reads cases/**/*.json. The shape of a file:
//
//   {"about": "...",
//    "defaults": {fields of a problem, "dtypes", "data", "hidden", "tier"},
//    "cases": [{"name": "...", "clauses": ["MASK-3"], "because": "one sentence",
//               "problem": {fields}, "for": {axes},
//               "dtypes": ["f32"], "data": ["normal"], "hidden": "nan", "tier": "smoke"}]}
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "cases/case.h"
#include "cases/expand.h"
#include "cases/generate.h"
#include "cases/located_json.h"
#include "cases/problem_reader.h"
#include "spec/clause.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

// The text of a list of names, checked: not empty, none twice, each one of `known`.
std::vector<std::string> read_names(const nlohmann::json& list, const std::string& pointer,
                                    std::string_view what, const std::vector<std::string>& known) {
  if (!list.is_array() || list.empty()) {
    throw InputError(pointer,
                     fmt::format("a list of at least one {} is needed, not {}", what, list.dump()));
  }
  std::vector<std::string> names;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string place = fmt::format("{}/{}", pointer, i);
    if (!list[i].is_string())
      throw InputError(place, fmt::format("{} is no {}", list[i].dump(), what));
    const auto name = list[i].get<std::string>();
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      throw InputError(place, fmt::format("unknown {} \"{}\"; similar: {}", what, name,
                                          fmt::join(nearest_names(name, known), ", ")));
    }
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      throw InputError(place, fmt::format("{} \"{}\" stands twice", what, name));
    }
    names.push_back(name);
  }
  return names;
}

std::string read_name(const nlohmann::json& value, const std::string& pointer,
                      std::string_view what, const std::vector<std::string>& known) {
  return read_names(nlohmann::json::array({value}), pointer, what, known).front();
}

const std::vector<std::string> kTierNames = {"smoke", "standard", "full"};
const std::vector<std::string> kHiddenNames = {"plain", "huge", "nan"};

std::size_t index_of(const std::vector<std::string>& names, const std::string& name) {
  return static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

std::vector<std::string> clause_names() {
  std::vector<std::string> names;
  for (const Clause& clause : clauses()) names.emplace_back(clause.id);
  return names;
}

std::vector<std::string> dtype_names() {
  std::vector<std::string> names;
  for (const DType dtype : kDTypes) names.emplace_back(name(dtype));
  return names;
}

std::vector<std::string> data_names() {
  std::vector<std::string> names;
  for (const InputClass& input_class : input_classes()) names.push_back(input_class.name);
  return names;
}

// What defaults and entries both may say of the inputs; an entry's word wins.
struct Settings {
  std::vector<std::string> dtypes = {"f32", "f16", "bf16"};
  std::vector<std::string> data = {"normal"};
  Hidden hidden = Hidden::plain;
  Tier tier = Tier::standard;

  void read(ObjectReader& reader) {
    if (const auto* value = reader.find("dtypes")) {
      dtypes = read_names(*value, reader.pointer("dtypes"), "dtype", dtype_names());
    }
    if (const auto* value = reader.find("data")) {
      data = read_names(*value, reader.pointer("data"), "data class", data_names());
    }
    if (const auto* value = reader.find("hidden")) {
      hidden = static_cast<Hidden>(index_of(
          kHiddenNames, read_name(*value, reader.pointer("hidden"), "way to hide", kHiddenNames)));
    }
    if (const auto* value = reader.find("tier")) {
      tier = static_cast<Tier>(
          index_of(kTierNames, read_name(*value, reader.pointer("tier"), "tier", kTierNames)));
    }
  }
};

// The clauses whose features a problem needs beyond the core that every kernel has. A case must
// cite them all, or a testee would be failed for a feature that it never claimed (spec/profile.h).
void imply(const Mask& mask, std::vector<std::string>& implied) {
  switch (mask.kind) {
    case Mask::Kind::full:
      return;
    case Mask::Kind::band:
      if (mask.left != kUnbounded || mask.right != 0) implied.push_back("MASK-4");
      return;
    case Mask::Kind::dense:
      implied.push_back("MASK-7");
      return;
    case Mask::Kind::all_of:
      implied.push_back("MASK-8");
      break;
    case Mask::Kind::any_of:
      implied.push_back("MASK-9");
      break;
  }
  for (const Mask& part : mask.parts) imply(part, implied);
}

std::vector<std::string> implied_clauses(const Problem& problem) {
  std::vector<std::string> implied;
  imply(problem.mask, implied);
  if (!problem.key_lens.empty()) implied.push_back("MASK-5");
  if (!problem.query_lens.empty()) implied.push_back("MASK-6");
  if (problem.backward) implied.insert(implied.end(), {"GRAD-1", "GRAD-2", "GRAD-3"});
  if (problem.dtype == DType::f64) implied.push_back("FORMAT-1");
  const Layouts& layouts = problem.layouts;
  for (const Layout* layout : {&layouts.q, &layouts.k, &layouts.v, &layouts.d_o}) {
    const std::string order = layout->to_string().substr(0, 4);
    bool expands = false;
    for (const Axis axis : {kBatch, kHead, kPosition, kChannel}) expands |= layout->expands(axis);
    if (order == "sbhd")
      implied.push_back("LAYOUT-4");
    else if (expands || (order != "bhsd" && order != "bshd"))
      implied.push_back("LAYOUT-3");
  }
  return implied;
}

// Throws if what the case hides cannot be hidden.
void check_hidden(const Case& test_case, const std::string& pointer) {
  if (test_case.hidden == Hidden::plain) return;
  const Problem& p = test_case.problem;
  for (const Layout* layout : {&p.layouts.k, &p.layouts.v}) {
    for (const Axis axis : {kBatch, kHead, kPosition, kChannel}) {
      if (layout->expands(axis)) {
        throw InputError(pointer,
                         "\"hidden\" needs K and V that are not expanded: an element may be "
                         "hidden in one place and seen in another");
      }
    }
  }
  const bool shorter = std::any_of(p.key_lens.begin(), p.key_lens.end(),
                                   [&](Index length) { return length < p.key_len; });
  if (test_case.hidden == Hidden::nan && !shorter) {
    throw InputError(pointer,
                     "\"hidden\": \"nan\" fills keys beyond a length, and no key_lens is "
                     "below key_len");
  }
}

bool is_name(const std::string& text) {
  return !text.empty() &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == text.npos;
}

struct Source {
  std::string stem;  // path below the root, without .json
  std::string file;
  const LocatedJson& json;
  std::uint64_t seed;
};

void read_entry(const nlohmann::json& entry, const std::string& pointer,
                const nlohmann::json& fields, const Settings& defaults, const Source& source,
                std::set<std::string>& names, std::vector<Case>& cases) {
  ObjectReader reader(entry, pointer);
  const auto name = reader.get<std::string>("name");
  if (!is_name(name)) {
    throw InputError(reader.pointer("name"), fmt::format("\"{}\" is no name: lower-case letters, "
                                                         "digits and _ only",
                                                         name));
  }
  if (!names.insert(name).second) {
    throw InputError(reader.pointer("name"), fmt::format("the name \"{}\" stands twice", name));
  }
  const auto cited =
      read_names(reader.at("clauses"), reader.pointer("clauses"), "clause", clause_names());
  const auto because = reader.get<std::string>("because");
  if (because.empty()) throw InputError(reader.pointer("because"), "\"because\" is empty");
  const nlohmann::json* problem = reader.find("problem");
  const auto points = expand_axes(reader.find("for"), reader.pointer("for"));
  Settings settings = defaults;
  settings.read(reader);
  reader.finish();

  for (const Point& point : points) {
    ProblemReader problem_reader;
    problem_reader.add(fields, "/defaults");
    if (problem) problem_reader.add(*problem, reader.pointer("problem"));
    for (const Setting& setting : point.settings) problem_reader.add(setting);
    const std::string stem =
        fmt::format("{}/{}{}{}", source.stem, name, point.label.empty() ? "" : "/", point.label);
    Problem of_point = problem_reader.read(stem);
    for (const std::string& dtype : settings.dtypes) {
      of_point.dtype = *dtype_named(dtype);
      for (const std::string& data : settings.data) {
        Case test_case{
            .id = fmt::format("{}/dtype={}/data={}/s={}", stem, dtype, data, source.seed),
            .clauses = cited,
            .because = because,
            .tier = settings.tier,
            .problem = of_point,
            .data = data,
            .hidden = settings.hidden,
            .seed = source.seed,
            .file = source.file,
            .line = source.json.line_of(pointer)};
        if (const auto defect = defect_of(test_case.problem)) {
          throw InputError(pointer, fmt::format("\"{}\" is ill-formed ({}): {}", stem,
                                                defect->clause, defect->what));
        }
        for (const std::string& id : implied_clauses(test_case.problem)) {
          const auto live = clause_names();
          if (std::find(live.begin(), live.end(), id) == live.end()) {
            throw InputError(pointer,
                             fmt::format("\"{}\" needs {}, which is not judged yet", stem, id));
          }
          auto& all = test_case.clauses;
          if (std::find(all.begin(), all.end(), id) == all.end()) all.push_back(id);
        }
        check_hidden(test_case, reader.pointer("hidden"));
        cases.push_back(std::move(test_case));
      }
    }
  }
}

void read_file(const nlohmann::json& root, const Source& source, std::vector<Case>& cases) {
  ObjectReader reader(root, "");
  reader.get<std::string>("about");
  nlohmann::json fields = nlohmann::json::object();
  Settings defaults;
  if (const nlohmann::json* value = reader.find("defaults")) {
    ObjectReader own(*value, "/defaults");
    defaults.read(own);
    fields = *value;
    for (const char* key : {"dtypes", "data", "hidden", "tier"}) fields.erase(key);
  }
  const nlohmann::json& list = reader.at("cases");
  if (!list.is_array() || list.empty()) {
    throw InputError("/cases", "\"cases\" takes a list of at least one entry");
  }
  reader.finish();
  std::set<std::string> names;
  for (std::size_t i = 0; i < list.size(); ++i) {
    read_entry(list[i], fmt::format("/cases/{}", i), fields, defaults, source, names, cases);
  }
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  if (!stream) throw InputError("", fmt::format("{}: cannot be read", path.generic_string()));
  return text.str();
}

}  // namespace

std::vector<Case> load_cases(const std::filesystem::path& root, std::uint64_t seed) {
  namespace fs = std::filesystem;
  if (!fs::is_directory(root)) {
    throw InputError("", fmt::format("{}: no such folder of cases", root.generic_string()));
  }
  std::map<std::string, fs::path> files;  // by their path below the root: a stable order
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root)) {
    if (!entry.is_regular_file() || entry.path().extension() != ".json") continue;
    const fs::path below = entry.path().lexically_relative(root);
    files[(below.parent_path() / below.stem()).generic_string()] = entry.path();
  }
  if (files.empty()) {
    throw InputError("", fmt::format("{}: no case files (*.json) here", root.generic_string()));
  }
  std::vector<Case> cases;
  for (const auto& [stem, path] : files) {
    const std::string file = path.generic_string();
    const LocatedJson json(text_of(path), file);
    try {
      read_file(json.root(), {.stem = stem, .file = file, .json = json, .seed = seed}, cases);
    } catch (const InputError& error) {
      throw json.locate(error);
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

}  // namespace attest
