// The search for sizes that a kernel takes.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "cases/avoid.h"
#include "cases/carrier.h"
#include "cases/fit.h"
#include "spec/contains.h"
#include "spec/feature.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

// A fitted case costs no more than so many times its case, or one of so little work in each head
// that it costs what a call costs anyhow; what so many heads have of that, more share.
constexpr double kMostTimes = 8, kLittleWork = 64.0 * 64 * 64, kFewHeads = 256;

// How many sizes are looked at for one that suits another, and products beyond which none is.
constexpr int kMostSteps = 1000;
constexpr double kMostPairs = 0x1p62;

double or_one(Index size) { return static_cast<double>(std::max<Index>(size, 1)); }

class Fitter {
 public:
  Fitter(Problem base, const KernelLimits& limits, const std::vector<std::string>& features,
         double allowed_work)
      : base_(std::move(base)),
        implied_(implied_by_absent(features)),
        features_(features),
        never_(limits.never),
        allowed_work_(allowed_work) {
    terms_ = limits.binding(base_.dtype, base_.backward);
    terms_.push_back(&implied_);
  }

  // The fit, with sizes that nothing but "never" may object to; none if there are none, and then
  // `why` says which limit is in the way.
  std::optional<Fit> find(Fit fit, std::string& why) {
    const bool found = choose_heads(fit, why) && choose_one(Size::batch, base_.batch, fit, why) &&
                       (base_.paging.page_size == 0 ||
                        choose_one(Size::page_size, base_.paging.page_size, fit, why)) &&
                       choose_lengths_and_dims(fit, why);
    if (!found) return std::nullopt;
    choose_mask(fit);
    choose_order(fit);
    return fit;
  }

  // What of a problem that came of it lies beyond what features that are absent imply.
  std::string beyond_implied(const Problem& fitted) const { return beyond(implied_, fitted); }

  // None of those.
  void forbid(Size size, const SizeSet& sizes) { forbidden_[size].push_back(sizes); }

 private:
  using Candidates = std::vector<Index>;

  // No size becomes 0 that was not: an empty problem tries nothing of what the case is for.
  Index least(Size size) const {
    const std::vector<Index> sizes = sizes_of(size, base_);
    return !sizes.empty() && sizes.front() > 0 ? 1 : 0;
  }

  // The next allowed number in one direction, itself included.
  std::optional<Index> next(Size size, Index from, bool up) const {
    const Index least_allowed = least(size);
    for (int steps = 0; steps < 10'000; ++steps) {
      if (up) from = std::max(from, least_allowed);
      if (from < least_allowed) return std::nullopt;
      const Index before = from;
      for (const Terms* terms : terms_) {
        const auto place = terms->sizes.find(size);
        if (place == terms->sizes.end()) continue;
        const auto found = up ? place->second.at_least(from) : place->second.at_most(from);
        if (!found) return std::nullopt;
        from = *found;
      }
      if (forbidden(size, from)) from += up ? 1 : -1;
      if (from == before) return from;
    }
    return std::nullopt;
  }
  bool allowed(Size size, Index number) const {
    if (forbidden(size, number) || number < least(size)) return false;
    return std::all_of(terms_.begin(), terms_.end(), [&](const Terms* terms) {
      const auto place = terms->sizes.find(size);
      return place == terms->sizes.end() || place->second.has(number);
    });
  }
  bool forbidden(Size size, Index number) const {
    const auto place = forbidden_.find(size);
    return place != forbidden_.end() &&
           std::any_of(place->second.begin(), place->second.end(),
                       [&](const SizeSet& sizes) { return sizes.has(number); });
  }

  // At or above, else below.
  Candidates candidates(Size size, Index wanted) const {
    Candidates found;
    for (const bool up : {true, false}) {
      const auto number = next(size, wanted, up);
      if (number && (found.empty() || found.front() != *number)) found.push_back(*number);
    }
    return found;
  }

  // What a limit of `size` says of the number wanted.
  std::string words(Size size, Index wanted) const {
    for (const Terms* terms : terms_) {
      const auto place = terms->sizes.find(size);
      if (place == terms->sizes.end() || place->second.has(wanted)) continue;
      return fmt::format("{} {}: takes {}", name(size), wanted, place->second.to_string());
    }
    return fmt::format("{} {}", name(size), wanted);
  }

