// What is asked of the form of documents: versions that agree, sentences that can be cited, lines
// and programs to copy that stay short.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "spec/clause.h"
#include "spec/feature.h"
#include "spec/profile.h"
#include "tests/documents/document.h"

namespace attest::documents {
namespace {

constexpr std::size_t kColumns = 100;

enum class Tables { fit, are_as_wide_as_they_are };

void expect_lines_to_fit(const std::string& path, Tables tables) {
  int number = 0;
  for (const std::string& line : lines_of(contents(path))) {
    ++number;
    if (line.starts_with("|") && tables == Tables::are_as_wide_as_they_are) continue;
    EXPECT_LE(width_of(line), kColumns) << path << ":" << number << ": " << line;
  }
}

TEST(DocumentFormTest, LinesFit) {
  expect_lines_to_fit("spec/SPEC.md", Tables::are_as_wide_as_they_are);
  expect_lines_to_fit("spec/NUMERICS.md", Tables::fit);
  expect_lines_to_fit("spec/MEASURED.md", Tables::fit);
  expect_lines_to_fit("CONTRIBUTING.md", Tables::are_as_wide_as_they_are);
}

// "spec/mask.*" and "mask.cpp" of spec/mask.cpp, whose folder the sentence names.
bool is_file_of(const std::vector<std::string>& files, std::string name) {
  const bool any_ending = name.ends_with(".*");
  if (any_ending) name.pop_back();
  return std::any_of(files.begin(), files.end(), [&](const std::string& path) {
    const std::size_t at = ("/" + path).rfind("/" + name);
    return at != std::string::npos && (any_ending || at + name.size() == path.size());
  });
}

// But those with a place for a name in capitals, such as `check_NAME.cpp`, and what is built.
TEST(DocumentFormTest, ContributingNamesFilesThatThereAre) {
  namespace fs = std::filesystem;
  const fs::path root = ATTEST_SOURCE_DIR;
  std::vector<std::string> files = {"CMakeLists.txt"};
  for (const char* folder :
       {"spec", "reference", "impl", "cases", "harness", "reports", "python", "site", "tests"}) {
    for (const auto& each : fs::recursive_directory_iterator(root / folder)) {
      files.push_back(each.path().lexically_relative(root).string());
    }
  }
  static const std::regex file(R"(`([a-z0-9_/]+\.(\*|cpp|h|inl|c|py|json|md|txt))`)");
  const std::string text = contents("CONTRIBUTING.md");
  int named = 0;
  for (std::sregex_iterator it(text.begin(), text.end(), file), end; it != end; ++it, ++named) {
    EXPECT_TRUE(is_file_of(files, (*it)[1])) << (*it)[1];
  }
  EXPECT_GT(named, 100);
}

// Of the product's sources, whose code, comments aside, says a word.
std::vector<std::string> sources_that_say(const std::regex& word) {
  namespace fs = std::filesystem;
  const fs::path root = ATTEST_SOURCE_DIR;
  static const std::regex source(R"(.*\.(h|cpp|c|inl|cu|py)|spec/.*\.json)"),
      comment(R"(//.*|\s*(\*|/\*|#).*)");
  std::vector<std::string> saying;
  for (const char* folder :
       {"spec", "reference", "impl", "cases", "harness", "reports", "python"}) {
    for (const auto& each : fs::recursive_directory_iterator(root / folder)) {
      const std::string path = each.path().lexically_relative(root).generic_string();
      // A vendor's plug-in declares what its system has, whatever else there is.
      if (!std::regex_match(path, source) || path.starts_with("impl/vendor/")) continue;
      const auto lines = lines_of(contents(path));
      if (std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
            return std::regex_search(std::regex_replace(line, comment, ""), word);
          })) {
        saying.push_back(path);
      }
    }
  }
  return saying;
}

// What one of a kind touches, the next one does: a recipe that leaves out a file is found by the
// example that is in it. Files of another recipe, which it names, are `elsewhere`.
void expect_recipe_to_be_whole(const std::string& recipe, const char* example,
                               const std::set<std::string>& elsewhere) {
  const std::string text = chapter(contents("CONTRIBUTING.md"), recipe);
  static const std::regex file(R"([A-Za-z0-9_./]+\.(\*|cpp|h|inl|c|py|json))");
  const std::vector<std::string> saying = sources_that_say(std::regex(example));
  EXPECT_GT(saying.size(), 5u) << recipe;
  for (const std::string& path : saying) {
    bool named = elsewhere.contains(path);
    for (std::sregex_iterator it(text.begin(), text.end(), file), end; it != end; ++it) {
      named = named || is_file_of({path}, it->str());
    }
    EXPECT_TRUE(named) << recipe << " does not name " << path;
  }
}

TEST(DocumentFormTest, RecipesNameWhatTheLastOfTheirKindTouched) {
  const std::set<std::string> of_clauses = {"spec/clause.cpp", "spec/profile.cpp"};
  expect_recipe_to_be_whole("A mask kind", "[Dd]ilat", of_clauses);
  expect_recipe_to_be_whole("A limit", "bias_(axes|shapes)", {});
  // Of formats, what lists them on a line; not what real systems have, what the rules of other
  // projects are of, and what is to be copied.
  expect_recipe_to_be_whole(
      "A format", R"(\b[Ff](16|loat16)\b.*\b([Bb][Ff]16|bfloat16)\b)",
      {"impl/adapters/flash_attention_2.py", "impl/adapters/ggml_flash.py",
       "impl/adapters/jax_nn_cuda.py", "impl/adapters/torch_arithmetic.py",
       "impl/adapters/torch_flex_cuda.py", "impl/adapters/torch_sdpa.py",
       "impl/adapters/torch_sdpa_cuda.py", "impl/adapters/triton_flash.py", "impl/new/kernel.cpp",
       "impl/new/kernel.cu", "harness/command/new.cpp", "harness/criteria/relative_rules.cpp",
       "harness/criteria/statistic_rules.cpp", "harness/criteria/tolerance_rules.cpp"});
}

