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
#include "spec/feature.h"

namespace attest {
namespace {

using Sizes = std::vector<Index>;

Problem plain_problem(const Bench& bench, DType dtype, bool backward = false) {
  return bench.stage(dtype, 16, 16, 16, backward).problem;
}

// What of several problems was taken; and where it broke down, which tells of no limit.
class Takes {
 public:
  explicit Takes(Bench& bench) : bench_(bench) {}

  bool operator()(const Problem& problem) {
    if (defect_of(problem)) return false;
    const Reaction reaction = bench_.ask(problem, zero_inputs(problem));
    if (reaction.broke && broke.empty()) broke = reaction.refused;
    return reaction.taken();
  }

  // What is told of them, unless it broke down.
  Answer told(Answer answer) const {
    if (broke.empty()) return answer;
    answer.value = nullptr;
    answer.words += "; " + broke;
    return answer;
  }

  std::string broke = {};  // how, first; empty if it did not

 private:
  Bench& bench_;
};

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
  Takes takes(bench);
  Sizes taken, refused, against;
  for (const Index size : term.sizes) {
    Problem p = plain_problem(bench, dtype, backward);
    term.set(p, size, bench.plain(dtype));
    const bool is_taken = takes(p);
    (is_taken ? taken : refused).push_back(size);
    if (!is_taken && !defect_of(p) && !exclusion(p, bench.testee().description)) {
      against.push_back(size);
    }
  }
  Answer answer = {.key = fmt::format("limits.{}{}", backward ? "backward." : "", term.term),
                   .words = fmt::format("taken: {}", fmt::join(taken, ", ")),
                   .inputs = fmt::format("{}, and in its place {}",
                                         to_string(plain_problem(bench, dtype, backward)),
                                         fmt::join(term.sizes, ", "))};
  if (!against.empty()) answer.against = fmt::format("{} taken", fmt::join(against, ", "));
  if (!refused.empty()) answer.words += fmt::format("; not taken: {}", fmt::join(refused, ", "));
  const nlohmann::json limit = limit_of(taken, refused, term.listed);
  answer.value = taken.empty()     ? nlohmann::json("nothing that was tried")
                 : limit.is_null() ? nlohmann::json("none")
                                   : limit;
  return takes.told(std::move(answer));
}

void ask_shapes(Bench& bench, DType dtype, Answers& answers) {
  const Plain& plain = bench.plain(dtype);
  Problem more = plain_problem(bench, dtype), fewer = more;
  more.key_len = more.query_len + 2 * plain.key_step;
  fewer.query_len = fewer.key_len + 2 * plain.query_step;
  Takes takes(bench);
  const bool as_many = takes(plain_problem(bench, dtype));
  const bool more_keys = takes(more), fewer_keys = takes(fewer);
  const auto say = [&](const char* key, bool limit) {
    Answer answer = {
        .key = key,
        .value = limit,
        .words = fmt::format("more keys than queries are {}, fewer {}, as many {}",
                             more_keys ? "taken" : "refused", fewer_keys ? "taken" : "refused",
                             as_many ? "taken" : "refused"),
        .inputs = fmt::format("{} and {}", to_string(more), to_string(fewer))};
    // Whoever takes none of them has another reason.
    if (!as_many && !fewer_keys) answer.value = nullptr;
    answers.push_back(takes.told(std::move(answer)));
  };
  say("limits.square", !more_keys && !fewer_keys);
  say("limits.keys_at_least_queries", more_keys && !fewer_keys);
}

void ask_forms(Bench& bench, DType dtype, Answers& answers) {
  std::vector<std::string> orders, masks, axes, lengths;
  Takes of_orders(bench), of_masks(bench), of_axes(bench), of_lengths(bench);
  for (const char* order : {"bhsd", "bshd", "sbhd", "bhds"}) {
    Problem p = plain_problem(bench, dtype);
    for (const TensorName tensor : kLaidOut) {
      if (tensor != TensorName::bias) p.layouts[tensor] = Layout::parse(order);
    }
    p.batch = p.query_heads = p.key_heads = std::max<Index>(2, p.query_heads);
    if (of_orders(p)) orders.emplace_back(order);
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
  // Of masks that it does not look at, it says nothing that they are taken.
  const auto lacks = [&](const std::string& feature) {
    return told(answers, "features." + feature) == false;
  };
  std::size_t looked_at = 0;
  for (const auto& form : forms) {
    Problem p = plain_problem(bench, dtype);
    p.mask = form.second;
    const auto needed = features_of(p);
    if (std::any_of(needed.begin(), needed.end(), lacks)) continue;
    ++looked_at;
    if (of_masks(p)) masks.emplace_back(form.first);
  }
  for (const char* form : {"", "k", "qk", "hqk", "bk", "bhqk"}) {
    Problem p = plain_problem(bench, dtype);
    p.batch = 2;
    const std::string text = form;
    const auto size = [&](char axis, Index n) { return contains(text, axis) ? n : Index(1); };
    p.bias_shape = Shape{size('b', p.batch), size('h', p.query_heads), size('q', p.query_len),
                         size('k', p.key_len)};
    if (of_axes(p)) axes.push_back(text);
  }
  Problem with_keys = plain_problem(bench, dtype), with_queries = with_keys;
  with_keys.key_lens = std::vector<Index>{with_keys.key_len / 2};
  with_queries.query_lens = std::vector<Index>{with_queries.query_len / 2};
  if (of_lengths(with_keys)) lengths.emplace_back("key");
  if (of_lengths(with_queries)) lengths.emplace_back("query");
  const auto list = [&](const char* key, const std::vector<std::string>& taken, std::size_t all,
                        const Takes& takes) {
    Answer answer = {.key = fmt::format("limits.{}", key),
                     .words = fmt::format("taken: \"{}\"", fmt::join(taken, "\", \"")),
                     .inputs = to_string(plain_problem(bench, dtype))};
    answer.value = taken.size() == all ? nlohmann::json("none") : nlohmann::json(taken);
    answers.push_back(takes.told(std::move(answer)));
  };
  list("layouts", orders, 4, of_orders);
  list("masks", masks, looked_at, of_masks);
  const auto list_of = [&](const char* feature, const char* key,
                           const std::vector<std::string>& taken, std::size_t all,
                           const Takes& takes) {
    if (!lacks(feature)) return list(key, taken, all, takes);
    answers.push_back(
        means_nothing(fmt::format("limits.{}", key), fmt::format("it has no feature {}", feature)));
  };
  list_of("bias", "bias_axes", axes, 6, of_axes);
  list_of("lengths", "lengths", lengths, 2, of_lengths);
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
