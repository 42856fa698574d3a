// The rules of the tree that no compiler enforces: who may include whom, and a few of the house.
//
//   spec <- nothing   reference, impl, cases, reports <- spec
//   harness <- spec, reference, cases, reports   tests <- all
//
// and within harness/, room by room, from process/ to command/. What reference/ has to be read
// stands alone, and neither a file nor a unit, which is a header with its source and the parts in
// the folder of its name, includes itself by way of others. No file is longer than 500 lines;
// that no function is longer than 70, script/lint sees.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace attest {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Layers = std::set<std::string>;

// Beside itself. reference and impl must stay strangers: a kernel and an oracle that share a helper
// share its bug.
const std::map<std::string, Layers> kMayInclude = {
    {"spec", {}},
    {"reference", {"spec"}},
    {"impl", {"spec"}},
    {"cases", {"spec"}},
    {"reports", {"spec"}},
    {"harness", {"spec", "reference", "cases", "reports"}},
    {"tests", {"spec", "reference", "impl", "cases", "reports", "harness"}},
};

// The rooms of harness/ are layers of their own, beside what harness may include: what each needs,
// and no more.
const std::map<std::string, Layers> kRooms = {
    {"process", {}},
    {"judge", {"process"}},
    {"laws", {"judge"}},
    {"run", {"process", "judge", "laws"}},
    {"fuzz", {"process", "laws", "run"}},
    {"script", {"process"}},
    {"diagnosis", {"process", "judge", "run"}},
    {"probe", {"process", "judge"}},
    {"check", {"process", "judge", "laws", "run"}},
    {"vectors", {"process", "judge"}},
    {"oracle", {"process", "judge", "laws", "diagnosis"}},
    {"selfcheck", {"process", "judge", "run", "diagnosis"}},
    {"criteria", {"process", "judge", "run", "selfcheck"}},
    {"instances", {"process", "run", "fuzz", "selfcheck"}},
    {"limits", {"process", "judge", "run"}},
    {"gate", {"process", "judge", "run", "fuzz", "diagnosis"}},
    {"command",
     {"process", "judge", "run", "fuzz", "script", "diagnosis", "probe", "check", "vectors",
      "selfcheck", "criteria", "instances", "limits", "gate"}},
};

// All files by their path from the root of the tree.
using Tree = std::map<std::string, std::string>;

std::string parent_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

bool ends_with_any(const std::string& path, const std::vector<std::string>& endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](const std::string& ending) { return path.ends_with(ending); });
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// "process" of "harness/process/worker.h"; empty for what lies in no room.
std::string room_of(const std::string& path) {
  if (!path.starts_with("harness/")) return "";
  const std::string below = path.substr(path.find('/') + 1);
  return below.find('/') == std::string::npos ? "" : below.substr(0, below.find('/'));
}

// The forms of the reference that are read share nothing with the fast ones, which they are
// compared with, but the roundoff of the type that both compute in.
bool is_stranger(const std::string& path, const std::string& target) {
  return path.starts_with("reference/exact") && target.starts_with("reference/") &&
         !target.starts_with("reference/exact") && target != "reference/roundoff.h";
}

// Headers that are installed side by side, and name each other from where they lie.
bool is_for_vendors(const std::string& path) {
  return path == "spec/attest_plugin.h" || path == "spec/attest_judge.h" ||
         path == "spec/attest_gmock.h" || path == "spec/attest_gtest.h" ||
         path == "spec/kernel.h" || path.starts_with("spec/kernel/") || path == "spec/device.h" ||
         path.starts_with("spec/device/");
}

