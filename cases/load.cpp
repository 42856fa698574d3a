// Reads cases/**/*.json. The shape of a file:
//
//   {"about": "...",
//    "defaults": {fields of a problem, "dtypes", "data", "hidden", "check", "tier"},
//    "cases": [{"name": "...", "clauses": ["MASK-3"], "because": "one sentence",
//               "problem": {fields}, "for": {axes},
//               "dtypes": ["f32"], "data": ["normal"], "hidden": "nan", "check": "threads",
//               "laws": ["ones"], "tier": "smoke", "bits": "..."}]}
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
#include "cases/entry.h"
#include "cases/expand.h"
#include "cases/generate.h"
#include "cases/laws.h"
#include "cases/located_json.h"
#include "cases/problem_reader.h"
#include "spec/clause.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"

namespace attest {
namespace {

// The text of a list of names, checked: not empty, none twice, each one of `known`.
std::vector<std::string> read_names(const nlohmann::json& list, const std::string& pointer,
                                    std::string_view what, const std::vector<std::string>& known) {
  if (!list.is_array() || list.empty()) {
    throw InputError(
        pointer, fmt::format("a list of at least one {} is needed, not {}", what, json_text(list)));
  }
  std::vector<std::string> names;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string place = fmt::format("{}/{}", pointer, i);
    if (!list[i].is_string())
      throw InputError(place, fmt::format("{} is no {}", json_text(list[i]), what));
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
const std::vector<std::string> kHiddenNames = {"plain",    "huge",       "nan",
                                               "nan_rows", "nan_masked", "nan_query",
                                               "nan_key",  "nan_value",  "nan_gradient"};
const std::vector<std::string> kCheckNames = {"none", "threads", "neighbours", "schedule",
                                              "memory"};

std::size_t index_of(const std::vector<std::string>& names, const std::string& name) {
  return static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

const std::vector<std::string>& clause_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const Clause& clause : clauses()) names.emplace_back(clause.id);
    return names;
  }();
  return kNames;
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

std::vector<std::string> known_laws() {
  std::vector<std::string> names;
  for (const LawName& law : law_names()) names.emplace_back(law.name);
  return names;
}

// What defaults and entries both may say of the inputs; an entry's word wins.
struct Settings {
  std::vector<std::string> dtypes = {"f32", "f16", "bf16"};
  std::vector<std::string> data = {"normal"};
  Hidden hidden = Hidden::plain;
  Check check = Check::none;
  Index excerpt = 0;
  bool statistical = false;
  std::vector<std::string> laws = {};
  Tier tier = Tier::standard;

