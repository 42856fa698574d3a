// SPEC.md and the code know the same clauses, and SPEC.md names all that a testee or a reader of
// records has to spell.
#include "spec/clause.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "spec/feature.h"
#include "spec/json_text.h"
#include "spec/profile.h"
#include "spec/record.h"

namespace attest {
namespace {

std::string spec_text() {
  std::ifstream file(std::string(ATTEST_SOURCE_DIR) + "/spec/SPEC.md");
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_FALSE(text.str().empty());
  return text.str();
}

struct Section {
  std::string id;
  std::string title;
  std::string level;
  std::string body;
};

// The clauses of SPEC.md: "### MASK-3 — title (required)" and what follows.
std::vector<Section> sections() {
  static const std::regex heading(
      R"(### ([A-Z]+-[0-9]+) — (.+) \((required|recommended|optional)\))");
  std::vector<Section> result;
  std::istringstream lines(spec_text());
  bool within = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("#")) within = false;
    if (line.starts_with("### ")) {
      std::smatch match;
      if (!std::regex_match(line, match, heading)) {
        ADD_FAILURE() << "not the heading of a clause: " << line;
        continue;
      }
      result.push_back({match[1], match[2], match[3], ""});
      within = true;
    } else if (within) {
      result.back().body += line + "\n";
    }
  }
  return result;
}

void expect_same(const std::vector<Section>& written, std::span<const Clause> known) {
  std::vector<std::string> in_text, in_code;
  for (const Section& section : written) {
    in_text.push_back(section.id + " " + section.title + " " + section.level);
  }
  for (const Clause& clause : known) {
    in_code.push_back(std::string(clause.id) + " " + std::string(clause.title) + " " +
                      std::string(name(clause.level)));
  }
  EXPECT_EQ(in_text, in_code);
}

TEST(ClauseTest, SpecAndCodeKnowTheSameClausesInTheSameOrder) {
  expect_same(sections(), clauses());
}

TEST(ClauseTest, EveryClauseIsStatedInOneForm) {
  for (const Section& section : sections()) {
    std::size_t place = 0;
    for (const char* part :
         {"**Statement.**", "\n\n**Why.** ", "\n\n**Elsewhere.** ", "\n\n**Level.** "}) {
      const std::size_t found = section.body.find(part);
      ASSERT_NE(found, std::string::npos) << section.id << " lacks " << part;
      EXPECT_GE(found, place) << section.id << ": out of order: " << part;
      EXPECT_EQ(section.body.find(part, found + 1), std::string::npos)
          << section.id << ": twice: " << part;
      place = found;
    }
    // One paragraph, or a list of numbered sentences.
    EXPECT_TRUE(
        std::regex_search(section.body, std::regex(R"(\*\*Statement\.\*\*( \S|\n\n1\. \S))")))
        << section.id;
  }
}

TEST(ClauseTest, EveryLevelNamesTheProfileThatDemandsIt) {
  for (const Section& section : sections()) {
    std::string expected = section.level;
    expected[0] = static_cast<char>(expected[0] - 'a' + 'A');
    for (const Profile& profile : profiles()) {
      const auto ids = profile.clauses;
      if (std::find(ids.begin(), ids.end(), section.id) != ids.end()) {
        expected += "; profile `" + std::string(profile.name) + "`.";
      }
    }
    EXPECT_NE(section.body.find("**Level.** " + expected), std::string::npos)
        << section.id << ": " << expected;
  }
}

TEST(ClauseTest, EveryFeatureThatALevelNamesHasThatClause) {
  int named = 0;
  for (const Section& section : sections()) {
    const std::string level = section.body.substr(section.body.find("**Level.**"));
    const std::string beside = std::regex_replace(level, std::regex("profile `[^`]+`"), "");
    const auto known = features_with(section.id);
    for (const Feature& feature : features()) {
      if (beside.find("`" + std::string(feature.name) + "`") == std::string::npos) continue;
      ++named;
      EXPECT_NE(std::find(known.begin(), known.end(), &feature), known.end())
          << section.id << " " << feature.name;
    }
  }
  EXPECT_GT(named, 30);
}

TEST(ClauseTest, IdsAreUniqueAndFoundByName) {
  std::set<std::string_view> ids;
  for (const Clause& clause : clauses()) {
    EXPECT_TRUE(ids.insert(clause.id).second) << clause.id;
    EXPECT_EQ(find_clause(clause.id), &clause);
    EXPECT_FALSE(clause.title.empty());
  }
  EXPECT_EQ(find_clause("MASK-99"), nullptr);
  EXPECT_EQ(find_clause(""), nullptr);
}

TEST(ClauseTest, SpecCitesNoClauseThatDoesNotExist) {
  std::set<std::string> topics;
  for (const Section& section : sections())
    topics.insert(section.id.substr(0, section.id.find('-')));
  const std::string text = spec_text();
  const std::regex citation(R"(\b([A-Z]+)-([0-9]+)\b)");
  for (std::sregex_iterator at(text.begin(), text.end(), citation), end; at != end; ++at) {
    if (topics.contains((*at)[1])) {
      EXPECT_NE(find_clause(at->str()), nullptr) << at->str();
    }
  }
}