  static void set(Fit& fit, Size size, Index wanted, Index number) {
    if (number != wanted) fit.sizes[size] = number;
  }

  bool choose_one(Size size, Index wanted, Fit& fit, std::string& why) const {
    const Candidates found = candidates(size, wanted);
    why = words(size, wanted);
    if (found.empty()) return false;
    set(fit, size, wanted, found.front());
    return true;
  }

  // Query heads at or above those wanted first, for each the key heads likewise.
  bool choose_heads(Fit& fit, std::string& why) const {
    constexpr int kTries = 64;
    const auto key_heads_for = [&](Index heads) -> std::optional<Index> {
      std::optional<Index> found;
      for (Index keys = 0; keys <= heads; ++keys) {
        const bool divides = keys == 0 ? heads == 0 || base_.key_heads == 0 : heads % keys == 0;
        if (!divides || !allowed(Size::key_heads, keys)) continue;
        if (keys > 0 && !allowed(Size::group, heads / keys)) continue;
        found = keys;
        if (keys >= base_.key_heads) break;
      }
      return found;
    };
    for (const bool up : {true, false}) {
      auto heads = next(Size::query_heads, base_.query_heads, up);
      for (int n = 0; heads && n < kTries; ++n) {
        if (const auto keys = key_heads_for(*heads)) {
          set(fit, Size::query_heads, base_.query_heads, *heads);
          set(fit, Size::key_heads, base_.key_heads, *keys);
          return true;
        }
        if (!up && *heads == 0) break;
        heads = next(Size::query_heads, *heads + (up ? 1 : -1), up);
      }
    }
    why = fmt::format("query_heads {}, key_heads {}", base_.query_heads, base_.key_heads);
    for (const Terms* terms : terms_) {
      for (const Size size : {Size::query_heads, Size::key_heads, Size::group}) {
        if (const auto place = terms->sizes.find(size); place != terms->sizes.end()) {
          why += fmt::format("; {}: takes {}", name(size), place->second.to_string());
        }
      }
    }
    return false;
  }

  bool is(bool Terms::*flag) const {
    return std::any_of(terms_.begin(), terms_.end(), [&](const Terms* t) { return t->*flag; });
  }

  // [D, Dv], the likeliest first.
  std::vector<std::pair<Index, Index>> dims() const {
    std::vector<std::pair<Index, Index>> found;
    std::vector<std::pair<Index, Index>> listed;
    bool pairs = false;
    for (const Terms* terms : terms_) {
      if (terms->head_dims.empty()) continue;
      if (!pairs) listed = terms->head_dims;
      std::erase_if(listed, [&](const auto& pair) { return !contains(terms->head_dims, pair); });
      pairs = true;
    }
    const auto take = [&](Index d, Index dv) {
      const bool same = !is(&Terms::same_head_dims) || d == dv;
      if (same && allowed(Size::head_dim, d) && allowed(Size::value_dim, dv)) {
        found.emplace_back(d, dv);
      }
    };
    if (pairs) {
      // The smallest that have both at or above, else the largest.
      const auto above = [&](const auto& pair) {
        return pair.first >= base_.head_dim && pair.second >= base_.value_dim;
      };
      std::sort(listed.begin(), listed.end());
      for (const auto& pair : listed) {
        if (above(pair)) take(pair.first, pair.second);
      }
      std::reverse(listed.begin(), listed.end());
      for (const auto& pair : listed) {
        if (!above(pair)) take(pair.first, pair.second);
      }
      return found;
    }
    for (const Index d : candidates(Size::head_dim, base_.head_dim)) {
      if (is(&Terms::same_head_dims)) {
        take(d, d);
      } else {
        for (const Index dv : candidates(Size::value_dim, base_.value_dim)) take(d, dv);
      }
    }
    return found;
  }