  // All but what a case has one of.
  void write(nlohmann::json& entry) const {
    const auto at = [](const auto& names, auto value) {
      return names[static_cast<std::size_t>(value)];
    };
    if (hidden != Hidden::plain) entry["hidden"] = at(kHiddenNames, hidden);
    if (check != Check::none) entry["check"] = at(kCheckNames, check);
    if (excerpt > 0) entry["excerpt"] = excerpt;
    if (statistical) entry["statistical"] = true;
    if (!laws.empty()) entry["laws"] = laws;
  }

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
    if (const auto* value = reader.find("check")) {
      check = static_cast<Check>(
          index_of(kCheckNames, read_name(*value, reader.pointer("check"), "check", kCheckNames)));
    }
    if (const auto* value = reader.find("excerpt")) {
      if (!value->is_number_integer() || *value < 1) {
        throw InputError(reader.pointer("excerpt"),
                         fmt::format("\"excerpt\" is a number of groups, at least 1, not {}",
                                     json_text(*value)));
      }
      excerpt = value->get<Index>();
    }
    if (reader.find("statistical")) statistical = reader.get<bool>("statistical");
    if (const auto* value = reader.find("laws")) {
      laws = read_names(*value, reader.pointer("laws"), "law", known_laws());
    }
    if (const auto* value = reader.find("tier")) {
      tier = static_cast<Tier>(
          index_of(kTierNames, read_name(*value, reader.pointer("tier"), "tier", kTierNames)));
    }
  }
};

std::vector<std::string> read_clauses(const nlohmann::json& list, const std::string& pointer) {
  for (std::size_t i = 0; list.is_array() && i < list.size(); ++i) {
    for (const Clause& clause : planned()) {
      if (list[i] != std::string(clause.id)) continue;
      throw InputError(
          fmt::format("{}/{}", pointer, i),
          fmt::format("{} is planned: no case can cite what is not judged yet", clause.id));
    }
  }
  return read_names(list, pointer, "clause", clause_names());
}

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
    case Mask::Kind::prefix:
      implied.push_back("MASK-10");
      return;
    case Mask::Kind::segments:
      implied.push_back("MASK-11");
      return;
    case Mask::Kind::block_sparse:
      implied.push_back("MASK-12");
      return;
    case Mask::Kind::dilated:
      implied.push_back("MASK-13");
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

bool expands(const Layout& layout) {
  bool any = false;
  for (const Axis axis : {kBatch, kHead, kPosition, kChannel}) any |= layout.expands(axis);
  return any;
}

std::vector<std::string> implied_clauses(const Case& test_case) {
  const Problem& problem = test_case.problem;
  std::vector<std::string> implied;
  const auto imply_if = [&](bool needed, std::initializer_list<const char*> ids) {
    if (needed) implied.insert(implied.end(), ids.begin(), ids.end());
  };
  imply(problem.mask, implied);
  const bool paged = problem.paging.page_size > 0;
  imply_if(problem.packed, {"LAYOUT-5"});
  imply_if(paged, {"PAGE-1"});
  imply_if(!problem.key_lens.empty() && !problem.packed && !paged, {"MASK-5"});
  imply_if(!problem.query_lens.empty() && !problem.packed, {"MASK-6"});
  imply_if(problem.backward, {"GRAD-1", "GRAD-2", "GRAD-3"});
  imply_if(problem.dtype == DType::f64, {"FORMAT-1"});
  const auto feature = [&](bool present, const char* forward, const char* backward) {
    imply_if(present, {forward});
    imply_if(present && problem.backward, {backward});
  };
  feature(problem.softcap != 0, "SCORE-2", "GRAD-6");
  feature(problem.bias_shape.has_value(), "SCORE-3", "GRAD-4");
  imply_if(!test_case.extras.bias_allows.allowed.empty(), {"MASK-14"});
  imply_if(problem.slopes_shape.has_value(), {"SCORE-4"});
  feature(problem.sink, "SINK-1", "SINK-2");
  imply_if(problem.d_lse, {"GRAD-5"});
  feature(problem.dropout.mode == Dropout::Mode::given, "DROP-1", "DROP-2");
  imply_if(problem.dropout.mode == Dropout::Mode::generated, {"DROP-3"});
  for (const TensorName tensor : kLaidOut) {
    const Layout& layout = problem.layouts[tensor];
    const std::string order = layout.to_string().substr(0, 4);
    imply_if(order == "sbhd", {"LAYOUT-4"});
    imply_if(expands(layout) || (order != "bhsd" && order != "bshd" && order != "sbhd"),
             {"LAYOUT-3"});
  }
  const Hidden hidden = test_case.hidden;
  imply_if(hidden == Hidden::nan_masked, {"HIDE-3"});
  imply_if(hidden == Hidden::nan_query, {"FINITE-1"});
  imply_if(hidden == Hidden::nan_query && problem.backward, {"FINITE-3"});
  imply_if(
      hidden == Hidden::nan_key || hidden == Hidden::nan_value || hidden == Hidden::nan_gradient,
      {"FINITE-2"});
  imply_if(test_case.statistical, {"NUM-3"});
  imply_if(test_case.check == Check::threads, {"DET-3"});
  imply_if(test_case.check == Check::neighbours, {"DET-2"});
  imply_if(test_case.check == Check::schedule, {"SCHED-1", "SCHED-2"});
  imply_if(test_case.check == Check::memory, {"MEM-1", "MEM-2"});
  for (const std::string& name : test_case.laws) {
    const LawName& law = *find_law(name);
    implied.emplace_back(law.clause);
    for (const std::string_view id : clauses_of_variants(law, problem)) implied.emplace_back(id);
  }
  return implied;
}

// Throws if roundings are not as good as random, or nothing was derived for what they do.
void check_generic(const Case& test_case, const std::string& pointer) {
  const auto& classes = input_classes();
  const auto of_case = std::find_if(classes.begin(), classes.end(), [&](const InputClass& each) {
    return each.name == test_case.data;
  });
  if (!of_case->generic) {
    throw InputError(pointer, fmt::format("inputs of the class \"{}\" are not random enough for a "
                                          "statistical verdict",
                                          test_case.data));
  }
  // Scores of inputs near 1 vary by |scale| sqrt(d). If they hardly do, rows are alike and round
  // alike, and gradients vanish.
  const Problem& p = test_case.problem;
  const double spread = std::abs(p.scale) * std::sqrt(static_cast<double>(p.head_dim));
  if (p.head_dim > 0 && !(spread >= 0.125)) {
    throw InputError(pointer, fmt::format("a statistical verdict needs scores that vary: |scale| "
                                          "sqrt(head_dim) is at least 1/8, not {:.3g}",
                                          spread));
  }
  if (test_case.hidden != Hidden::plain || test_case.excerpt > 0) {
    throw InputError(pointer, "a statistical verdict is about all elements of finite inputs");
  }
}

// Throws if what the case tries is recommended and it does not cite that first: whoever misses it
// would fail.
void check_level(const Case& test_case, const std::string& needed, const std::string& pointer) {
  if (!is_recommended(needed) || is_recommended(test_case.clauses.front())) return;
  throw InputError(pointer,
                   fmt::format("\"{}\" tries {}, which is recommended, and must cite it first",
                               test_case.id, needed));
}

// Throws if what the case hides cannot be hidden.
void check_hidden(const Case& test_case, const std::string& pointer) {
  const Problem& p = test_case.problem;
  const Layouts& layouts = p.layouts;
  const auto needs = [&](std::initializer_list<const Layout*> read, bool met, const char* what) {
    if (!met) throw InputError(pointer, what);
    if (std::any_of(read.begin(), read.end(), [](const Layout* l) { return expands(*l); })) {
      throw InputError(pointer,
                       "\"hidden\" needs tensors that are not expanded: an element may be "
                       "hidden in one place and seen in another");
    }
  };
  const auto shorter = [](const std::vector<Index>& lens, Index whole) {
    return std::any_of(lens.begin(), lens.end(), [&](Index length) { return length < whole; });
  };
  const auto keys = {&layouts.k, &layouts.v};
  switch (test_case.hidden) {
    case Hidden::plain:
      return;
    case Hidden::huge:
    case Hidden::nan_masked:
      return needs(keys, true, "");
    case Hidden::nan:
      return needs(keys, p.paging.page_size > 0 || (!p.packed && shorter(p.key_lens, p.key_len)),
                   "\"hidden\": \"nan\" fills keys beyond a length, and no key_lens is "
                   "below key_len");
    case Hidden::nan_rows:
      return needs({&layouts.q, &layouts.d_o}, !p.packed && shorter(p.query_lens, p.query_len),
                   "\"hidden\": \"nan_rows\" fills queries beyond a length, and no query_lens is "
                   "below query_len");
    case Hidden::nan_query:
      return needs({&layouts.q}, true, "");
    case Hidden::nan_key:
      return needs({&layouts.k}, true, "");
    case Hidden::nan_value:
      return needs({&layouts.v}, true, "");
    case Hidden::nan_gradient:
      return needs({&layouts.d_o}, p.backward, "\"nan_gradient\" needs a backward pass");
  }
}

// The cases of a file that are wanted as entries of their own.
struct Wanted {
  std::string id;                            // of the only one; empty: all
  std::vector<nlohmann::json> entries = {};  // in the order of the cases
};

struct FileRead {
  std::string stem;  // path below the root, without .json
  std::string file = {};
  const LocatedJson* json;  // null: the entry is in no file
  std::uint64_t seed;
  Wanted* wanted = nullptr;
};

void read_entry(const nlohmann::json& entry, const std::string& pointer,
                const nlohmann::json& fields, const Settings& defaults, const FileRead& source,
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
  const auto cited = read_clauses(reader.at("clauses"), reader.pointer("clauses"));
  const auto because = reader.get<std::string>("because");
  if (because.empty()) throw InputError(reader.pointer("because"), "\"because\" is empty");
  const auto bits = reader.get_or<std::string>("bits", "");
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
    const std::string label = (point.label.empty() ? "" : "/") + point.label;
    const std::string stem = fmt::format("{}/{}{}", source.stem, name, label);
    const std::string seed = bits.empty() ? stem : bits + label;
    Extras extras;
    Problem of_point = problem_reader.read(seed, extras);
    for (const std::string& dtype : settings.dtypes) {
      of_point.dtype = *dtype_named(dtype);
      for (const std::string& data : settings.data) {
        const std::string rest = fmt::format("/dtype={}/data={}/s={}", dtype, data, source.seed);
        Case test_case{.id = stem + rest,
                       .clauses = cited,
                       .because = because,
                       .tier = settings.tier,
                       .problem = of_point,
                       .data = data,
                       .hidden = settings.hidden,
                       .check = settings.check,
                       .excerpt = settings.excerpt,
                       .statistical = settings.statistical,
                       .laws = settings.laws,
                       .extras = extras,
                       .seed = source.seed,
                       .bits = bits.empty() ? "" : seed + rest,
                       .file = source.file,
                       .line = source.json ? source.json->line_of(pointer) : 0};
        if (const auto defect = defect_of(test_case.problem)) {
          const std::string culprit = problem_reader.culprit_of(defect->clause);
          throw InputError(
              culprit.empty() ? pointer : culprit,
              fmt::format("\"{}\" is ill-formed ({}): {}", stem, defect->clause, defect->what));
        }
        for (const std::string& id : implied_clauses(test_case)) {
          const auto& live = clause_names();
          if (std::find(live.begin(), live.end(), id) == live.end()) {
            throw InputError(pointer,
                             fmt::format("\"{}\" needs {}, which is not judged yet", stem, id));
          }
          auto& all = test_case.clauses;
          if (std::find(all.begin(), all.end(), id) == all.end()) all.push_back(id);
        }
        check_hidden(test_case, reader.pointer("hidden"));
        for (const std::string& id : implied_clauses(test_case)) {
          check_level(test_case, id, pointer);
        }
        for (const std::string& law : test_case.laws) {
          if (test_case.excerpt == 0 || find_law(law)->of_long) continue;
          throw InputError(reader.pointer("laws"),
                           fmt::format("the law \"{}\" needs the bound of every element, or walks "
                                       "over all scores; \"excerpt\" is for problems that are too "
                                       "long for either",
                                       law));
        }
        if (test_case.statistical) check_generic(test_case, reader.pointer("statistical"));
        if (test_case.check == Check::neighbours &&
            test_case.problem.dropout.mode == Dropout::Mode::generated) {
          throw InputError(reader.pointer("check"),
                           "\"neighbours\" needs the same keep-mask for a batch element alone, "
                           "which no testee draws again");
        }
        Wanted* wanted = source.wanted;
        if (wanted && (wanted->id.empty() || wanted->id == test_case.id)) {
          wanted->entries.push_back({{"name", name},
                                     {"clauses", cited},
                                     {"because", because},
                                     {"problem", problem_reader.whole()},
                                     {"dtypes", {dtype}},
                                     {"data", {data}},
                                     {"bits", seed}});
          settings.write(wanted->entries.back());
        }
        cases.push_back(std::move(test_case));
      }
    }
  }
}

