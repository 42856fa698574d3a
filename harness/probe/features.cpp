// Which features it takes: each is asked for in the words of case files, and is told where what
// comes back is right under the loosest arithmetic there is.
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <vector>

#include "cases/generate.h"
#include "harness/probe/drawn_case.h"
#include "harness/probe/questions.h"
#include "spec/contains.h"
#include "spec/feature.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"

namespace attest {
namespace {

// What shows it; a narrow testee may take one of several alone.
struct Showing {
  std::string_view feature;
  std::initializer_list<const char*> problems;
  bool all = false;  // each of them has to come back right
  // Asked of whoever declares it: who does not look at the formats of Q, K and V reads far beyond
  // numbers of 8 bits.
  bool of_declarers = false;
};

const Showing kShowings[] = {
    {"causal", {R"({"mask": "causal"})", R"({"mask": "causal bottom_right"})"}},
    {"window",
     {R"({"mask": "window -5..3"})", R"({"mask": "window -5..0"})",
      R"({"mask": "window -5..3 bottom_right"})", R"({"mask": "window -5..0 bottom_right"})",
      R"({"mask": "window -3..2"})"}},
    {"dense-mask",
     {R"({"mask": {"dense": {"pattern": "random", "percent": 60}}})",
      R"({"mask": {"dense": {"pattern": "random", "percent": 60, "axes": "bqk"}}})"}},
    {"prefix", {R"({"mask": "prefix 12"})"}},
    {"segments", {R"({"mask": {"segments": {"pattern": "documents", "length": 12}}})"}},
    {"block-sparse",
     {R"({"mask": {"block_sparse": {"block": [8, 8], "pattern": "checkerboard"}}})",
      R"({"mask": {"block_sparse": {"block": [16, 16], "pattern": "checkerboard"}}})",
      R"({"query_len": 256, "key_len": 256,
          "mask": {"block_sparse": {"block": [128, 128], "pattern": "checkerboard"}}})"}},
    {"dilated", {R"({"mask": "dilated 3"})"}},
    {"mask-and",
     {R"({"mask": {"all_of": ["causal", "prefix 12"]}})",
      R"({"mask": {"all_of": ["causal", {"segments": {"pattern": "documents", "length": 12}}]}})",
      R"({"mask": {"all_of": ["causal", {"dense": {"pattern": "odd_rows_empty"}}]}})"}},
    {"mask-or",
     {R"({"mask": {"any_of": ["causal", "prefix 12"]}})",
      R"({"mask": {"any_of": ["causal", {"segments": {"pattern": "documents", "length": 12}}]}})"}},
    {"packed",
     {R"({"packed": true, "batch": 2, "query_lens": [10, 24], "key_lens": [10, 24]})",
      R"({"packed": true, "batch": 2, "query_lens": [128, 256], "key_lens": [128, 256]})"}},
    {"paged",
     {R"({"batch": 2, "key_lens": [40, 24], "paging": {"page_size": 16}})",
      R"({"batch": 2, "key_lens": [100, 64], "paging": {"page_size": 64}})",
      R"({"batch": 2, "key_lens": [300, 256], "paging": {"page_size": 128}})",
      R"({"batch": 2, "key_lens": [300, 256], "paging": {"page_size": 256}})",
      R"({"batch": 2, "query_len": 1, "key_lens": [40, 24], "paging": {"page_size": 16}})"}},
    {"lengths",
     {R"({"key_lens": [10]})", R"({"query_lens": [10]})",
      R"({"key_lens": [10], "query_lens": [10]})"}},
    {"backward", {R"({"backward": true})"}},
    {"any-scale", {R"({"scale": -0.25})"}},
    {"softcap", {R"({"softcap": 2})"}},
    {"bias",
     {R"({"bias": {"kind": "normal"}})", R"({"bias": {"kind": "normal", "axes": "hqk"}})",
      R"({"bias": {"kind": "normal", "axes": "qk"}})",
      R"({"bias": {"kind": "normal", "axes": "k"}})"}},
    {"dbias",
     {R"({"bias": {"kind": "normal"}, "backward": true})",
      R"({"bias": {"kind": "normal", "axes": "hqk"}, "backward": true})"}},
    {"alibi",
     {R"({"alibi": {"slopes": [1]}})",
      R"({"query_heads": 8, "key_heads": 8, "alibi": {"slopes": "standard"}})",
      R"({"query_heads": 8, "key_heads": 2, "alibi": {"slopes": "standard"}})"}},
    {"sink", {R"({"sink": true})"}},
    {"dlse", {R"({"backward": true, "d_lse": true})"}},
    {"dropout", {R"({"dropout": {"probability": 0.25}})"}},
    {"dropout-generated", {R"({"dropout": {"mode": "generated", "probability": 0.25}})"}},
    {"gqa", {R"({"query_heads": 4, "key_heads": 2})", R"({"query_heads": 8, "key_heads": 1})"}},
    {"value-dim",
     {R"({"value_dim": 32})", R"({"value_dim": 128})", R"({"head_dim": 192, "value_dim": 128})"}},
    {"long", {R"({"query_len": 1, "key_len": 16512})", R"({"query_len": 16512, "key_len": 1})"}},
    {"zero-sizes", {R"({"key_len": 0})", R"({"query_len": 0})", R"({"batch": 0})"}, true},
    {"strides", {R"({"layouts": "bshd gap=64"})", R"({"layouts": "bshd"})"}},
    {"transposed", {R"({"layouts": {"k": "bhds"}})"}},
    {"expanded", {R"({"batch": 2, "layouts": {"k": "bhsd expand=b"}})"}},
    {"stored-qkv",
     {R"({"stored": "qkv e4m3"})", R"({"stored": "qkv e5m2"})", R"({"stored": "qkv int8"})",
      R"({"stored": "qkv int8 c"})", R"({"stored": "qkv e4m3 c"})"},
     false,
     true},
    {"stored-qk",
     {R"({"stored": "qk e4m3"})", R"({"stored": "qk e5m2"})", R"({"stored": "qk int8"})",
      R"({"stored": "qk int8 c"})", R"({"stored": "qk e4m3 c"})"},
     false,
     true},
    {"stored-kv",
     {R"({"stored": "kv e4m3"})", R"({"stored": "kv e5m2"})", R"({"stored": "kv int8"})",
      R"({"stored": "kv int8 c"})", R"({"stored": "kv e4m3 c"})"},
     false,
     true},
    {"e4m3",
     {R"({"stored": "qkv e4m3"})", R"({"stored": "kv e4m3"})", R"({"stored": "qk e4m3"})"},
     false,
     true},
    {"e5m2",
     {R"({"stored": "qkv e5m2"})", R"({"stored": "kv e5m2"})", R"({"stored": "qk e5m2"})"},
     false,
     true},
    {"int8",
     {R"({"stored": "qkv int8"})", R"({"stored": "kv int8"})", R"({"stored": "qk int8"})"},
     false,
     true},
    {"mxfp8",
     {R"({"stored": "qkv e4m3 c"})", R"({"stored": "kv e4m3 c"})", R"({"stored": "qkv e5m2 c"})",
      R"({"stored": "qk e4m3 c"})"},
     false,
     true},
    {"bfp8",
     {R"({"stored": "qkv int8 c"})", R"({"stored": "kv int8 c"})", R"({"stored": "qk int8 c"})"},
     false,
     true},
    {"scales-of-heads",
     {R"({"query_heads": 2, "key_heads": 2, "stored": "qkv e4m3 h"})",
      R"({"query_heads": 2, "key_heads": 2, "stored": "kv e4m3 h"})",
      R"({"query_heads": 2, "key_heads": 2, "stored": "qkv e5m2 h"})",
      R"({"query_heads": 2, "key_heads": 2, "stored": "kv int8 h"})"},
     false,
     true},
    {"scales-of-positions",
     {R"({"stored": "qkv e4m3 s"})", R"({"stored": "kv e4m3 s"})", R"({"stored": "qkv e5m2 s"})",
      R"({"stored": "kv int8 s"})"},
     false,
     true},
};

// The case for a testee that looks at Q, K and V alone; nothing where there is no more to look at.
std::optional<Case> unheeded(Case it) {
  Problem& p = it.problem;
  const Problem whole = p;
  p.mask = Mask::full();
  p.bias_shape = p.slopes_shape = std::nullopt;
  p.softcap = 0;
  p.sink = p.d_lse = false;
  if (!p.packed && p.paging.page_size == 0) p.key_lens = p.query_lens = {};
  if (p == whole) return std::nullopt;
  return it;
}

Answer show(Bench& bench, DType dtype, const Showing& showing) {
  Answer answer = {.key = fmt::format("features.{}", showing.feature), .value = false};
  if (showing.of_declarers && !bench.testee().description.has(showing.feature)) {
    return untold(answer.key, "asked of whoever declares it alone");
  }
  bool shown = false;
  for (const char* text : showing.problems) {
    Case it;
    try {
      it = drawn_case(bench, dtype, parse_json(text));
    } catch (const InputError&) {
      continue;  // of no problem of this testee's sizes
    }
    // Elsewhere it is as plain as its layout is.
    const auto needed = features_of(it.problem);
    if (!contains(needed, showing.feature)) continue;
    Inputs inputs = generate(it);
    // Less would be lost in what the loosest arithmetic may round.
    for (double& slope : inputs.d_lse.data) slope *= 32;
    const Reaction reaction = bench.ask(it.problem, inputs);
    answer.inputs = to_string(it.problem);
    answer.words = reaction.refused;
    if (!exclusion(it.problem, bench.testee().description)) answer.against = "true";
    if (reaction.broke) return untaken(std::move(answer), reaction);
    shown = false;
    if (reaction.taken()) {
      // What LSE is of rows without keys is another question.
      const auto wrong = showing.all ? wrong_in(bench, TensorName::o, it, inputs, reaction)
                                     : wrong_of(bench, it, inputs, reaction);
      const auto blind = unheeded(it);
      const bool tells = !blind || wrong_of(bench, *blind, inputs, reaction);
      shown = !wrong && tells;
      answer.words =
          wrong   ? fmt::format("it is taken, and what comes back is something else: {}", *wrong)
          : tells ? "it is taken, and what comes back is right"
                  : "it is taken, and what comes back is that of the problem without it, too";
    }
    if (shown != showing.all) break;
  }
  answer.value = shown;
  if (shown) answer.against.clear();
  return answer;
}

}  // namespace

void ask_features(Bench& bench, Answers& answers) {
  const DType dtype = bench.telling_format();
  for (const Showing& showing : kShowings) {
    Answer answer = show(bench, dtype, showing);
    if (showing.feature == "backward") bench.has_backward = answer.value == true;
    answers.push_back(std::move(answer));
  }
}

}  // namespace attest
