#include "spec/possible_limits.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>

#include "spec/contains.h"
#include "spec/feature.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

// Terms that bind a problem together.
using Joint = std::vector<const Terms*>;

// How many sizes are tried, before some that lies far out is taken to be there.
constexpr int kTries = 1000;
constexpr Index kFarOut = Index(1) << 39;

// The smallest that all terms of all these sizes allow, from there on; none if there is none.
std::optional<Index> next_of(const Joint& joint, std::initializer_list<Size> sizes, Index from) {
  for (int tries = 0; tries < kTries; ++tries) {
    const Index before = from;
    for (const Terms* terms : joint) {
      for (const Size size : sizes) {
        const auto place = terms->sizes.find(size);
        if (place == terms->sizes.end()) continue;
        const auto found = place->second.at_least(from);
        if (!found) return std::nullopt;
        from = *found;
      }
    }
    if (from == before) return from;
  }
  return from;
}

bool allows(const Joint& joint, Size size, Index number) {
  return next_of(joint, {size}, number) == number;
}

bool any_of(const Joint& joint, bool Terms::*flag) {
  return std::any_of(joint.begin(), joint.end(), [&](const Terms* t) { return t->*flag; });
}

// "head_dim takes one of 64, and at least 128". The last terms, which follow from what is absent,
// are told only where they matter.
std::string words_of(const Joint& joint, std::initializer_list<Size> sizes) {
  std::string text;
  for (const Size size : sizes) {
    std::vector<std::string> sets;
    bool positive = false;  // whether those before take no 0
    for (const Terms* terms : joint) {
      const auto place = terms->sizes.find(size);
      if (place == terms->sizes.end()) continue;
      const bool follows = terms == joint.back() && size != Size::group && positive;
      if (!follows) sets.push_back(place->second.to_string());
      positive = positive || !place->second.has(0);
    }
    if (sets.empty()) continue;
    text += fmt::format("{}\"{}\" takes {}", text.empty() ? "" : ", ", name(size),
                        fmt::join(sets, ", and "));
  }
  return text;
}

// Some query heads that are some key heads' groups.
bool has_heads(const Joint& joint) {
  auto queries = next_of(joint, {Size::query_heads}, 1);
  for (int n = 0; queries && n < kTries; ++n) {
    auto keys = next_of(joint, {Size::key_heads}, 1);
    for (int m = 0; keys && *keys <= *queries; ++m) {
      if (m == kTries) return true;
      const bool divides = *queries % *keys == 0;
      if (divides && allows(joint, Size::group, *queries / *keys)) return true;
      keys = next_of(joint, {Size::key_heads}, *keys + 1);
    }
    queries = next_of(joint, {Size::query_heads}, *queries + 1);
  }
  return queries.has_value();
}

// Some Sq and Sk of an allowed product.
bool has_pairs(const Joint& joint) {
  auto queries = next_of(joint, {Size::query_len}, 1);
  for (int n = 0; queries && n < kTries; ++n) {
    auto keys = next_of(joint, {Size::key_len}, 1);
    for (int m = 0; keys && m < kTries; ++m) {
      const auto pairs = next_of(joint, {Size::pairs}, *queries * *keys);
      if (!pairs && m == 0) return false;  // more queries give more
      if (!pairs) break;                   // as do more keys
      if (*pairs == *queries * *keys) return true;
      keys = next_of(joint, {Size::key_len}, std::max(*keys + 1, *pairs / *queries));
    }
    queries = next_of(joint, {Size::query_len}, *queries + 1);
  }
  return queries.has_value();
}

// Some pair [D, Dv], where pairs are listed.
bool has_head_dims(const Joint& joint) {
  const auto lists = [](const Terms* terms) { return !terms->head_dims.empty(); };
  const auto first = std::find_if(joint.begin(), joint.end(), lists);
  if (first == joint.end()) return true;
  const auto& pairs = (*first)->head_dims;
  return std::any_of(pairs.begin(), pairs.end(), [&](const auto& pair) {
    const bool listed = std::all_of(joint.begin(), joint.end(), [&](const Terms* terms) {
      return !lists(terms) || contains(terms->head_dims, pair);
    });
    return listed && allows(joint, Size::head_dim, pair.first) &&
           allows(joint, Size::value_dim, pair.second);
  });
}