void check_include(const std::string& path, const std::string& target,
                   std::vector<std::string>& faults) {
  const std::string layer = path.substr(0, path.find('/'));
  const auto beside = std::filesystem::path(parent_of(path)) / target;
  if (is_for_vendors(path) && is_for_vendors(beside.lexically_normal().generic_string())) return;
  const auto slash = target.find('/');
  if (slash == std::string::npos || target.starts_with(".")) {
    faults.push_back(path + ": \"" + target + "\" is not named from the root of the tree");
    return;
  }
  const std::string other = target.substr(0, slash);
  if (!kMayInclude.contains(other)) return;  // a library's
  if (other == layer) {
    const std::string from = room_of(path), to = room_of(target);
    if (from != to && (!kRooms.contains(from) || !kRooms.at(from).contains(to)) &&
        layer == "harness") {
      faults.push_back(path + ": " + from + " must not include " + to + " (\"" + target + "\")");
    }
    if (is_stranger(path, target)) {
      faults.push_back(path + ": shares \"" + target + "\" with what is compared with it");
    }
    return;
  }
  // A bundled kernel is a plug-in like any vendor's.
  const bool as_vendors_see =
      target == "spec/attest_plugin.h" || target == "spec/plugin_dtype.h" || layer != "impl";
  if (!kMayInclude.at(layer).contains(other) || !as_vendors_see) {
    faults.push_back(path + ": " + layer + " must not include " + other + " (\"" + target + "\")");
  }
}

const std::regex kInclude(R"(^\s*#\s*include\s*(["<])([^">]+)[">].*)");

void check_source(const Tree& tree, const std::string& path, const std::string& text,
                  std::vector<std::string>& faults) {
  static const std::regex disabled(R"(^\s*#\s*if\s+0\b.*)");
  static const std::regex using_namespace(R"(^\s*using\s+namespace\b.*)");
  const bool header = path.ends_with(".h");
  std::string first_include;
  for (const std::string& line : lines_of(text)) {
    std::smatch match;
    if (std::regex_match(line, match, kInclude)) {
      if (first_include.empty()) first_include = match[2];
      if (match[1] == "\"") check_include(path, match[2], faults);
    }
    if (std::regex_match(line, disabled))
      faults.push_back(path + ": code is switched off by #if 0");
    if (header && std::regex_match(line, using_namespace)) {
      faults.push_back(path + ": a header says using namespace");
    }
  }
  if (header) {
    if (!text.starts_with("//") && !text.starts_with("/*")) {
      faults.push_back(path + ": a header begins with a comment that says what it is");
    }
    // C has no #pragma once in its standard.
    const std::string guard = path == "spec/attest_plugin.h"  ? "\n#ifndef ATTEST_PLUGIN_H_\n"
                              : path == "spec/attest_judge.h" ? "\n#ifndef ATTEST_JUDGE_H_\n"
                                                              : "\n#pragma once\n";
    if (text.find(guard) == std::string::npos)
      faults.push_back(path + ": the include guard is missing");
  } else if (path.ends_with(".cpp")) {
    // Included first, a header proves that it stands on its own.
    const std::string own = path.substr(0, path.size() - 4) + ".h";
    if (tree.contains(own) && first_include != own) {
      faults.push_back(path + ": \"" + own + "\" must be the first include");
    }
  }
}

// Whether a word of the text begins so.
bool names(const std::string& text, const std::string& beginning) {
  for (auto at = text.find(beginning); at != text.npos; at = text.find(beginning, at + 1)) {
    const auto before = static_cast<unsigned char>(at > 0 ? text[at - 1] : ' ');
    if (!std::isalnum(before) && before != '_' && before != ':' && before != '"') return true;
  }
  return false;
}