TEST(DocumentFormTest, SpecHasTheVersionThatItsChangesBeginWith) {
  const std::string text = contents("spec/SPEC.md");
  std::smatch stated, changed;
  ASSERT_TRUE(std::regex_search(text, stated, std::regex(R"(\nVersion ([0-9.]+) of ([^;]+);)")));
  const std::string changes = chapter(text, "Versions");
  ASSERT_TRUE(std::regex_search(changes, changed, std::regex(R"(\n\| ([0-9.]+), ([^|]+) \|)")));
  EXPECT_EQ(stated[1], changed[1]);
  EXPECT_EQ(stated[2], changed[2]);
}

// Statements in numbered sentences: "1. ", "2. ", ... without a gap, so that DROP-1.3 is found.
TEST(DocumentFormTest, SentencesOfClausesAreNumberedAndCitedAsTheyAre) {
  const std::string text = contents("spec/SPEC.md");
  static const std::regex heading(R"(### ([A-Z]+-[0-9]+) — .*)"), item(R"(([0-9]+)\. .*)");
  std::set<std::string> sentences;
  std::string clause;
  bool within = false;
  int number = 0, listed = 0;
  for (const std::string& line : lines_of(text)) {
    std::smatch match;
    if (std::regex_match(line, match, heading)) clause = match[1];
    if (line == "**Statement.**") {
      within = true;
      number = 0;
      ++listed;
    }
    if (line.starts_with("**Why.**")) {
      EXPECT_TRUE(!within || number > 1) << clause << ": a list of one sentence";
      within = false;
    }
    if (within && std::regex_match(line, match, item)) {
      EXPECT_EQ(std::stoi(match[1]), ++number) << clause;
      sentences.insert(clause + "." + std::to_string(number));
    }
  }
  EXPECT_GT(listed, 30);
  static const std::regex citation(R"(\b[A-Z]+-[0-9]+\.[0-9]+\b)");
  std::vector<std::string> pages = {"spec/SPEC.md", "spec/NUMERICS.md", "README.md",
                                    "CONTRIBUTING.md"};
  const std::filesystem::path root = ATTEST_SOURCE_DIR;
  for (const auto& each : std::filesystem::directory_iterator(root / "harness/judge")) {
    pages.push_back(each.path().lexically_relative(root).string());  // their findings cite
  }
  for (const std::string& page : pages) {
    const std::string cites = contents(page);
    for (std::sregex_iterator at(cites.begin(), cites.end(), citation), end; at != end; ++at) {
      EXPECT_TRUE(sentences.contains(at->str())) << page << " cites " << at->str();
    }
  }
}

// What stands between ` and `.
std::set<std::string> quoted_in(const std::string& text) {
  static const std::regex word("`([^`]+)`");
  std::set<std::string> words;
  for (std::sregex_iterator at(text.begin(), text.end(), word), end; at != end; ++at) {
    words.insert((*at)[1]);
  }
  return words;
}

// "**Level.** Required; profile `masks`. The feature is `window`.": as the tables of profiles and
// features have it.
TEST(DocumentFormTest, LevelsNameTheProfileAndTheFeaturesOfTheClause) {
  const std::string text = contents("spec/SPEC.md");
  std::set<std::string> known;
  for (const Feature& feature : features()) {
    if (feature.key == kOfFeatures) known.emplace(feature.name);
  }
  for (const Clause& clause : clauses()) {
    const std::size_t begin =
        text.find("**Level.**", text.find(fmt::format("\n### {} —", clause.id)));
    const std::string level = text.substr(begin, text.find("\n\n", begin) - begin);
    const std::size_t first = level.find('.', std::strlen("**Level.**"));
    std::set<std::string> profile, of_table;
    for (const Profile& each : profiles()) {
      const auto& ids = each.clauses;
      if (std::find(ids.begin(), ids.end(), clause.id) != ids.end()) profile.emplace(each.name);
    }
    EXPECT_EQ(quoted_in(level.substr(0, first)), profile) << clause.id;
    for (const Feature* feature : features_with(clause.id)) {
      if (feature->key == kOfFeatures) of_table.emplace(feature->name);
    }
    std::set<std::string> named;
    for (const std::string& word : quoted_in(level.substr(first))) {
      if (known.contains(word)) named.insert(word);
    }
    EXPECT_EQ(named, of_table) << clause.id;
  }
}

// README.md says so of them.
TEST(DocumentFormTest, SkeletonsAreShort) {
  EXPECT_LE(lines_of(contents("impl/skeleton.c")).size(), 60u);
  EXPECT_LE(lines_of(contents("impl/skeleton.py")).size(), 40u);
  for (const char* path : {"impl/skeleton.c", "impl/skeleton.py"}) {
    expect_lines_to_fit(path, Tables::fit);
  }
}

}  // namespace
}  // namespace attest::documents
