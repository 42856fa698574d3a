// What it does not take of sizes, layouts and forms of masks: each is asked for beside what is
// plain, with zeros. What was tried is said; of what lies between nobody knows.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/probe/questions.h"
#include "spec/contains.h"
#include "spec/feature.h"

namespace attest {
namespace {

using Sizes = std::vector<Index>;

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
  bool any(const std::vector<Problem>& problems) {
    return std::any_of(problems.begin(), problems.end(),
                       [&](const Problem& p) { return broke.empty() && (*this)(p); });
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

// What is varied: a problem that is taken, of 16 rows and keys if it takes those.
Problem plain_problem(Bench& bench, DType dtype, bool backward = false) {
  Problem small = bench.stage(dtype, 16, 16, 16, backward).problem;
  Takes takes(bench);
  return takes(small) ? small : bench.stage(dtype, 3, 4, 64, backward).problem;
}

// ---- Sizes -------------------------------------------------------------------------------------

// The ways to ask for a size: it alone is another, or, for whoever refuses that, something beside
// it too. A size that is taken in any of them is no limit.
using Ways = std::vector<Problem>;

struct Tried {
  const char* term;
  const char* feature;  // without which it means nothing; empty if there is none
  Sizes sizes;
  bool listed;  // what lies between is as likely refused
  void (*add)(Ways& ways, Problem p, Index size, const Plain& plain);
};

// Keys that are no fewer than rows, and taken by whoever takes them in steps.
constexpr Index kWholeKeys = 128, kManyKeys = 1024;

// The other length is as it was, unless it has to be equal, or keys no fewer: such problems come
// first where it is known to need them, and last where not.
void add_lengths(Ways& ways, Problem p, const std::vector<Lengths>& apart,
                 const std::vector<Lengths>& fitted, const Plain& plain) {
  const bool any = plain.lengths == Plain::Lengths::any && !plain.is_square();
  for (const auto* lengths : {any ? &apart : &fitted, any ? &fitted : &apart}) {
    for (const Lengths& each : *lengths) {
      p.query_len = each.query;
      p.key_len = each.key;
      if (std::find(ways.begin(), ways.end(), p) == ways.end()) ways.push_back(p);
    }
  }
}

void add_query_len(Ways& ways, Problem p, Index n, const Plain& plain) {
  const Index step = plain.key_step, keys = (std::max(p.key_len, n) + step - 1) / step * step;
  const Lengths square = {.query = n, .key = n};
  if (plain.is_square()) return add_lengths(ways, p, {{n, p.key_len}}, {square}, plain);
  const Index whole = (n + kWholeKeys - 1) / kWholeKeys * kWholeKeys;
  add_lengths(ways, p, {{n, p.key_len}}, {{n, keys}, square, {n, whole}, {n, kManyKeys}}, plain);
}

void add_key_len(Ways& ways, Problem p, Index n, const Plain& plain) {
  const Index step = plain.query_step, rows = std::min(p.query_len, n) / step * step;
  const Lengths square = {.query = n, .key = n};
  if (plain.is_square()) return add_lengths(ways, p, {{p.query_len, n}}, {square}, plain);
  add_lengths(ways, p, {{p.query_len, n}}, {{rows > 0 ? rows : n, n}, square, {1, n}}, plain);
}

void add_batch(Ways& ways, Problem p, Index n, const Plain&) {
  p.batch = n;
  ways.push_back(p);
  p.query_heads *= 2, p.key_heads *= 2;
  ways.push_back(p);
}

void add_query_heads(Ways& ways, Problem p, Index n, const Plain& plain) {
  p.query_heads = n;
  for (const Index key_heads : {n * plain.key_heads / plain.query_heads, Index(1), n}) {
    p.key_heads = std::max<Index>(1, key_heads);
    ways.push_back(p);
  }
}

void add_group(Ways& ways, Problem p, Index n, const Plain&) {
  for (const Index key_heads : {1, 2}) {
    p.key_heads = key_heads, p.query_heads = key_heads * n;
    ways.push_back(p);
  }
}

void add_head_dim(Ways& ways, Problem p, Index n, const Plain&) {
  const Index value_dim = p.value_dim;
  p.head_dim = p.value_dim = n;
  ways.push_back(p);
  p.value_dim = value_dim;
  ways.push_back(p);
}

void add_page_size(Ways& ways, Problem p, Index n, const Plain&) {
  p.layouts.k = p.layouts.v = {};
  for (const Index keys : {p.key_len, std::max(p.key_len, n)}) {
    const Index pages = (keys + n - 1) / n;
    p.key_len = keys;
    p.key_lens = std::vector<Index>{keys};
    p.paging = {.page_size = n, .pages = pages, .table = {{}}};
    for (Index page = 0; page < pages; ++page) p.paging.table[0].push_back(page);
    ways.push_back(p);
  }
}

void add_mask_offset(Ways& ways, Problem p, Index n, const Plain&) {
  for (const Anchor anchor : {Anchor::top_left, Anchor::bottom_right}) {
    p.mask = Mask::causal(anchor, n);
    ways.push_back(p);
  }
}

const std::vector<Tried>& tried() {
  static const Sizes kLengths = {1,  2,   3,   7,   8,   16,  17,   31,  64,
                                 65, 100, 128, 129, 256, 512, 1000, 1024};
  static const std::vector<Tried> kTried = {
      {"batch", "", {1, 2, 3, 4, 8}, false, add_batch},
      {"query_heads", "", {1, 2, 3, 4, 6, 8, 16}, false, add_query_heads},
      {"group", "gqa", {1, 2, 3, 4, 8, 16}, true, add_group},
      {"head_dim",
       "",
       {1, 7, 8, 16, 24, 32, 40, 48, 64, 65, 72, 80, 96, 112, 128, 160, 192, 256, 512},
       true,
       add_head_dim},
      {"query_len", "", kLengths, false, add_query_len},
      {"key_len", "", kLengths, false, add_key_len},
      {"page_size", "paged", {1, 2, 8, 16, 32, 64, 128, 256}, true, add_page_size},
      {"mask_offset", "causal", {-3, -1, 0, 1, 5}, false, add_mask_offset},
  };
  return kTried;
}

// The sizes of a term that were tried, by what became of them.
class SizesOf {
 public:
  SizesOf(Bench& bench, const Tried& term, Problem base)
      : bench_(bench), term_(term), base_(std::move(base)), takes_(bench) {
    for (const Index size : term_.sizes) try_out(size);
    if (taken.size() < 2 || refused.empty()) return;
    // Where the range ends, to the multiple; and whether what lies between is taken, if it may not.
    for (Index size = below(); size != kNone; size = below()) try_out(size);
    for (Index size = above(); size != kNone; size = above()) try_out(size);
    if (!term_.listed || !is_range()) return;
    const Sizes known = taken;
    for (std::size_t n = 1; n < known.size(); ++n) {
      const Index gap = (known[n] - known[n - 1]) / multiple();
      if (gap > 1) try_out(known[n] - gap / 2 * multiple());
    }
  }

  // As a declaration says it: multiples within a range, or a list. Null: neither does.
  nlohmann::json limit() const {
    if (taken.empty()) return "nothing that was tried";
    if (refused.empty()) return "none";
    if (taken.size() < 2) return taken;
    if (!is_range()) return term_.listed ? nlohmann::json(taken) : nlohmann::json();
    nlohmann::json range = nlohmann::json::object();
    if (multiple() > 1) range["multiple"] = multiple();
    const Index least = taken.front(), most = taken.back();
    if (refused.front() < least && least != multiple()) range["min"] = least;
    if (refused.back() > most) range["max"] = most;
    return range;
  }

  Answer answer(const char* pass) const {
    Answer answer = {.key = fmt::format("limits.{}{}", pass, term_.term),
                     .value = limit(),
                     .words = fmt::format("taken: {}", fmt::join(taken, ", ")),
                     .inputs = fmt::format("{}, and in its place {}", to_string(base_),
                                           fmt::join(term_.sizes, ", "))};
    if (!against.empty()) answer.against = fmt::format("{} taken", fmt::join(against, ", "));
    if (!refused.empty()) answer.words += fmt::format("; not taken: {}", fmt::join(refused, ", "));
    if (!answer.told()) answer.words += ": which is no range";
    return takes_.told(std::move(answer));
  }

  Sizes taken = {}, refused = {}, against = {};  // in order

 private:
  static constexpr Index kNone = std::numeric_limits<Index>::min();

  void try_out(Index size) {
    Ways ways;
    term_.add(ways, base_, size, bench_.plain(base_.dtype));
    // Whoever shares out heads may want an even number of them.
    const bool is_batch = std::string_view(term_.term) == "batch";
    for (std::size_t n = is_batch ? 0 : ways.size(); n-- > 0;) {
      ways.push_back(ways[n]);
      ways.back().batch *= 2;
    }
    const bool is_taken = takes_.any(ways);
    insert(is_taken ? taken : refused, size);
    const bool asks = !defect_of(ways.front());
    if (!is_taken && asks && !exclusion(ways.front(), bench_.testee().description)) {
      insert(against, size);
    }
  }
  static void insert(Sizes& sizes, Index size) {
    sizes.insert(std::upper_bound(sizes.begin(), sizes.end(), size), size);
  }

  Index multiple() const {
    return std::accumulate(taken.begin(), taken.end(), Index(0),
                           [](Index a, Index b) { return std::gcd(a, b); });
  }
  bool is_range() const {
    return std::none_of(refused.begin(), refused.end(), [&](Index size) {
      return size >= taken.front() && size <= taken.back() && size % multiple() == 0;
    });
  }
  // A size halfway to the next that is refused; kNone if none lies between.
  Index below() const {
    const auto next = std::lower_bound(refused.begin(), refused.end(), taken.front());
    if (next == refused.begin()) return kNone;
    const Index between = (taken.front() - *std::prev(next) - 1) / multiple();
    return between > 0 ? taken.front() - (between + 1) / 2 * multiple() : kNone;
  }
  Index above() const {
    const auto next = std::upper_bound(refused.begin(), refused.end(), taken.back());
    if (next == refused.end()) return kNone;
    const Index between = (*next - taken.back() - 1) / multiple();
    return between > 0 ? taken.back() + (between + 1) / 2 * multiple() : kNone;
  }

  Bench& bench_;
  const Tried& term_;
  Problem base_;
  Takes takes_;
};

// ---- Shapes and forms --------------------------------------------------------------------------

// Whether it takes some pair of lengths each of which it takes; none if there is no such pair.
std::optional<bool> takes_pair(Takes& takes, Problem p, const std::vector<Lengths>& pairs) {
  constexpr std::size_t kMost = 8;
  for (std::size_t n = 0; n < std::min(kMost, pairs.size()); ++n) {
    p.query_len = pairs[n].query;
    p.key_len = pairs[n].key;
    if (takes(p)) return true;
  }
  return pairs.empty() ? std::nullopt : std::optional(false);
}

void ask_shapes(Bench& bench, const Problem& base, const Sizes& queries, const Sizes& keys,
                Answers& answers) {
  std::vector<Lengths> more, fewer, equal;
  for (const Index n : queries) {
    const auto next = std::upper_bound(keys.begin(), keys.end(), n);
    if (next != keys.end()) more.push_back({.query = n, .key = *next});
    if (contains(keys, n)) equal.push_back({.query = n, .key = n});
  }
  for (const Index n : keys) {
    const auto next = std::upper_bound(queries.begin(), queries.end(), n);
    if (next != queries.end()) fewer.push_back({.query = *next, .key = n});
  }
  Takes takes(bench);
  const auto more_keys = takes_pair(takes, base, more), fewer_keys = takes_pair(takes, base, fewer),
             as_many = takes_pair(takes, base, equal);
  const auto words = [](std::optional<bool> taken) {
    return !taken ? "not to be asked for" : *taken ? "taken" : "refused";
  };
  const auto say = [&](const char* key, const nlohmann::json& limit) {
    answers.push_back(takes.told(
        {.key = key,
         .value = limit,
         .words = fmt::format("more keys than queries are {}, fewer {}, as many {}",
                              words(more_keys), words(fewer_keys), words(as_many)),
         .inputs = fmt::format("{}, and lengths of which it takes each", to_string(base))}));
  };
  const bool told = more_keys && fewer_keys;
  // Whoever takes none of them has another reason.
  const auto limit_if = [&](bool is_seen, bool limit) {
    return is_seen ? nlohmann::json(limit) : nlohmann::json();
  };
  const bool apart = more_keys == true || fewer_keys == true;
  say("limits.square", limit_if(apart || (told && as_many == true), !apart));
  say("limits.keys_at_least_queries",
      limit_if(fewer_keys == true || (told && (as_many == true || *more_keys)),
               more_keys == true && fewer_keys != true));
}

void ask_forms(Bench& bench, const Problem& base, Answers& answers) {
  std::vector<std::string> orders, masks, axes, lengths;
  Takes of_orders(bench), of_masks(bench), of_axes(bench), of_lengths(bench);
  for (const char* order : {"bhsd", "bshd", "sbhd", "bhds"}) {
    Problem p = base;
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
    Problem p = base;
    p.mask = form.second;
    const auto needed = features_of(p);
    if (std::any_of(needed.begin(), needed.end(), lacks)) continue;
    ++looked_at;
    if (of_masks(p)) masks.emplace_back(form.first);
  }
  for (const char* form : {"", "k", "qk", "hqk", "bk", "bhqk"}) {
    Problem p = base;
    p.batch = 2;
    const std::string text = form;
    const auto size = [&](char axis, Index n) { return contains(text, axis) ? n : Index(1); };
    p.bias_shape = Shape{size('b', p.batch), size('h', p.query_heads), size('q', p.query_len),
                         size('k', p.key_len)};
    if (of_axes(p)) axes.push_back(text);
  }
  Problem with_keys = base, with_queries = with_keys;
  with_keys.key_lens = std::vector<Index>{with_keys.key_len / 2};
  with_queries.query_lens = std::vector<Index>{with_queries.query_len / 2};
  if (of_lengths(with_keys)) lengths.emplace_back("key");
  if (of_lengths(with_queries)) lengths.emplace_back("query");
  const auto list = [&](const char* key, const std::vector<std::string>& taken, std::size_t all,
                        const Takes& takes) {
    Answer answer = {.key = fmt::format("limits.{}", key),
                     .words = fmt::format("taken: \"{}\"", fmt::join(taken, "\", \"")),
                     .inputs = to_string(base)};
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
  const Problem base = plain_problem(bench, dtype);
  Sizes queries, keys;
  for (const Tried& term : tried()) {
    const std::string_view name = term.term, feature = term.feature;
    if (!feature.empty() && told(answers, fmt::format("features.{}", feature)) == false) {
      answers.push_back(means_nothing(fmt::format("limits.{}", name),
                                      fmt::format("it has no feature {}", feature)));
      continue;
    }
    const SizesOf sizes(bench, term, base);
    if (name == "query_len") queries = sizes.taken;
    if (name == "key_len") keys = sizes.taken;
    answers.push_back(sizes.answer(""));
  }
  for (const Tried& term : tried()) {
    const std::string_view name = term.term;
    const bool asks = name == "head_dim" || name == "query_len" || name == "key_len";
    if (!asks || !bench.has_backward) continue;
    answers.push_back(SizesOf(bench, term, plain_problem(bench, dtype, true)).answer("backward."));
  }
  ask_shapes(bench, base, queries, keys, answers);
  ask_forms(bench, base, answers);
}

}  // namespace attest