void read_file(const nlohmann::json& root, const FileRead& source, std::vector<Case>& cases) {
  ObjectReader reader(root, "");
  reader.get<std::string>("about");
  nlohmann::json fields = nlohmann::json::object();
  Settings defaults;
  if (const nlohmann::json* value = reader.find("defaults")) {
    ObjectReader own(*value, "/defaults");
    defaults.read(own);
    fields = *value;
    for (const char* key :
         {"dtypes", "data", "hidden", "check", "excerpt", "statistical", "laws", "tier"}) {
      fields.erase(key);
    }
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

// All cases below `root`, or in it if it is a file; those that are `wanted` as entries too.
std::vector<Case> read_all(const std::filesystem::path& root, std::uint64_t seed, Wanted* wanted) {
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
    const LocatedJson located(text_of(path), file);
    try {
      read_file(located.root(),
                {.stem = stem, .file = file, .json = &located, .seed = seed, .wanted = wanted},
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

Case read_entry(const nlohmann::json& entry, const std::string& stem) {
  std::set<std::string> names;
  std::vector<Case> cases;
  read_entry(entry, "", nlohmann::json::object(), {}, {.stem = stem, .json = nullptr, .seed = 1},
             names, cases);
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
  const LocatedJson json(text_of(std::filesystem::path(test_case.file)), test_case.file);
  Wanted wanted = {.id = test_case.id};
  std::vector<Case> cases;
  read_file(json.root(),
            {.stem = path.substr(begin), .json = &json, .seed = test_case.seed, .wanted = &wanted},
            cases);
  if (wanted.entries.empty()) {
    throw InputError("", fmt::format("{} no longer has {}", test_case.file, test_case.id));
  }
  return wanted.entries.front();
}

std::vector<CaseWithEntry> load_entries(const std::filesystem::path& root) {
  Wanted wanted = {.id = ""};
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

}  // namespace attest