// What `code` the expression finds in a text.
std::set<std::string> found_in(const std::string& text, const std::regex& expression) {
  std::set<std::string> found;
  for (std::sregex_iterator at(text.begin(), text.end(), expression), end; at != end; ++at) {
    found.insert((*at)[1]);
  }
  return found;
}

std::set<std::string> reasons_of_spec() {
  // The rows of the table; beside it, what follows the word, and of NOT_RUN all that its row lists.
  std::set<std::string> reasons = {"not_judgeable"};
  std::istringstream lines(spec_text());
  bool in_table = false;
  for (std::string line; std::getline(lines, line);) {
    in_table = line.starts_with("| reason of FAIL or WARN") || (in_table && line.starts_with("|"));
    if (in_table) reasons.merge(found_in(line, std::regex(R"(^\| `([a-z_]+)` )")));
    if (line.starts_with("| `UNSUPPORTED`")) {
      reasons.merge(found_in(line, std::regex("reason `([a-z_]+)`")));
    }
    if (line.starts_with("| `NOT_RUN`")) {
      reasons.merge(found_in(line, std::regex("`([a-z_]+)`")));
    }
  }
  return reasons;
}

TEST(ClauseTest, SpecAndSchemaAndCodeKnowTheSameReasons) {
  const std::set<std::string> known(kReasons.begin(), kReasons.end());
  EXPECT_EQ(reasons_of_spec(), known);

  std::ifstream file(ATTEST_SOURCE_DIR "/spec/record.schema.json");
  const std::string pattern =
      nlohmann::json::parse(file)["$defs"]["reason"]["pattern"].get<std::string>();
  EXPECT_EQ(found_in(pattern, std::regex(R"(\|([a-z_]+))")), known);
  const std::regex schema(pattern);
  for (const std::string& reason : known) EXPECT_TRUE(std::regex_search(reason, schema)) << reason;

  std::set<std::string> written;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(ATTEST_SOURCE_DIR "/harness")) {
    if (entry.path().extension() != ".cpp") continue;
    std::ifstream source(entry.path());
    const std::string text{std::istreambuf_iterator<char>(source), {}};
    written.merge(found_in(text, std::regex(R"re((?:reason = |failure\()"([a-z_]+)")re")));
  }
  EXPECT_GT(written.size(), 10u);
  for (const std::string& reason : written) EXPECT_TRUE(known.contains(reason)) << reason;
}

// What is spelled by others: every name stands in SPEC.md, in `code`.
TEST(ClauseTest, SpecNamesWhateverOthersMustSpell) {
  std::vector<std::string> names = known_features();
  for (const Profile& profile : profiles()) names.emplace_back(profile.name);
  for (const DType dtype : kDTypes) names.emplace_back(name(dtype));
  for (int i = 0; i <= static_cast<int>(Outcome::not_run); ++i)
    names.emplace_back(name(Outcome(i)));
  names.insert(names.end(), kReasons.begin(), kReasons.end());
  names.emplace_back("property:NAME");
  const auto keys_of = [&](const nlohmann::json& object) {
    for (const auto& [key, value] : object.items()) names.push_back(key);
  };
  const auto header =
      parse_json(to_line(Header{.suite_version = "", .testees = {{.name = ""}}, .tier = ""}));
  keys_of(header);
  keys_of(header["testees"][0]);
  VerdictRecord record{.case_id = "", .testee = "", .dtype = "", .verdict = {}};
  record.verdict.tensors[TensorName::o] = {};
  record.verdict.captured = "x";
  const auto line = parse_json(to_line(record));
  keys_of(line);
  keys_of(line["tensors"]["O"]);
  const auto footer = parse_json(to_line(Footer{.counts = {}, .profiles = {{}}}));
  keys_of(footer);
  keys_of(footer["profiles"][0]);
  for (const char* key :
       {"products", "default", "qk", "pv", "dp", "dv", "dq", "dk", "accumulator", "truncates",
        "operands", "softmax", "exp_ulp", "p", "p_normalised", "ds", "ds_scaled", "ds_from",
        "kv_splits", "rescales_output", "key_block", "subnormal_inputs", "subnormal_outputs",
        "output_rounding", "deterministic", "thread_invariant", "batch_invariant", "form_invariant",
        "tanh_ulp", "exp_zero", "scores", "row_sum", "p_rounding", "max_lag", "max_rounding",
        "block_order", "gradient_block", "grouped_gradients", "dbias_terms", "alignment",
        "keep_quantum", "leaves_padding_unwritten", "empty_rows", "dialect",
        // Worker: the problem, the mask, the tensors.
        "softcap", "packed", "page_size", "bias", "alibi", "sink", "dlse", "dropout", "mode",
        "probability", "seed", "offset", "table", "query_table", "key_table", "block_query",
        "block_key", "dilation", "key_lens", "query_lens", "cu_query_lens", "cu_key_lens",
        "page_table", "slopes", "keep", "d_o", "d_lse", "dbias", "dsink"}) {
    names.emplace_back(key);
  }
  const std::string text = spec_text();
  for (const std::string& spelled : names) {
    EXPECT_NE(text.find("`" + spelled + "`"), std::string::npos) << spelled;
  }
}

}  // namespace
}  // namespace attest
