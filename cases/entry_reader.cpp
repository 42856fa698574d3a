#include "cases/entry_reader.h"

#include <fmt/format.h>

#include <utility>

#include "cases/carrier.h"
#include "cases/check_case.h"
#include "cases/citation.h"
#include "cases/cover.h"
#include "cases/expand.h"
#include "cases/problem_reader.h"
#include "spec/clause.h"
#include "spec/contains.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

// One of the cases of an entry, or several that differ in format and data alone.
struct Variant {
  Point point;
  Settings settings;
  nlohmann::json fields = nlohmann::json::object();  // of a covering array's row
  std::vector<std::string> clauses = {};
};

// An entry, before its axes are crossed.
struct Entry {
  std::string pointer;
  std::string name;
  std::vector<std::string> clauses;
  std::string because;
  std::string bits;
  const nlohmann::json* problem;  // null: all by default
  std::vector<Variant> variants;
};

// Whether cases whose ids begin with a stem are asked for.
bool is_wanted(const std::string& stem, const FileRead& source) {
  return !source.wanted || source.wanted->id.empty() || source.wanted->id.starts_with(stem + "/");
}

// The rows of a covering array, each with the settings and clauses that its values make.
std::vector<Variant> rows_of(const Entry& entry, const nlohmann::json& value,
                             const std::string& pointer, const FileRead& source,
                             const Settings& settings) {
  const Cover cover = read_cover(value, pointer);
  nlohmann::json fields = source.fields;
  if (entry.problem) fields.update(*entry.problem);
  std::vector<Variant> rows;
  for (std::size_t n = 0; n < cover.rows.size(); ++n) {
    const std::string place = fmt::format("{}/rows/{}", pointer, n);
    const std::string label = "r=" + cover.rows[n];
    const std::string stem = fmt::format("{}/{}/{}", source.stem, entry.name, label);
    if (!is_wanted(stem, source)) continue;
    Variant row{.point = {.label = label, .settings = {}},
                .settings = settings,
                .fields = cover.fields_of(cover.rows[n], stem, fields)};
    nlohmann::json own = nlohmann::json::object();
    for (const char* const key : {"dtypes", "data", "hidden", "clauses"}) {
      if (!row.fields.contains(key)) continue;
      own[key] = row.fields[key];
      row.fields.erase(key);
    }
    ObjectReader reader(own, place);
    row.settings.read(reader);
    const nlohmann::json& clauses = reader.at("clauses");
    if (!clauses.empty()) row.clauses = read_clauses(clauses, place);
    rows.push_back(std::move(row));
  }
  return rows;
}

Entry parse(const nlohmann::json& value, const std::string& pointer, FileRead& source) {
  ObjectReader reader(value, pointer);
  const auto name = reader.get<std::string>("name");
  if (!is_name(name)) {
    throw InputError(reader.pointer("name"), fmt::format("\"{}\" is no name: lower-case letters, "
                                                         "digits and _ only",
                                                         name));
  }
  if (!source.names.insert(name).second) {
    throw InputError(reader.pointer("name"), fmt::format("the name \"{}\" stands twice", name));
  }
  Entry entry{.pointer = pointer,
              .name = name,
              .clauses = read_clauses(reader.at("clauses"), reader.pointer("clauses")),
              .because = reader.get<std::string>("because"),
              .bits = {},
              .problem = nullptr,
              .variants = {}};
  if (entry.because.empty()) throw InputError(reader.pointer("because"), "\"because\" is empty");
  entry.bits = reader.get_or<std::string>("bits", "");
  entry.problem = reader.find("problem");
  const nlohmann::json *axes = reader.find("for"), *cover = reader.find("cover");
  Settings settings = source.defaults;
  settings.read(reader);
  reader.finish();
  if (cover && axes) throw InputError(pointer, "an entry has \"for\" or \"cover\", not both");
  if (cover) {
    entry.variants = rows_of(entry, *cover, reader.pointer("cover"), source, settings);
    return entry;
  }
  for (Point& point : expand_axes(axes, reader.pointer("for"))) {
    entry.variants.push_back({.point = std::move(point), .settings = settings});
  }
  return entry;
}

// One point of an entry's axes: the problem there, and what it is called.
struct PlacedProblem {
  ProblemReader reader;
  std::string stem;  // of the ids
  std::string seed;  // from which its numbers are made
  Problem problem = {};
  Extras extras = {};
};

std::string label_of(const Variant& variant) {
  return (variant.point.label.empty() ? "" : "/") + variant.point.label;
}
std::string stem_of(const Entry& entry, const Variant& variant, const FileRead& source) {
  return fmt::format("{}/{}{}", source.stem, entry.name, label_of(variant));
}

PlacedProblem place(const Entry& entry, const Variant& variant, const FileRead& source) {
  const Point& point = variant.point;
  ProblemReader reader;
  reader.add(source.fields, "/defaults");
  if (entry.problem) reader.add(*entry.problem, entry.pointer + "/problem");
  reader.add(variant.fields, entry.pointer + "/cover");
  for (const AxisValue& setting : point.settings) reader.add(setting);
  const std::string stem = stem_of(entry, variant, source);
  PlacedProblem placed{.reader = std::move(reader),
                       .stem = stem,
                       .seed = entry.bits.empty() ? stem : entry.bits + label_of(variant)};
  placed.problem = placed.reader.read(placed.seed, placed.extras);
  return placed;
}