  // [Sq, Sk] with a product of at most so much, the likeliest first.
  std::vector<std::pair<Index, Index>> lengths(double most) const {
    std::vector<std::pair<Index, Index>> found;
    const bool square = is(&Terms::square), more_keys = is(&Terms::keys_at_least_queries);
    const auto take = [&](std::optional<Index> queries, std::optional<Index> keys) {
      if (!queries || !keys || (more_keys && *keys < *queries)) return;
      if (or_one(*queries) * or_one(*keys) > std::min(most, kMostPairs)) return;
      if (!allowed(Size::pairs, *queries * *keys)) return;
      found.emplace_back(*queries, *keys);
    };
    const auto both = [&](Index from, bool up) {
      auto number = next(Size::query_len, from, up);
      for (int n = 0; number && !allowed(Size::key_len, *number); ++n) {
        if (n == 1000) return std::optional<Index>();
        number = next(Size::key_len, *number, up);
        if (number) number = next(Size::query_len, *number, up);
      }
      return number;
    };
    if (square) {
      const auto above = both(std::max(base_.query_len, base_.key_len), true);
      take(above, above);
      const auto below = both(static_cast<Index>(std::sqrt(std::min(most, kMostPairs))), false);
      take(below, below);
    } else {
      for (const Index queries : candidates(Size::query_len, base_.query_len)) {
        for (const Index keys : candidates(Size::key_len, base_.key_len)) {
          if (!more_keys || keys >= queries) {
            take(queries, keys);
            continue;
          }
          take(queries, next(Size::key_len, queries, true));
          take(next(Size::query_len, keys, false), keys);
        }
      }
    }
    // Of a case that is about its length alone no shorter form is one (spec/description.h).
    const bool is_too_long = std::max(base_.query_len, base_.key_len) > kLong;
    if (found.empty() && !is_too_long) look_for_pairs(square, take);
    return found;
  }

  // Lengths with a product that is taken: the queries wanted with fewer keys or more, the keys
  // wanted likewise, then fewer of both.
  template <class Take>
  void look_for_pairs(bool square, const Take& take) const {
    const bool limited = std::any_of(terms_.begin(), terms_.end(), [](const Terms* terms) {
      return terms->sizes.contains(Size::pairs);
    });
    if (!limited) return;
    const auto wanted = static_cast<double>(base_.query_len) * static_cast<double>(base_.key_len);
    const auto pairs = next(Size::pairs, static_cast<Index>(std::min(wanted, kMostPairs)), false);
    const auto root = static_cast<Index>(std::sqrt(pairs.value_or(0)));
    if (square) {
      auto both = std::optional(root);
      for (int n = 0; both && n < kMostSteps; ++n) {
        both = next(Size::query_len, *both, false);
        if (both) both = next(Size::key_len, *both, false);
        if (both && allowed(Size::query_len, *both)) take(both, both);
        if (both) --*both;
      }
      return;
    }
    for (const bool up : {true, false}) {
      for (const Index queries : candidates(Size::query_len, base_.query_len)) {
        take(queries, beside(queries, Size::key_len, base_.key_len, up));
      }
      for (const Index keys : candidates(Size::key_len, base_.key_len)) {
        take(beside(keys, Size::query_len, base_.query_len, up), keys);
      }
    }
    const auto fewer = next(Size::query_len, root, false);
    if (fewer.value_or(0) > 0) take(fewer, beside(*fewer, Size::key_len, *pairs / *fewer, false));
  }

  // The next number of queries or keys, in that direction, whose product with so many of the other
  // is taken.
  std::optional<Index> beside(Index other, Size size, Index from, bool up) const {
    for (int n = 0; n < kMostSteps; ++n) {
      const auto number = next(size, from, up);
      const bool fits = number && or_one(*number) * or_one(other) <= kMostPairs;
      if (!fits || allowed(Size::pairs, *number * other)) return fits ? number : std::nullopt;
      const auto pairs = next(Size::pairs, *number * other, up);
      if (!pairs || other == 0) return std::nullopt;
      from = up ? std::max(*number + 1, *pairs / other) : std::min(*number - 1, *pairs / other);
    }
    return std::nullopt;
  }

  // As they are fitted, of all batch elements.
  double heads_of(const Fit& fit) const {
    const auto fitted = [&](Size size, Index given) {
      const auto place = fit.sizes.find(size);
      return or_one(place == fit.sizes.end() ? given : place->second);
    };
    return fitted(Size::batch, base_.batch) * fitted(Size::query_heads, base_.query_heads);
  }