// A library that a file names, it includes, or one of our headers that it includes does: compilers
// that have read the library before (cmake/) do not say so.
void check_libraries(const Tree& tree, const std::string& path, const std::string& text,
                     std::vector<std::string>& faults) {
  using Texts = std::vector<std::string>;
  static const std::pair<Texts, Texts> libraries[] = {
      {{"nlohmann/json"}, {"nlohmann::"}},
      {{"fmt/"}, {"fmt::"}},
      {{"CLI/"}, {"CLI::"}},
      {{"rapidcheck"}, {"rc::", "RC_ASSERT", "RC_GTEST_PROP"}},
      {{"gtest/", "gmock/"}, {"EXPECT_EQ", "TEST("}},
      {{"gmock/"}, {"EXPECT_THAT", "MOCK_METHOD"}}};
  std::vector<std::string> included;
  std::string code;
  const auto add_included = [&](const std::string& line) {
    std::smatch match;
    const bool is_include = line.starts_with("#") && std::regex_match(line, match, kInclude);
    if (is_include) included.push_back(match[2]);
  };
  for (const std::string& line : lines_of(text)) {
    add_included(line);
    code += line.substr(0, line.find("//")) + "\n";
  }
  for (std::size_t direct = included.size(), i = 0; i < direct; ++i) {
    const auto ours = tree.find(included[i]);
    if (ours == tree.end()) continue;
    for (const std::string& line : lines_of(ours->second)) add_included(line);
  }
  for (const auto& library : libraries) {
    const bool has_it = std::any_of(included.begin(), included.end(), [&](const std::string& each) {
      return std::any_of(library.first.begin(), library.first.end(),
                         [&](const std::string& header) { return each.starts_with(header); });
    });
    for (const std::string& word : library.second) {
      if (has_it || !names(code, word)) continue;
      faults.push_back(path + ": names " + word + " and does not include <" + library.first[0] +
                       ">");
    }
  }
}

using Includes = std::map<std::string, std::set<std::string>>;

// Whatever includes itself by way of others.
void check_loops(const Includes& included, const char* what, std::vector<std::string>& faults) {
  for (const auto& [path, direct] : included) {
    std::set<std::string> reached = direct;
    std::vector<std::string> open(direct.begin(), direct.end());
    while (!open.empty()) {
      const auto next = included.find(open.back());
      open.pop_back();
      if (next == included.end()) continue;
      for (const std::string& target : next->second) {
        if (reached.insert(target).second) open.push_back(target);
      }
    }
    if (reached.contains(path)) {
      faults.push_back(path + ": " + what + "includes itself by way of others");
    }
  }
}

// "impl/flash" of impl/flash.h, impl/flash.cpp and impl/flash/forward.h.
std::string unit_of(const Tree& tree, const std::string& path) {
  const std::string folder = parent_of(path);
  return tree.contains(folder + ".h") ? folder : path.substr(0, path.rfind('.'));
}

void check_loops(const Tree& tree, std::vector<std::string>& faults) {
  Includes files, units;
  for (const auto& [path, text] : tree) {
    for (const std::string& line : lines_of(text)) {
      std::smatch match;
      if (!std::regex_match(line, match, kInclude)) continue;
      const std::string target = match[2];
      files[path].insert(target);
      // An .inl is a part of whoever includes it.
      if (!tree.contains(target) || target.ends_with(".inl")) continue;
      const std::string from = unit_of(tree, path), to = unit_of(tree, target);
      if (from != to) units[from].insert(to);
    }
  }
  check_loops(files, "", faults);
  if (faults.empty()) check_loops(units, "the unit ", faults);
}

// What a reader has before him at once. Lists are of any length: of claims, which tests are, and of
// faults.
void check_length(const std::string& path, const std::string& text,
                  std::vector<std::string>& faults) {
  constexpr std::size_t kMostLines = 500;
  const std::size_t lines = lines_of(text).size();
  const bool is_list = ends_with_any(path, {"_test.cpp", "_bench.cpp", "/catalogue.h"});
  if ((path.starts_with("tests/") && is_list) || lines <= kMostLines) return;
  faults.push_back(path + ": has " + std::to_string(lines) + " lines, which are several subjects");
}

// Whether a CMakeLists.txt at or above the file names it: with its ending or without (tests), by
// the .cpp that a header belongs to, or in a loop over the names of tests.
bool is_built(const Tree& tree, const std::string& path) {
  static const std::regex word(R"([A-Za-z0-9_./-]+)");
  const std::string stem = path.substr(0, path.rfind('.'));
  for (std::string folder = parent_of(path);; folder = parent_of(folder)) {
    const auto list = tree.find(folder + "/CMakeLists.txt");
    if (list != tree.end()) {
      const std::string below = path.substr(folder.size() + 1),
                        bare = stem.substr(folder.size() + 1);
      bool loop = false;  // until its closing parenthesis
      for (const std::string& line : lines_of(list->second)) {
        const std::string code = line.substr(0, line.find('#'));
        loop |= code.find("foreach(") != std::string::npos;
        for (std::sregex_iterator at(code.begin(), code.end(), word), end; at != end; ++at) {
          const std::string name = at->str();
          if (name == below || name == bare || name == bare + ".cpp") return true;
          if (loop && name + "_test" == bare) return true;
        }
        if (code.find(')') != std::string::npos) loop = false;
      }
    }
    if (folder.find('/') == std::string::npos) return false;
  }
}

