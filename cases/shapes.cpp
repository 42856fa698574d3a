#include "cases/shapes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "cases/citation.h"
#include "cases/entry_reader.h"
#include "cases/expand.h"
#include "cases/located_json.h"
#include "cases/shape_excerpt.h"
#include "cases/shape_lines.h"
#include "cases/shape_traces.h"
#include "spec/json_reader.h"
#include "spec/read_file.h"
#include "spec/spelling.h"

namespace attest {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string_view first_line(std::string_view text) {
  const auto begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  return text.substr(begin, text.substr(begin).find('\n'));
}

// What a shape tries, and what of it tells most, unless its entry says so.
void complete(json& entry, const json& defaults, const std::string& file) {
  const auto says = [&](const char* key) { return entry.contains(key) || defaults.contains(key); };
  const json& problem = entry["problem"];
  const auto backward_in = [](const json& fields) {
    return fields.is_object() && fields.contains("backward") && fields["backward"] == true;
  };
  const bool given = problem.is_object() && problem.contains("backward");
  const bool backward = backward_in(given ? problem : defaults);
  if (!entry.contains("clauses")) {
    entry["clauses"] = {"SOFTMAX-1", "LSE-1"};
    for (const char* clause : {"GRAD-1", "GRAD-2", "GRAD-3"}) {
      if (backward) entry["clauses"].push_back(clause);
    }
  }
  if (!entry.contains("because")) entry["because"] = fmt::format("A shape in use, of {}.", file);
  if (says("data")) return;
  entry["data"] = backward ? json({"normal", "one_hot", "key_names"})
                           : json({"normal", "ascending", "one_hot", "key_names"});
}

// The cases of one file.
class File {
 public:
  File(const fs::path& path, std::uint64_t seed, Shapes& shapes)
      : path_(path), file_(path.generic_string()), seed_(seed), shapes_(shapes) {}

  void read() {
    const std::string text = read_file(path_);
    const std::string_view line = first_line(text);
    if (line.empty()) throw InputError("", fmt::format("{}: holds no shape", file_));
    const std::size_t before = shapes_.cases.size();
    if (line.front() != '{' && line.front() != '[') {
      if (json::accept(text)) {  // null, 3, "a"
        throw InputError("", fmt::format("{}: holds no shape, but {}: shapes are a JSON object or "
                                         "list, or lines B,Hq,Hkv,Sq,Sk,D,Dv,mask",
                                         file_, line));
      }
      read_entries([&] { return read_shape_lines(text); });
    } else if (line.front() == '{' && !json::accept(text) && json::accept(line)) {
      read_json_lines(text);
    } else {
      read_json(text);
    }
    if (shapes_.cases.size() == before) {
      throw InputError("", fmt::format("{}: holds no shape{}", file_,
                                       shapes_.notes.empty() ? "" : "; " + shapes_.notes.back()));
    }
  }

 private:
  std::string stem() const { return "shapes/" + as_name(path_.stem().generic_string()); }

  void read_json(const std::string& text) {
    const LocatedJson located(text, file_);
    const json& root = located.root();
    const bool list = root.is_array();
    if (is_trace(list && !root.empty() ? root[0] : root)) {
      std::vector<TraceItem> items;
      for (std::size_t i = 0; list && i < root.size(); ++i) {
        items.push_back({root[i], located.line_of(fmt::format("/{}", i))});
      }
      if (!list) items.push_back({root, 1});
      read_traces(items);
      return;
    }
    try {
      read_list(root, located);
    } catch (const InputError& error) {
      throw located.locate(error);
    }
  }

  void read_json_lines(const std::string& text) {
    std::vector<TraceItem> items;
    std::istringstream lines(text);
    std::string line;
    for (int number = 1; std::getline(lines, line); ++number) {
      if (line.find_first_not_of(" \t\r") == line.npos) continue;
      const LocatedJson located(line, fmt::format("{}:{}", file_, number));
      if (!is_trace(located.root())) {
        throw InputError("", fmt::format("{}:{}: is no workload, trace or definition of "
                                         "FlashInfer, of which alone a line may be one",
                                         file_, number));
      }
      items.push_back({located.root(), number});
    }
    read_traces(items);
  }

  void read_traces(const std::vector<TraceItem>& items) {
    std::vector<std::string> notes;
    read_entries([&] { return shapes_of_traces(items, path_, notes); });
    for (const std::string& note : notes)
      shapes_.notes.push_back(fmt::format("{}: {}", file_, note));
  }

  // A file of shapes, a case file, or a list of either's entries.
  void read_list(const json& root, const LocatedJson& located) {
    FileRead source = {.stem = stem(), .file = file_, .json = &located, .seed = seed_};
    const json* list = &root;
    std::string pointer;
    if (!root.is_array()) {
      ObjectReader reader(root, "");
      reader.find("about");
      reader.find("source");
      if (const json* value = reader.find("defaults")) {
        ObjectReader own(*value, "/defaults");
        source.defaults.read(own);
        source.fields = *value;
        for (const char* key : kSettingKeys) source.fields.erase(key);
      }
      const bool of_cases = reader.find("cases") != nullptr;
      pointer = of_cases ? "/cases" : "/shapes";
      list = &reader.at(pointer.substr(1));
      reader.finish();
    }
    if (!list->is_array() || list->empty()) {
      throw InputError(pointer, "a list of at least one shape is needed");
    }
    const json defaults =
        root.is_object() ? root.value("defaults", json::object()) : json::object();
    for (std::size_t i = 0; i < list->size(); ++i) {
      add(as_entry((*list)[i], i, pointer), fmt::format("{}/{}", pointer, i), defaults, source);
    }
  }