  bool choose_lengths_and_dims(Fit& fit, std::string& why) const {
    const double work = or_one(base_.query_len) * or_one(base_.key_len) *
                        or_one(std::max(base_.head_dim, base_.value_dim));
    const double heads = heads_of(fit);
    const double little = kLittleWork * std::min(1.0, kFewHeads / heads);
    const double most = std::max(kMostTimes * std::max(work, little), allowed_work_ / heads);
    for (const auto& [d, dv] : dims()) {
      const auto chosen = lengths(most / or_one(std::max(d, dv)));
      if (chosen.empty()) continue;
      const auto [queries, keys] = chosen.front();
      set(fit, Size::query_len, base_.query_len, queries);
      set(fit, Size::key_len, base_.key_len, keys);
      if (d != base_.head_dim || dv != base_.value_dim) {
        fit.sizes[Size::head_dim] = d;
        fit.sizes[Size::value_dim] = dv;
      }
      using enum Fit::Relation;
      if (base_.packed && is(&Terms::keys_at_least_queries)) fit.packed = keys_at_least_queries;
      if (base_.packed && is(&Terms::square)) fit.packed = square;
      return true;
    }
    why.clear();
    for (const Terms* terms : terms_) {
      const Terms sizes = {.sizes = terms->sizes,
                           .head_dims = terms->head_dims,
                           .same_head_dims = terms->same_head_dims,
                           .square = terms->square,
                           .keys_at_least_queries = terms->keys_at_least_queries};
      if (why.empty()) why = beyond(sizes, base_);
    }
    if (!dims().empty() && !lengths(std::numeric_limits<double>::infinity()).empty()) {
      why += ", and what it takes has more than 8 times the case's Sq Sk D";
    }
    return false;
  }

  // The other corner, where the one given is not taken; where all keys for all queries are not, the
  // causal mask: at the corner from which each query sees one, if there is a choice.
  void choose_mask(Fit& fit) const {
    if (takes(base_.mask)) return;
    const bool is_full = base_.mask.kind == Mask::Kind::full;
    if (is_full && !contains(features_, "causal")) return;
    std::array corners = {Anchor::top_left, Anchor::bottom_right};
    if (is_full && base_.query_len <= base_.key_len) std::swap(corners[0], corners[1]);
    for (const Anchor anchor : corners) {
      Mask other = is_full ? Mask::causal(anchor) : base_.mask;
      place_at(other, anchor);
      if (!takes(other)) continue;
      (is_full ? fit.causal : fit.anchor) = anchor;
      return;
    }
  }
  bool takes(const Mask& mask) const {
    Problem p = base_;
    p.mask = mask;
    const bool within = std::all_of(terms_.begin(), terms_.end(), [&](const Terms* terms) {
      return beyond(Terms{.masks = terms->masks}, p).empty();
    });
    return within && std::none_of(never_.begin(), never_.end(), [&](const auto& never) {
             const Terms& terms = never.first;
             return (terms.masks || terms.lacks) && terms.sizes.empty() &&
                    terms.head_dims.empty() && meets(terms, p);
           });
  }
  static void place_at(Mask& mask, Anchor anchor) {
    mask.anchor = anchor;
    for (Mask& part : mask.parts) place_at(part, anchor);
  }

  void choose_order(Fit& fit) const {
    const auto takes = [&](const Problem& p) {
      const auto needed = needed_by(p);
      const bool declared = std::all_of(needed.begin(), needed.end(), [&](const Feature* feature) {
        return !feature->in_layout || contains(features_, feature->name);
      });
      return declared && std::all_of(terms_.begin(), terms_.end(), [&](const Terms* terms) {
               return beyond(
                          Terms{.layouts = terms->layouts, .dense_layouts = terms->dense_layouts},
                          p)
                   .empty();
             });
    };
    if (takes(base_)) return;
    std::vector<std::string> orders = {"bhsd", "bshd", "sbhd"};
    for (const Terms* terms : terms_) {
      if (terms->layouts)
        orders.insert(orders.end(), terms->layouts->begin(), terms->layouts->end());
    }
    for (const std::string& order : orders) {
      Problem p = base_;
      for (const TensorName tensor : kLaidOut) p.layouts[tensor] = Layout::parse(order);
      if (!takes(p)) continue;
      fit.order = order;
      return;
    }
  }