// A helper of the tests belongs to no layer's list: it is built with whoever includes it.
bool is_test_helper(const Tree& tree, const std::string& path) {
  return path.starts_with("tests/") && path.ends_with(".h") &&
         std::any_of(tree.begin(), tree.end(), [&](const auto& file) {
           return file.second.find("#include \"" + path + "\"") != std::string::npos;
         });
}

// Arrows from room to room that no file needs.
std::vector<std::string> idle_arrows(const Tree& tree) {
  std::map<std::string, Layers> used;
  for (const auto& [path, text] : tree) {
    for (const std::string& line : lines_of(text)) {
      std::smatch match;
      if (std::regex_match(line, match, kInclude)) used[room_of(path)].insert(room_of(match[2]));
    }
  }
  std::vector<std::string> idle;
  for (const auto& [room, others] : kRooms) {
    for (const std::string& other : others) {
      if (!used[room].contains(other)) idle.push_back(room + " -> " + other);
    }
  }
  return idle;
}

std::vector<std::string> faults_of(const Tree& tree) {
  std::vector<std::string> faults;
  check_loops(tree, faults);
  for (const auto& [path, text] : tree) {
    if (!ends_with_any(path, {".h", ".cpp", ".c", ".inl"})) continue;
    check_source(tree, path, text, faults);
    check_libraries(tree, path, text, faults);
    check_length(path, text, faults);
    if (path.starts_with("harness/") && !kRooms.contains(room_of(path))) {
      faults.push_back(path + ": lies in no room of harness/");
    }
    if (!is_built(tree, path) && !is_test_helper(tree, path)) {
      faults.push_back(path + ": no CMakeLists.txt names it");
    }
  }
  return faults;
}

Tree read_tree() {
  namespace fs = std::filesystem;
  const fs::path root = ATTEST_SOURCE_DIR;
  Tree tree;
  for (const auto& [layer, others] : kMayInclude) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / layer)) {
      const std::string path = fs::relative(entry.path(), root).generic_string();
      if (!entry.is_regular_file() || path.starts_with("tests/package/projects/") ||  // of others
          !ends_with_any(path, {".h", ".cpp", ".c", ".inl", "CMakeLists.txt"}))
        continue;
      std::ifstream file(entry.path());
      std::ostringstream text;
      text << file.rdbuf();
      tree[path] = text.str();
    }
  }
  return tree;
}

TEST(LayeringTest, TheTreeKeepsItsRules) {
  const Tree tree = read_tree();
  EXPECT_GT(tree.size(), 30u) << "the tree was found";
  EXPECT_THAT(faults_of(tree), IsEmpty());
  EXPECT_THAT(idle_arrows(tree), IsEmpty());
}

// "process", "judge" of "`process/`, `judge/`".
Layers rooms_named(const std::string& cell) {
  static const std::regex room("`([a-z]+)/`");
  Layers rooms;
  for (std::sregex_iterator at(cell.begin(), cell.end(), room), end; at != end; ++at) {
    rooms.insert((*at)[1]);
  }
  return rooms;
}

// Each names all calls of its runtime, which macros would hide; what is mended in one is in both.
TEST(LayeringTest, HipIsCudaByOtherNames) {
  const Tree tree = read_tree();
  std::string cuda = tree.at("spec/device/cuda.h");
  for (const auto& [ours, theirs] : std::vector<std::pair<std::string, std::string>>{
           {"<cuda_runtime_api.h>", "<hip/hip_runtime_api.h>"},
           {"CUDART_CB ", ""},
           {"CUDA", "HIP"},
           {"Cuda", "Hip"},
           {"cuda", "hip"}}) {
    for (std::size_t at = 0; (at = cuda.find(ours, at)) != cuda.npos; at += theirs.size()) {
      cuda.replace(at, ours.size(), theirs);
    }
  }
  EXPECT_EQ(cuda, tree.at("spec/device/hip.h"));
}