// An entry tries both passes where `backward` is an axis: of its cases of the forward pass, clauses
// of the other say nothing.
void strike_gradients(Case& test_case, const std::string& stem, const std::string& pointer) {
  if (test_case.problem.backward) return;
  std::erase_if(test_case.clauses, is_of_gradients);
  if (test_case.clauses.empty()) {
    throw InputError(
        pointer + "/clauses",
        fmt::format("\"{}\" has no backward pass, of which alone it cites clauses", stem));
  }
}

// What its entry cites, and its row beside.
std::vector<std::string> clauses_of(const Entry& entry, const Variant& variant) {
  std::vector<std::string> clauses = entry.clauses;
  for (const std::string& clause : variant.clauses) {
    if (!contains(clauses, clause)) clauses.push_back(clause);
  }
  return clauses;
}

std::string end_of_id(const std::string& dtype, const std::string& data, const FileRead& source) {
  return fmt::format("/dtype={}/data={}/s={}", dtype, data, source.seed);
}

bool is_chosen(const Settings& settings, const std::string& stem, const std::string& dtype,
               const std::string& data, const FileRead& source) {
  return !source.choice ||
         source.choice->wants(settings.tier, stem + end_of_id(dtype, data, source));
}

// Counts the cases of a variant. Whether one of them is asked for.
bool is_any_chosen(const Variant& variant, const std::string& stem, const FileRead& source) {
  if (!source.choice) return true;
  const Settings& settings = variant.settings;
  bool chosen = false;
  for (const std::string& dtype : settings.dtypes) {
    for (const std::string& data : settings.data) {
      ++source.choice->counts[settings.tier];
      chosen |= is_chosen(settings, stem, dtype, data, source);
    }
  }
  return chosen;
}

// The case of one dtype and one class of data.
Case make_case(const Entry& entry, const Variant& variant, const PlacedProblem& placed,
               const std::string& dtype, const std::string& data, const FileRead& source) {
  const Settings& settings = variant.settings;
  const std::string rest = end_of_id(dtype, data, source);
  Case test_case{.id = placed.stem + rest,
                 .clauses = clauses_of(entry, variant),
                 .because = entry.because,
                 .tier = settings.tier,
                 .problem = placed.problem,
                 .data = data,
                 .hidden = settings.hidden,
                 .check = settings.check,
                 .excerpt = settings.excerpt,
                 .excerpt_heads = settings.excerpt_heads,
                 .statistical = settings.statistical,
                 .laws = settings.laws,
                 .extras = placed.extras,
                 .seed = source.seed,
                 .bits = entry.bits.empty() ? "" : placed.seed + rest,
                 .file = source.file,
                 .line = source.json ? source.json->line_of(entry.pointer) : 0};
  test_case.problem.dtype = *dtype_named(dtype);
  strike_other_corner(test_case);
  strike_gradients(test_case, placed.stem, entry.pointer);
  if (const auto defect = defect_of(test_case.problem)) {
    const std::string culprit = placed.reader.culprit_of(defect->clause);
    throw InputError(
        culprit.empty() ? entry.pointer : culprit,
        fmt::format("\"{}\" is ill-formed ({}): {}", placed.stem, defect->clause, defect->what));
  }
  cite_implied(test_case);
  check_case(test_case, entry.pointer);
  return test_case;
}

// The same case as an entry of its own.
nlohmann::json as_entry(const Entry& entry, const Variant& variant, const PlacedProblem& placed,
                        const std::string& dtype, const std::string& data) {
  nlohmann::json single = {{"name", entry.name},       {"clauses", clauses_of(entry, variant)},
                           {"because", entry.because}, {"problem", placed.reader.whole()},
                           {"dtypes", {dtype}},        {"data", {data}},
                           {"bits", placed.seed}};
  variant.settings.write(single);
  return single;
}

}  // namespace

void read_entry(const nlohmann::json& value, const std::string& pointer, FileRead& source,
                std::vector<Case>& cases) {
  const Entry entry = parse(value, pointer, source);
  for (const Variant& variant : entry.variants) {
    const std::string stem = stem_of(entry, variant, source);
    if (!is_wanted(stem, source) || !is_any_chosen(variant, stem, source)) continue;
    const Settings& settings = variant.settings;
    const PlacedProblem placed = place(entry, variant, source);
    for (const std::string& dtype : settings.dtypes) {
      for (const std::string& data : settings.data) {
        if (!is_chosen(settings, stem, dtype, data, source)) continue;
        cases.push_back(make_case(entry, variant, placed, dtype, data, source));
        WantedCases* wanted = source.wanted;
        if (wanted && (wanted->id.empty() || wanted->id == cases.back().id)) {
          wanted->entries.push_back(as_entry(entry, variant, placed, dtype, data));
        }
      }
    }
  }
}

}  // namespace attest