  const Problem base_;
  const Terms implied_;
  const std::vector<std::string>& features_;
  const std::vector<std::pair<Terms, std::string>>& never_;
  std::vector<const Terms*> terms_;
  std::map<Size, std::vector<SizeSet>> forbidden_;
  double allowed_work_;
};

Fitted stopped(const std::string& why) { return {.why = why, .stopped_by = limit_named_by(why)}; }

// Of a case that was fitted: with its id, and without what it no longer tries. `limit` is what
// objects to the case as it is.
Fitted judged(const CaseWithEntry& base, const KernelLimits& limits, const std::string& limit,
              Fitter& fitter, const Fit& form, int tries) {
  std::string why;
  const auto fit = fitter.find(form, why);
  if (!fit) return stopped(why);
  const auto in_vain = [&](std::string_view what, std::string by) {
    return Fitted{.why = fmt::format("{}; with {}: {}", limit, fit->to_string(), what),
                  .stopped_by = std::move(by)};
  };
  std::optional<Case> asked;
  try {
    asked = fit->empty() ? base.test_case : with_fit(base, *fit);
  } catch (const InputError& error) {
    return in_vain(error.what(), "what it is about");
  }
  why = beyond(limits, asked->problem);
  // Fewer batch elements may be the empty ones among them.
  if (why.empty()) why = fitter.beyond_implied(asked->problem);
  if (why.empty()) {
    if (asked->clauses.empty()) {
      const std::string lost = lost_in(asked->problem, base.test_case);
      return in_vain("nothing is left of what it tries",
                     lost.empty() ? limit_named_by(limit) : lost);
    }
    return {.asked = std::move(asked)};
  }
  if (tries > 0) {
    for (const auto& [size, sets] : to_avoid(limits, asked->problem)) {
      Fitter other = fitter;
      for (const SizeSet& set : sets) other.forbid(size, set);
      Fitted found = judged(base, limits, limit, other, form, tries - 1);
      if (found.asked) return found;
    }
  }
  return fit->empty() ? stopped(limit) : in_vain(why, limit_named_by(why));
}

}  // namespace

Fitted fitted(const CaseWithEntry& base, const KernelLimits& limits,
              const std::vector<std::string>& declared, double allowed_work) {
  constexpr int kTries = 4;  // of sizes beside a "never"
  const Case& c = base.test_case;
  const auto excluded = excluded_in(c.problem.dtype, limits, declared);
  std::vector<std::string> features = declared;
  std::erase_if(features, [&](const std::string& each) { return excluded.contains(each); });
  auto [left_out, missing] = absent_in(c, features);
  if (!missing.empty()) {
    const std::string limit = excluded.contains(missing[0]) ? excluded.at(missing[0]) : "";
    std::erase_if(missing, [&](const std::string& each) { return excluded.contains(each); });
    if (missing.empty()) return stopped(limit);
    return {.why = fmt::format("needs {}", fmt::join(missing, ", ")), .missing = missing};
  }
  const Fit form = {.stored = stored_for(base, limits, features), .without = left_out};
  const Problem rest =
      without(form.stored ? with_fit(base, {.stored = form.stored}).problem : c.problem, left_out);
  std::string limit = beyond(implied_by_absent(features), rest);
  if (limit.empty()) limit = beyond(limits, form.stored ? c.problem : rest);
  for (const Feature* feature : needed_by(c.problem)) {
    const std::string each(feature->name);
    const bool absent = feature->key == kOfFeatures && !contains(features, each);
    if (!limit.empty() || !absent) continue;
    limit = excluded.contains(each) ? excluded.at(each) : fmt::format("{} is not declared", each);
  }
  if (limit.empty()) return {.asked = c};
  Fitter fitter(rest, limits, features, allowed_work);
  return judged(base, limits, limit, fitter, form, kTries);
}

}  // namespace attest
