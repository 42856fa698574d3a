#include "harness/criteria/inputs.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "cases/entry.h"
#include "harness/criteria/rules.h"
#include "spec/clause.h"
#include "spec/json_text.h"

namespace attest::criteria {
namespace {

using nlohmann::json;

// What problems of their tests have that the usual one has not.
struct Variation {
  const char* name;
  const char* problem;                    // what it changes of the usual one
  std::vector<std::string> clauses = {};  // that it may show broken, but for those it implies
  bool shows_all = false;                 // whether it is worth trying whatever is broken
};

// Two batch elements, two heads, 40 queries and keys of 16 channels, forward and backward.
constexpr const char* kUsual = R"({"batch": 2, "query_heads": 2, "key_heads": 2, "query_len": 40,
                                   "key_len": 40, "head_dim": 16, "backward": true})";

const std::vector<Variation> kVariations = {
    {"full", "{}", {}, true},
    {"channels",
     R"({"head_dim": 64, "batch": 1, "query_len": 24})",
     {"SHAPE-1", "LAYOUT-1", "SCORE-1"}},
    {"odd", R"({"query_len": 29, "key_len": 61, "head_dim": 24})", {}, true},
    {"values", R"({"value_dim": 32})", {"SHAPE-1", "LAYOUT-1"}},
    {"grouped", R"({"query_heads": 4, "query_len": 24})", {}, true},
    {"one_key_head",
     R"({"query_heads": 4, "key_heads": 1, "mask": "causal"})",
     {"HEAD-1", "HEAD-2", "MASK-2"}},
    {"causal", R"({"mask": "causal"})", {"MASK-1", "MASK-2"}},
    {"more_keys", R"({"query_len": 24, "key_len": 56, "mask": "causal bottom_right"})", {}, true},
    {"more_queries",
     R"({"query_len": 56, "key_len": 24, "mask": "causal bottom_right"})",
     {"MASK-3", "EMPTY-1", "EMPTY-2", "EMPTY-3"}},
    {"window", R"({"mask": "window -12..0 bottom_right", "key_len": 56})", {"MASK-3"}},
    {"window_ahead", R"({"mask": "window -9..6"})"},
    {"prefix", R"({"mask": {"any_of": ["causal", {"prefix": [15, 5]}]}})"},
    {"documents", R"({"mask": {"segments": {"pattern": "documents", "length": 12}}})"},
    {"dense", R"({"mask": {"dense": {"pattern": "random", "percent": 60}}})", {"EMPTY-1"}},
    {"block_sparse", R"({"mask": {"block_sparse": {"block": [8, 8], "pattern": "random",
                                                   "percent": 60}}})"},
    {"lengths", R"({"key_lens": [40, 27], "query_lens": [40, 27]})", {"HIDE-1", "EMPTY-1"}},
    {"packed",
     R"({"packed": true, "query_lens": [40, 17], "key_lens": [31, 40],
                   "mask": "causal bottom_right"})",
     {"MASK-3", "MASK-5", "EMPTY-1"}},
    {"alibi", R"({"alibi": {"slopes": "standard"}, "mask": "causal"})"},
    {"softcap", R"({"softcap": 15})"},
    {"bias", R"({"bias": {"kind": "normal"}})"},
    {"bias_of_heads", R"({"bias": {"kind": "normal", "axes": "hqk"}, "mask": "causal"})"},
    {"sink", R"({"sink": true, "mask": "causal"})", {"EMPTY-4"}},
    {"dropout", R"({"dropout": {"probability": 0.25}})", {"LAYOUT-1"}},
    {"own_dropout", R"({"dropout": {"mode": "generated", "probability": 0.25}})"},
    {"lse_gradient", R"({"d_lse": true})"},
    {"heads_inside", R"({"layouts": "bshd", "mask": "causal"})", {"LAYOUT-1", "LAYOUT-2"}},
    {"decode",
     R"({"query_len": 1, "key_len": 171, "query_heads": 8, "backward": false})",
     {},
     true},
    {"paged",
     R"({"query_len": 1, "key_lens": [77, 41], "paging": {"page_size": 16},
                  "query_heads": 4, "backward": false})",
     {"MASK-5", "PAGE-2"}},
};

Case case_of(const Variation& variation, DType dtype, const std::string& data) {
  json problem = parse_json(kUsual);
  problem.update(parse_json(variation.problem));
  for (const char* length : {"query_len", "key_len"}) {
    const bool follows = problem.contains("packed") ||
                         (problem.contains("paging") && std::string_view(length) == "key_len");
    if (follows) problem.erase(length);
  }
  std::vector<std::string> cited = {"SOFTMAX-1"};
  for (const Clause& clause : clauses()) {
    const std::string id(clause.id);
    const bool fits = std::find(variation.clauses.begin(), variation.clauses.end(), id) !=
                      variation.clauses.end();
    if ((fits || variation.shows_all) && id != cited[0]) cited.push_back(id);
  }
  return read_entry({{"name", variation.name},
                     {"clauses", cited},
                     {"because", "Tests of kernels have it."},
                     {"problem", problem},
                     {"dtypes", {std::string(name(dtype))}},
                     {"data", {data}}},
                    "theirs");
}

}  // namespace

std::vector<Case> their_cases() {
  std::set<std::pair<std::string, DType>> wanted;
  for (const Rule& rule : rules()) {
    for (const DType dtype : rule.dtypes) wanted.emplace(rule.data, dtype);
  }
  std::vector<Case> cases;
  for (const Variation& variation : kVariations) {
    for (const auto& [data, dtype] : wanted) cases.push_back(case_of(variation, dtype, data));
  }
  return cases;
}

std::vector<Case> representatives(const std::vector<Case>& cases) {
  const auto is_cheap = [](const Case& c) {
    constexpr Index kMostProducts = 4'000'000;
    const Problem& p = c.problem;
    return c.excerpt == 0 && p.dtype != DType::f64 &&
           p.batch * p.query_heads * p.query_len * p.key_len * (p.head_dim + p.value_dim) <=
               kMostProducts;
  };
  const auto is_only_advised = [](const Case& c) {
    return !c.clauses.empty() && is_recommended(c.clauses.front());
  };
  std::map<std::tuple<std::string, int, DType>, std::set<std::size_t>> entries;  // first and last
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (!is_cheap(cases[i]) || is_only_advised(cases[i])) continue;
    auto& chosen = entries[{cases[i].file, cases[i].line, cases[i].problem.dtype}];
    if (chosen.size() == 2) chosen.erase(std::prev(chosen.end()));
    chosen.insert(i);
  }
  std::set<std::size_t> all;
  for (const auto& [entry, chosen] : entries) all.insert(chosen.begin(), chosen.end());
  std::vector<Case> result;
  for (const std::size_t i : all) result.push_back(cases[i]);
  return result;
}

}  // namespace attest::criteria