TEST(LayeringTest, ContributingTellsWhatEachRoomMayInclude) {
  std::ifstream file(ATTEST_SOURCE_DIR "/CONTRIBUTING.md");
  static const std::regex row(R"(\| `([a-z]+)/` \| ([^|]*) \| [^|]* \|)");
  std::map<std::string, Layers> told;
  for (std::string line; std::getline(file, line);) {
    std::smatch match;
    if (std::regex_match(line, match, row) && kRooms.contains(match[1])) {
      told[match[1]] = rooms_named(match[2]);
    }
  }
  EXPECT_EQ(told, kRooms);
}

TEST(LayeringTest, TheMapsOfIncludesHaveNoCycle) {
  for (const auto* map : {&kMayInclude, &kRooms}) {
    // Removes layers that include only removed ones, until none is left.
    Layers removed;
    for (std::size_t before = 1; before != removed.size();) {
      before = removed.size();
      for (const auto& [layer, others] : *map) {
        if (std::includes(removed.begin(), removed.end(), others.begin(), others.end()))
          removed.insert(layer);
      }
      if (removed.size() == map->size()) break;
    }
    EXPECT_EQ(removed.size(), map->size());
  }
}

// What is found in one file that a list names.
std::vector<std::string> planted(const std::string& path, const std::string& text) {
  const std::string name = path.substr(path.rfind('/') + 1);
  return faults_of({{path, text},
                    {parent_of(path) + "/CMakeLists.txt", "attest_layer(x SOURCES " + name + ")"}});
}

const std::string kComment = "// A header.\n#pragma once\n";

TEST(LayeringTest, FindsIncludesAgainstTheDirection) {
  EXPECT_THAT(planted("reference/a.cpp", "#include \"impl/kernel.h\"\n"),
              ElementsAre(HasSubstr("reference must not include impl")));
  EXPECT_THAT(planted("impl/a.cpp", "  #  include \"reference/exact.h\"\n"),
              ElementsAre(HasSubstr("impl must not include reference")));
  EXPECT_THAT(planted("impl/a.cpp", "#include \"spec/mask.h\"\n"),
              ElementsAre(HasSubstr("impl must not include spec")));
  EXPECT_THAT(planted("harness/process/a.h", kComment + "#include \"impl/kernel.h\"\n"),
              ElementsAre(HasSubstr("harness must not include impl")));
  EXPECT_THAT(planted("impl/a.inl", "#include \"reference/exact.h\"\n"),
              ElementsAre(HasSubstr("impl must not include reference")));
  EXPECT_THAT(planted("spec/a.c", "#include \"cases/case.h\"\n"),
              ElementsAre(HasSubstr("spec must not include cases")));
  EXPECT_THAT(planted("reports/a.cpp", "#include \"harness/run/run.h\"\n"),
              ElementsAre(HasSubstr("reports must not include harness")));
  EXPECT_THAT(planted("cases/a.cpp", "#include \"tests/help.h\"\n"),
              ElementsAre(HasSubstr("cases must not include tests")));
  EXPECT_THAT(planted("harness/run/a.cpp",
                      "#include \"reports/reports.h\"\n#include \"harness/judge/b.h\"\n"),
              IsEmpty());
  EXPECT_THAT(planted("tests/impl/a.cpp", "#include \"impl/kernel.h\"\n#include <hwy/highway.h>\n"),
              IsEmpty());
}

TEST(LayeringTest, FindsIncludesAgainstTheDirectionOfRooms) {
  EXPECT_THAT(planted("harness/judge/a.cpp", "#include \"harness/laws/law.h\"\n"),
              ElementsAre(HasSubstr("judge must not include laws")));
  EXPECT_THAT(planted("harness/fuzz/a.cpp", "#include \"harness/selfcheck/hunt.h\"\n"),
              ElementsAre(HasSubstr("fuzz must not include selfcheck")));
  EXPECT_THAT(planted("harness/a.cpp", ""), ElementsAre(HasSubstr("lies in no room")));
}