  // An entry, or a problem alone.
  static json as_entry(const json& item, std::size_t number, const std::string& pointer) {
    if (!item.is_object()) {
      throw InputError(fmt::format("{}/{}", pointer, number), "a shape is an object");
    }
    const bool whole = item.contains("problem") || item.contains("for") || item.contains("clauses");
    json entry = whole ? item : json{{"problem", item}};
    if (!whole && item.contains("name")) {
      entry["name"] = item["name"];
      entry["problem"].erase("name");
    }
    if (!entry.contains("name")) entry["name"] = fmt::format("shape_{}", number + 1);
    if (!entry.contains("problem")) entry["problem"] = json::object();
    return entry;
  }

  // Those that `read` makes, each with its line.
  template <class Read>
  void read_entries(const Read& read) {
    FileRead source = {.stem = stem(), .file = file_, .json = nullptr, .seed = seed_};
    try {
      for (const ShapeEntry& each : read()) {
        const std::size_t before = shapes_.cases.size();
        try {
          add(each.entry, "", json::object(), source);
        } catch (const InputError& error) {
          throw InputError("", fmt::format("{}: {}", each.line, error.what()));
        }
        for (std::size_t i = before; i < shapes_.cases.size(); ++i) {
          shapes_.cases[i].test_case.line = each.line;
        }
      }
    } catch (const InputError& error) {
      throw InputError("", fmt::format("{}:{}", file_, error.what()));
    }
  }

  void add(json entry, const std::string& pointer, const json& defaults, FileRead& source) {
    complete(entry, defaults, path_.filename().generic_string());
    WantedCases wanted = {.id = ""};
    source.wanted = &wanted;
    std::vector<Case> cases;
    read_entry(entry, pointer, source, cases);
    source.wanted = nullptr;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      cases[i].as_it_is = true;
      cases[i].tier = Tier::smoke;  // whoever names it wants it, whatever the tier
      const bool chosen = cases[i].excerpt == 0;
      choose_excerpt(cases[i]);
      choose_laws(cases[i]);
      cite_implied(cases[i]);
      if (chosen && cases[i].excerpt > 0) {
        wanted.entries[i]["excerpt"] = {{"groups", cases[i].excerpt},
                                        {"query_heads", cases[i].excerpt_heads->query},
                                        {"key_heads", cases[i].excerpt_heads->key}};
        if (!cases[i].laws.empty()) wanted.entries[i]["laws"] = cases[i].laws;
      }
      shapes_.cases.push_back({std::move(cases[i]), std::move(wanted.entries[i])});
    }
  }

  const fs::path& path_;
  std::string file_;
  std::uint64_t seed_;
  Shapes& shapes_;
};

}  // namespace

std::string as_name(std::string_view text) {
  std::string name;
  for (const char letter : text) {
    const char lower =
        letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
    name += is_name(std::string(1, lower)) ? lower : '_';
  }
  return name.empty() ? "_" : name;
}

std::vector<ShapePreset> shape_presets(const fs::path& cases) {
  std::map<std::string, ShapePreset> presets;
  const fs::path folder = cases / "shapes";
  if (!fs::is_directory(folder)) return {};
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    const std::string name = entry.path().stem().generic_string();
    const LocatedJson located(read_file(entry.path()), entry.path().generic_string());
    presets[name] = {.name = name,
                     .about = located.root().value("about", ""),
                     .source = located.root().value("source", ""),
                     .file = entry.path()};
  }
  std::vector<ShapePreset> sorted;
  for (auto& [name, preset] : presets) sorted.push_back(std::move(preset));
  return sorted;
}

fs::path file_of_shapes(const std::string& named, const fs::path& cases) {
  const fs::path preset = cases / "shapes" / (named + ".json");
  if (is_name(named) && fs::is_regular_file(preset)) return preset;
  if (fs::is_regular_file(named)) return named;
  std::vector<std::string> names;
  for (const ShapePreset& each : shape_presets(cases)) names.push_back(each.name);
  throw InputError(
      "", fmt::format("--shapes {}: there is neither such a file nor such a preset; {}", named,
                      did_you_mean(named, names)));
}

std::vector<fs::path> files_of_shapes(const std::vector<std::string>& named,
                                      const fs::path& cases) {
  std::vector<fs::path> files;
  for (const std::string& each : named) files.push_back(file_of_shapes(each, cases));
  return files;
}

Shapes load_shapes(const std::vector<std::string>& named, const fs::path& cases,
                   std::uint64_t seed) {
  Shapes shapes;
  for (const fs::path& file : files_of_shapes(named, cases)) File(file, seed, shapes).read();
  std::map<std::string_view, const Case*> by_id;
  for (const CaseWithEntry& each : shapes.cases) {
    const Case& c = each.test_case;
    const auto [other, fresh] = by_id.emplace(c.id, &c);
    if (fresh) continue;
    throw InputError("", fmt::format("{}:{}: the id {} stands in {}:{} too", c.file, c.line, c.id,
                                     other->second->file, other->second->line));
  }
  return shapes;
}

std::vector<Case> cases_of(const Shapes& shapes) {
  std::vector<Case> cases;
  for (const CaseWithEntry& each : shapes.cases) cases.push_back(each.test_case);
  return cases;
}

}  // namespace attest