bool overlap(const MaskForm& one, const MaskForm& other) {
  const bool corners = !one.anchor || !other.anchor || *one.anchor == *other.anchor;
  return one.kind == other.kind && one.causal == other.causal && corners;
}

bool has_masks(const Joint& joint) {
  for (const Terms* one : joint) {
    for (const Terms* other : joint) {
      if (!one->masks || !other->masks) continue;
      const bool some = std::any_of(one->masks->begin(), one->masks->end(), [&](const auto& form) {
        return std::any_of(other->masks->begin(), other->masks->end(),
                           [&](const auto& each) { return overlap(form, each); });
      });
      if (!some) return false;
    }
  }
  return true;
}

// Throws if no problem that has an element meets these terms and what follows from features that
// are absent.
void check_joint(Joint joint, const std::string& pointer, std::span<const std::string> features) {
  const Terms implied = implied_by_absent(features);
  joint.push_back(&implied);
  const auto demand = [&](bool possible, const std::string& why) {
    if (!possible) throw InputError(pointer, "no problem can be asked that is not empty: " + why);
  };
  for (const Size size : kLimitedSizes) {
    if (size == Size::mask_offset) continue;  // no band has to be there
    demand(next_of(joint, {size}, 1).has_value(), words_of(joint, {size}));
  }
  const auto common = [&](Size one, Size other, const char* why) {
    demand(next_of(joint, {one, other}, 1).has_value(),
           fmt::format("{}, and {}", why, words_of(joint, {one, other})));
  };
  if (any_of(joint, &Terms::square)) common(Size::query_len, Size::key_len, "\"square\"");
  if (any_of(joint, &Terms::same_head_dims)) {
    common(Size::head_dim, Size::value_dim, "\"value-dim\" is not declared");
  }
  if (!contains(features, "gqa")) {
    common(Size::query_heads, Size::key_heads, "\"gqa\" is not declared");
  }
  demand(has_heads(joint), words_of(joint, {Size::query_heads, Size::key_heads, Size::group}));
  demand(has_head_dims(joint), "no pair of \"head_dim\" is taken by all terms that bind it");
  demand(has_masks(joint), "no form of a mask is taken by all \"masks\" that bind it");
  const auto queries = next_of(joint, {Size::query_len}, 1);
  demand(!any_of(joint, &Terms::keys_at_least_queries) ||
             next_of(joint, {Size::key_len}, *queries).has_value(),
         "\"keys_at_least_queries\", and " + words_of(joint, {Size::query_len, Size::key_len}));
  demand(has_pairs(joint), words_of(joint, {Size::query_len, Size::key_len, Size::pairs}));
}

// Whether a "never" speaks of sizes, formats, features and the pass alone. What takes more to tell
// counts as not met by some problem.
bool is_plain(const Terms& never) {
  return never.head_dims.empty() && !never.square && !never.keys_at_least_queries && !never.masks &&
         !never.lengths && !never.bias_axes && !never.layouts;
}

// The features by which these differ that a problem may need or not.
std::vector<std::string> features_in(std::span<const std::pair<Terms, std::string>> never,
                                     std::span<const std::string> declared) {
  std::vector<std::string> found;
  for (const auto& [terms, text] : never) {
    for (const auto& list : {terms.features, terms.lacks}) {
      if (!list) continue;
      for (const std::string& each : *list) {
        const Feature* feature = find_feature(each);
        const bool may_need =
            feature && (feature->in_problem || feature->in_mask || feature->in_layout);
        if (may_need && contains(declared, each) && !contains(found, each)) found.push_back(each);
      }
    }
  }
  return found;
}

bool speaks_of(const Terms& never, const std::vector<std::string>& needed) {
  const auto is_needed = [&](const std::string& each) { return contains(needed, each); };
  return (!never.features ||
          std::all_of(never.features->begin(), never.features->end(), is_needed)) &&
         (!never.lacks || std::none_of(never.lacks->begin(), never.lacks->end(), is_needed));
}

