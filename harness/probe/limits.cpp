// What it does not take of sizes, layouts and forms of masks: each is asked for beside what is
// plain, with zeros. What was tried is said; of what lies between nobody knows.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "harness/probe/questions.h"
#include "spec/contains.h"

namespace attest {
namespace {

using Sizes = std::vector<Index>;

Problem plain_problem(const Bench& bench, DType dtype, bool backward = false) {
  return bench.stage(dtype, 16, 16, 16, backward).problem;
}

bool takes(Bench& bench, const Problem& problem) {
  return !defect_of(problem) && bench.ask(problem, zero_inputs(problem)).taken();
}

// What of the sizes tried is taken, as a declaration says it: a list, or multiples within a range.
// Null: all of them.
nlohmann::json limit_of(const Sizes& taken, const Sizes& refused, bool listed) {
  if (refused.empty()) return nullptr;
  if (listed || taken.size() < 2) return taken;
  const Index multiple = std::accumulate(taken.begin(), taken.end(), Index(0),
                                         [](Index a, Index b) { return std::gcd(a, b); });
  const Index least = taken.front(), most = taken.back();
  const auto within = [&](Index size) {
    return size >= least && size <= most && size % multiple == 0;
  };
  if (std::any_of(refused.begin(), refused.end(), within)) return taken;
  nlohmann::json range = nlohmann::json::object();
  if (multiple > 1) range["multiple"] = multiple;
  if (refused.front() < least && least != multiple) range["min"] = least;
  if (refused.back() > most) range["max"] = most;
  return range;
}

struct Tried {
  const char* term;
  Sizes sizes;
  bool listed;  // what lies between is as likely refused
  void (*set)(Problem&, Index size, const Plain& plain);
};

const std::vector<Tried>& tried() {
  static const Sizes kLengths = {1,  2,   3,   7,   16,  17,  31,   64,
                                 65, 100, 128, 129, 256, 512, 1000, 1024};
  static const std::vector<Tried> kTried = {
      {"batch", {1, 2, 3, 8}, false, [](Problem& p, Index n, const Plain&) { p.batch = n; }},
      {"query_heads",
       {1, 2, 3, 6, 8, 16},
       false,
       [](Problem& p, Index n, const Plain& plain) {
         const Index group = plain.query_heads / plain.key_heads;
         p.query_heads = n;
         p.key_heads = std::max<Index>(1, n / group);
       }},
      {"group",
       {1, 2, 3, 4, 8, 16},
       true,
       [](Problem& p, Index n, const Plain&) { p.key_heads = 1, p.query_heads = n; }},
      {"head_dim",
       {1, 7, 8, 16, 24, 32, 40, 48, 64, 65, 72, 80, 96, 112, 128, 160, 192, 256, 512},
       true,
       [](Problem& p, Index n, const Plain&) { p.head_dim = p.value_dim = n; }},
      {"query_len", kLengths, false,
       [](Problem& p, Index n, const Plain& plain) {
         p.query_len = n;
         p.key_len = plain.is_square() ? n : std::max(p.key_len, n);
       }},
      {"key_len", kLengths, false,
       [](Problem& p, Index n, const Plain& plain) {
         p.key_len = n;
         p.query_len = plain.is_square() ? n : std::min(p.query_len, n);
       }},
      {"page_size",
       {1, 2, 8, 16, 64, 128, 256},
       true,
       [](Problem& p, Index n, const Plain&) {
         const Index pages = (p.key_len + n - 1) / n;
         p.key_lens = std::vector<Index>{p.key_len};
         p.paging = {.page_size = n, .pages = pages, .table = {{}}};
         for (Index page = 0; page < pages; ++page) p.paging.table[0].push_back(page);
         p.layouts.k = p.layouts.v = {};
       }},
      {"mask_offset",
       {-3, -1, 0, 1, 5},
       false,
       [](Problem& p, Index n, const Plain&) { p.mask = Mask::causal(Anchor::top_left, n); }},
  };
  return kTried;
}

Answer sizes_taken(Bench& bench, DType dtype, const Tried& term, bool backward) {
  Sizes taken, refused, broken;
  for (const Index size : term.sizes) {
    Problem p = plain_problem(bench, dtype, backward);
    term.set(p, size, bench.plain(dtype));
    const bool is_taken = takes(bench, p);
    (is_taken ? taken : refused).push_back(size);
    if (!is_taken && !defect_of(p) && !exclusion(p, bench.testee().description)) {
      broken.push_back(size);
    }
  }
  Answer answer = {.key = fmt::format("limits.{}{}", backward ? "backward." : "", term.term),
                   .words = fmt::format("taken: {}", fmt::join(taken, ", ")),
                   .inputs = fmt::format("{}, and in its place {}",
                                         to_string(plain_problem(bench, dtype, backward)),
                                         fmt::join(term.sizes, ", "))};
  if (!broken.empty()) answer.against = fmt::format("{} taken", fmt::join(broken, ", "));
  if (!refused.empty()) answer.words += fmt::format("; refused: {}", fmt::join(refused, ", "));
  const nlohmann::json limit = limit_of(taken, refused, term.listed);
  answer.value = taken.empty()     ? nlohmann::json("nothing that was tried")
                 : limit.is_null() ? nlohmann::json("none")
                                   : limit;
  return answer;
}

Answer said(const std::string& key, bool limit, const std::string& words,
            const std::string& inputs) {
  return {.key = key, .value = limit, .words = words, .inputs = inputs};
}

void ask_shapes(Bench& bench, DType dtype, Answers& answers) {
  const Plain& plain = bench.plain(dtype);
  Problem more = plain_problem(bench, dtype), fewer = more;
  more.key_len = more.query_len + 2 * plain.key_step;
  fewer.query_len = fewer.key_len + 2 * plain.query_step;
  const bool more_keys = takes(bench, more), fewer_keys = takes(bench, fewer);
  const std::string inputs = fmt::format("{} and {}", to_string(more), to_string(fewer));
  const std::string words =
      fmt::format("more keys than queries are {}, fewer {}", more_keys ? "taken" : "refused",
                  fewer_keys ? "taken" : "refused");
  answers.push_back(said("limits.square", !more_keys && !fewer_keys, words, inputs));
  answers.push_back(said("limits.keys_at_least_queries", more_keys && !fewer_keys, words, inputs));
}

void ask_forms(Bench& bench, DType dtype, Answers& answers) {
  std::vector<std::string> orders, masks, axes, lengths;
  for (const char* order : {"bhsd", "bshd", "sbhd", "bhds"}) {
    Problem p = plain_problem(bench, dtype);
    for (const TensorName tensor : kLaidOut) {
      if (tensor != TensorName::bias) p.layouts[tensor] = Layout::parse(order);
    }
    p.batch = p.query_heads = p.key_heads = std::max<Index>(2, p.query_heads);
    if (takes(bench, p)) orders.emplace_back(order);
  }
  const std::pair<const char*, Mask> forms[] = {
      {"full", Mask::full()},
      {"causal top_left", Mask::causal(Anchor::top_left)},
      {"causal bottom_right", Mask::causal(Anchor::bottom_right)},
      {"window top_left", Mask::window(4, 4, Anchor::top_left)},
      {"window bottom_right", Mask::window(4, 4, Anchor::bottom_right)},
      {"window causal top_left", Mask::window(4, 0, Anchor::top_left)},
      {"window causal bottom_right", Mask::window(4, 0, Anchor::bottom_right)},
      {"dilated top_left", Mask::dilated(2, Anchor::top_left)},
      {"dilated bottom_right", Mask::dilated(2, Anchor::bottom_right)},
      {"prefix", Mask::prefix({8})}};
  std::vector<std::string> refused_masks;
  for (const auto& form : forms) {
    Problem p = plain_problem(bench, dtype);
    p.mask = form.second;
    (takes(bench, p) ? masks : refused_masks).emplace_back(form.first);
  }
  for (const char* form : {"", "k", "qk", "hqk", "bk", "bhqk"}) {
    Problem p = plain_problem(bench, dtype);
    p.batch = 2;
    const std::string text = form;
    const auto size = [&](char axis, Index n) { return contains(text, axis) ? n : Index(1); };
    p.bias_shape = Shape{size('b', p.batch), size('h', p.query_heads), size('q', p.query_len),
                         size('k', p.key_len)};
    if (takes(bench, p)) axes.push_back(text);
  }
  Problem with_keys = plain_problem(bench, dtype), with_queries = with_keys;
  with_keys.key_lens = std::vector<Index>{with_keys.key_len / 2};
  with_queries.query_lens = std::vector<Index>{with_queries.query_len / 2};
  if (takes(bench, with_keys)) lengths.emplace_back("key");
  if (takes(bench, with_queries)) lengths.emplace_back("query");
  const auto list = [&](const char* key, const std::vector<std::string>& taken, std::size_t all) {
    Answer answer = {.key = fmt::format("limits.{}", key),
                     .words = fmt::format("taken: \"{}\"", fmt::join(taken, "\", \"")),
                     .inputs = to_string(plain_problem(bench, dtype))};
    answer.value = taken.size() == all ? nlohmann::json("none") : nlohmann::json(taken);
    answers.push_back(std::move(answer));
  };
  list("layouts", orders, 4);
  list("masks", masks, std::size(forms));
  list("bias_axes", axes, 6);
  list("lengths", lengths, 2);
}

}  // namespace

void ask_limits(Bench& bench, Answers& answers) {
  const DType dtype = bench.telling_format();
  for (const Tried& term : tried()) answers.push_back(sizes_taken(bench, dtype, term, false));
  for (const Tried& term : tried()) {
    const std::string_view name = term.term;
    const bool asks = name == "head_dim" || name == "query_len" || name == "key_len";
    if (asks && bench.has_backward) answers.push_back(sizes_taken(bench, dtype, term, true));
  }
  ask_shapes(bench, dtype, answers);
  ask_forms(bench, dtype, answers);
}

}  // namespace attest
