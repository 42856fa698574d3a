#include "cases/entry_reader.h"

#include <fmt/format.h>

#include <utility>

#include "cases/carrier.h"
#include "cases/check_case.h"
#include "cases/citation.h"
#include "cases/expand.h"
#include "cases/problem_reader.h"
#include "spec/clause.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

// An entry, before its axes are crossed.
struct Entry {
  std::string pointer;
  std::string name;
  std::vector<std::string> clauses;
  std::string because;
  std::string bits;
  const nlohmann::json* problem;  // null: all by default
  std::vector<Point> points;
  Settings settings;
};

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
              .points = {},
              .settings = source.defaults};
  if (entry.because.empty()) throw InputError(reader.pointer("because"), "\"because\" is empty");
  entry.bits = reader.get_or<std::string>("bits", "");
  entry.problem = reader.find("problem");
  entry.points = expand_axes(reader.find("for"), reader.pointer("for"));
  entry.settings.read(reader);
  reader.finish();
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

PlacedProblem place(const Entry& entry, const Point& point, const FileRead& source) {
  ProblemReader reader;
  reader.add(source.fields, "/defaults");
  if (entry.problem) reader.add(*entry.problem, entry.pointer + "/problem");
  for (const AxisValue& setting : point.settings) reader.add(setting);
  const std::string label = (point.label.empty() ? "" : "/") + point.label;
  const std::string stem = fmt::format("{}/{}{}", source.stem, entry.name, label);
  PlacedProblem placed{.reader = std::move(reader),
                       .stem = stem,
                       .seed = entry.bits.empty() ? stem : entry.bits + label};
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

// The case of one dtype and one class of data.
Case make_case(const Entry& entry, const PlacedProblem& placed, const std::string& dtype,
               const std::string& data, const FileRead& source) {
  const Settings& settings = entry.settings;
  const std::string rest = fmt::format("/dtype={}/data={}/s={}", dtype, data, source.seed);
  Case test_case{.id = placed.stem + rest,
                 .clauses = entry.clauses,
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
  cite_implied(test_case, placed.stem, entry.pointer);
  check_case(test_case, entry.pointer);
  return test_case;
}

// The same case as an entry of its own.
nlohmann::json as_entry(const Entry& entry, const PlacedProblem& placed, const std::string& dtype,
                        const std::string& data) {
  nlohmann::json single = {{"name", entry.name},       {"clauses", entry.clauses},
                           {"because", entry.because}, {"problem", placed.reader.whole()},
                           {"dtypes", {dtype}},        {"data", {data}},
                           {"bits", placed.seed}};
  entry.settings.write(single);
  return single;
}

}  // namespace

void read_entry(const nlohmann::json& value, const std::string& pointer, FileRead& source,
                std::vector<Case>& cases) {
  const Entry entry = parse(value, pointer, source);
  for (const Point& point : entry.points) {
    const PlacedProblem placed = place(entry, point, source);
    for (const std::string& dtype : entry.settings.dtypes) {
      for (const std::string& data : entry.settings.data) {
        cases.push_back(make_case(entry, placed, dtype, data, source));
        WantedCases* wanted = source.wanted;
        if (wanted && (wanted->id.empty() || wanted->id == cases.back().id)) {
          wanted->entries.push_back(as_entry(entry, placed, dtype, data));
        }
      }
    }
  }
}

}  // namespace attest