// Whether each number that the terms allow is in one of these sets.
bool cover(const Joint& joint, Size size, const std::vector<const SizeSet*>& sets) {
  if (size == Size::mask_offset || size == Size::page_size || size == Size::pairs) return false;
  const auto some = [&](const auto& test) { return std::any_of(sets.begin(), sets.end(), test); };
  auto number = next_of(joint, {size}, 0);
  for (int n = 0; number && n < kTries; ++n) {
    if (!some([&](const SizeSet* set) { return set->has(*number); })) return false;
    number = next_of(joint, {size}, *number + 1);
  }
  return !number || some([](const SizeSet* set) { return set->at_least(kFarOut).has_value(); });
}

// Whether each problem of that format and pass that the terms allow, and that needs these features
// and no other of those that are spoken of, meets one of these "never".
bool exclude_all(std::span<const std::pair<Terms, std::string>> never, const Joint& joint,
                 DType dtype, bool backward, const std::vector<std::string>& needed) {
  std::map<Size, std::vector<const SizeSet*>> alone;  // the sizes of which one speaks alone
  for (const auto& [terms, text] : never) {
    const bool speaks = is_plain(terms) && speaks_of(terms, needed) &&
                        terms.backward.value_or(backward) == backward &&
                        (!terms.dtypes || contains(*terms.dtypes, dtype));
    if (!speaks) continue;
    std::vector<std::pair<Size, const SizeSet*>> rest;  // what some problem does not meet
    for (const auto& [size, among] : terms.sizes) {
      if (!cover(joint, size, {&among})) rest.emplace_back(size, &among);
    }
    if (rest.empty()) return true;
    if (rest.size() == 1) alone[rest.front().first].push_back(rest.front().second);
  }
  return std::any_of(alone.begin(), alone.end(),
                     [&](const auto& each) { return cover(joint, each.first, each.second); });
}

// The same, whichever of the declared features it needs.
bool exclude_all(std::span<const std::pair<Terms, std::string>> never, const Joint& joint,
                 DType dtype, bool backward, std::span<const std::string> declared) {
  constexpr std::size_t kMost = 10;  // of more features it isn't told
  const std::vector<std::string> of = features_in(never, declared);
  if (of.size() > kMost) return false;
  for (std::size_t chosen = 0; chosen < std::size_t(1) << of.size(); ++chosen) {
    std::vector<std::string> needed;
    for (std::size_t i = 0; i < of.size(); ++i) {
      if (chosen >> i & 1) needed.push_back(of[i]);
    }
    if (!exclude_all(never, joint, dtype, backward, needed)) return false;
  }
  return true;
}

}  // namespace

void check_possible(const KernelLimits& limits, const std::string& pointer,
                    std::span<const DType> dtypes, std::span<const std::string> features) {
  const auto of_backward = [](const std::string& of) { return of + "/backward"; };
  Joint always;
  for (const Terms& terms : limits.always) always.push_back(&terms);
  check_joint(always, pointer, features);
  if (!limits.backward.empty()) {
    Joint both = always;
    for (const Terms& terms : limits.backward) both.push_back(&terms);
    check_joint(both, of_backward(pointer), features);
  }
  for (const auto& [dtype, terms] : limits.formats) {
    const std::string of_format = fmt::format("{}/dtypes/{}", pointer, name(dtype));
    check_joint(limits.binding(dtype, false), of_format, features);
    const auto own = limits.formats_backward.find(dtype);
    if (own == limits.formats_backward.end() || own->second.empty()) continue;
    check_joint(limits.binding(dtype, true), of_backward(of_format), features);
  }
  const Terms implied = implied_by_absent(features);
  const auto exclude_everything = [&](std::span<const std::pair<Terms, std::string>> never) {
    return std::all_of(dtypes.begin(), dtypes.end(), [&](DType dtype) {
      const auto in_pass = [&](bool backward) {
        Joint joint = limits.binding(dtype, backward);
        joint.push_back(&implied);
        return exclude_all(never, joint, dtype, backward, features);
      };
      return in_pass(false) && (!contains(features, "backward") || in_pass(true));
    });
  };
  for (std::size_t i = 0; i < limits.never.size(); ++i) {
    if (!exclude_everything({&limits.never[i], 1})) continue;
    throw InputError(fmt::format("{}/never/{}", pointer, i),
                     "every problem meets it, so nothing could be asked");
  }
  if (exclude_everything(limits.never)) {
    throw InputError(pointer + "/never",
                     "every problem meets one of them, so nothing could be asked");
  }
}

}  // namespace attest