TEST(LayeringTest, FindsArrowsThatNobodyNeeds) {
  const Tree tree = {{"harness/laws/a.cpp", "#include \"harness/judge/b.h\"\n"}};
  EXPECT_THAT(idle_arrows(tree), Contains("run -> laws"));
  EXPECT_THAT(idle_arrows(tree), Not(Contains("laws -> judge")));
}

TEST(LayeringTest, FindsReadableFormsThatShareWithFastOnes) {
  EXPECT_THAT(planted("reference/exact.cpp", "#include \"reference/bound.h\"\n"),
              ElementsAre(HasSubstr("shares \"reference/bound.h\"")));
  EXPECT_THAT(planted("reference/exact_bound/a.cpp", "#include \"reference/working/pack.h\"\n"),
              ElementsAre(HasSubstr("shares \"reference/working/pack.h\"")));
  EXPECT_THAT(
      planted("reference/exact_bound/a.cpp",
              "#include \"reference/exact_bound/b.h\"\n#include \"reference/roundoff.h\"\n"),
      IsEmpty());
  EXPECT_THAT(planted("reference/coarse.cpp", "#include \"reference/bound.h\"\n"), IsEmpty());
}

TEST(LayeringTest, FindsFilesThatIncludeThemselves) {
  const Tree tree = {{"spec/CMakeLists.txt", "attest_layer(spec SOURCES a.cpp HEADERS b.h c.h)"},
                     {"spec/a.cpp", "#include \"spec/b.h\"\n"},
                     {"spec/b.h", kComment + "#include \"spec/c.h\"\n"},
                     {"spec/c.h", kComment + "#include \"spec/b.h\"\n"}};
  EXPECT_THAT(faults_of(tree), ElementsAre("spec/b.h: includes itself by way of others",
                                           "spec/c.h: includes itself by way of others"));
}

TEST(LayeringTest, FindsUnitsThatIncludeThemselves) {
  const std::string list = "attest_layer(x SOURCES a.cpp b.cpp)";
  Tree tree = {{"impl/CMakeLists.txt", list},
               {"impl/a.h", kComment},
               {"impl/a.cpp", "#include \"impl/a.h\"\n#include \"impl/b.h\"\n"},
               {"impl/b.h", kComment + "#include \"impl/a.h\"\n"},
               {"impl/b.cpp", "#include \"impl/b.h\"\n"}};
  EXPECT_THAT(faults_of(tree), ElementsAre("impl/a: the unit includes itself by way of others",
                                           "impl/b: the unit includes itself by way of others"));
  // The parts of a unit may include its header.
  tree = {{"impl/CMakeLists.txt", "attest_layer(x SOURCES a.cpp a/b.cpp)"},
          {"impl/a.h", kComment},
          {"impl/a.cpp", "#include \"impl/a.h\"\n#include \"impl/a/b.h\"\n"},
          {"impl/a/b.h", kComment + "#include \"impl/a.h\"\n"},
          {"impl/a/b.cpp", "#include \"impl/a/b.h\"\n"}};
  EXPECT_THAT(faults_of(tree), IsEmpty());
}

TEST(LayeringTest, FindsLongFiles) {
  std::string text;
  for (int line = 0; line < 500; ++line) text += "\n";
  EXPECT_THAT(planted("spec/a.cpp", text), IsEmpty());
  EXPECT_THAT(planted("spec/a.cpp", text + "\n"), ElementsAre(HasSubstr("has 501 lines")));
}

TEST(LayeringTest, FindsIncludesWithoutTheirFolder) {
  EXPECT_THAT(planted("spec/a.cpp", "#include \"dtype.h\"\n"),
              ElementsAre(HasSubstr("not named from the root")));
  EXPECT_THAT(planted("spec/a.cpp", "#include \"../impl/kernel.h\"\n"),
              ElementsAre(HasSubstr("not named from the root")));
}

TEST(LayeringTest, FindsHeadersOutOfForm) {
  EXPECT_THAT(planted("spec/a.h", "\n#pragma once\n"),
              ElementsAre(HasSubstr("begins with a comment")));
  EXPECT_THAT(planted("spec/a.h", "// A header.\n"), ElementsAre(HasSubstr("guard is missing")));
  EXPECT_THAT(planted("spec/a.h", kComment + "using namespace std;\n"),
              ElementsAre(HasSubstr("using namespace")));
  EXPECT_THAT(planted("spec/attest_plugin.h", kComment),
              ElementsAre(HasSubstr("guard is missing")));
  EXPECT_THAT(planted("spec/a.cpp", "using namespace std;\n"), IsEmpty());
}

TEST(LayeringTest, FindsLibrariesThatAreNamedAndNotIncluded) {
  const std::string word = "fmt::", code = word + "memory_buffer text;\n";
  EXPECT_THAT(planted("spec/a.cpp", code), ElementsAre(HasSubstr("and does not include <fmt/>")));
  EXPECT_THAT(planted("spec/a.cpp", "#include <fmt/format.h>\n" + code), IsEmpty());
  EXPECT_THAT(planted("spec/a.cpp", "// " + code), IsEmpty());
}

TEST(LayeringTest, FindsDisabledCode) {
  EXPECT_THAT(planted("spec/a.cpp", "int a;\n#if 0\nint b;\n#endif\n"),
              ElementsAre(HasSubstr("#if 0")));
  EXPECT_THAT(planted("spec/a.cpp", "#if 01\n#endif\n"), IsEmpty());
}

TEST(LayeringTest, FindsHeadersThatAreNotTriedOnTheirOwn) {
  const Tree tree = {{"spec/CMakeLists.txt", "attest_layer(spec SOURCES a.cpp)"},
                     {"spec/a.h", kComment},
                     {"spec/a.cpp", "#include <vector>\n\n#include \"spec/a.h\"\n"}};
  EXPECT_THAT(faults_of(tree), ElementsAre(HasSubstr("must be the first include")));
}

TEST(LayeringTest, FindsFilesThatNobodyBuilds) {
  const std::string list =
      "attest_layer(x SOURCES b.cpp deep/c.cpp)  # a.cpp\nattest_test(d_test LABELS "
      "unit)\nforeach(name e)\n";
  const Tree tree = {
      {"spec/CMakeLists.txt", list}, {"spec/a.cpp", ""},      {"spec/b.cpp", ""},
      {"spec/b.h", kComment},        {"spec/deep/c.cpp", ""}, {"spec/d_test.cpp", ""},
      {"spec/deep/b.cpp", ""},       {"spec/e_test.cpp", ""}, {"spec/f_test.cpp", ""}};
  // b.cpp misses its own header, which is not what is tried here.
  const std::vector<std::string> faults = faults_of(tree);
  EXPECT_THAT(faults, Contains("spec/a.cpp: no CMakeLists.txt names it"))
      << "a comment does not count";
  EXPECT_THAT(faults, Contains("spec/deep/b.cpp: no CMakeLists.txt names it"))
      << "nor another folder's file";
  EXPECT_THAT(faults, Contains("spec/f_test.cpp: no CMakeLists.txt names it")) << "not in the loop";
  EXPECT_EQ(faults.size(), 4u);
}

TEST(LayeringTest, FindsTestHelpersThatNobodyIncludes) {
  Tree tree = {{"tests/spec/CMakeLists.txt", "attest_test(a_test LABELS unit)"},
               {"tests/spec/a_test.cpp", ""},
               {"tests/spec/help.h", kComment}};
  EXPECT_THAT(faults_of(tree), ElementsAre("tests/spec/help.h: no CMakeLists.txt names it"));
  tree["tests/spec/a_test.cpp"] = "#include \"tests/spec/help.h\"\n";
  EXPECT_THAT(faults_of(tree), IsEmpty());
}

}  // namespace
}  // namespace attest
