#include "cases/fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "spec/feature.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

using nlohmann::json;

constexpr std::string_view kMark = "/fit=";

// In the order in which an id has them, with their names there.
constexpr std::array<std::pair<Size, std::string_view>, 8> kShort = {{
    {Size::batch, "b"},
    {Size::query_heads, "h"},
    {Size::key_heads, "kv"},
    {Size::query_len, "sq"},
    {Size::key_len, "sk"},
    {Size::head_dim, "d"},
    {Size::value_dim, "dv"},
    {Size::page_size, "page"},
}};

// ---- What an entry becomes ----------------------------------------------------------------------

// As many as there are batch elements, again from the first where there are too few.
void set_count(json& list, Index count) {
  const json given = list;
  if (given.empty()) return;
  list = json::array();
  for (Index n = 0; n < count; ++n) {
    list.push_back(given[static_cast<std::size_t>(n) % given.size()]);
  }
}

void cut(json& list, Index most) {
  for (json& each : list) each = std::min(each.get<Index>(), most);
}

// None longer than that, and the longest as long.
void set_longest(json& list, Index longest) {
  cut(list, longest);
  const auto place = std::max_element(list.begin(), list.end(), [](const json& a, const json& b) {
    return a.get<Index>() < b.get<Index>();
  });
  if (place != list.end()) *place = longest;
}

// Prefixes within the keys, and as many of them as there are batch elements; bands at that corner.
void adapt_mask(json& mask, const Problem& sizes, std::optional<Anchor> anchor) {
  if (mask.is_string()) {
    auto text = mask.get<std::string>();
    if (text.starts_with("prefix ")) {
      Index length = 0;
      std::from_chars(text.data() + 7, text.data() + text.size(), length);
      mask = fmt::format("prefix {}", std::min(length, sizes.key_len));
    } else if (anchor && text != "full") {
      for (const std::string_view corner : {" top_left", " bottom_right"}) {
        if (const auto place = text.find(corner); place != text.npos) {
          text.erase(place, corner.size());
        }
      }
      mask = text + (*anchor == Anchor::top_left ? " top_left" : " bottom_right");
    }
  } else if (mask.is_object()) {
    for (auto& [key, value] : mask.items()) {
      if (key == "prefix") {
        if (value.size() > 1) set_count(value, sizes.batch);
        cut(value, sizes.key_len);
      } else if (key == "all_of" || key == "any_of") {
        for (json& part : value) adapt_mask(part, sizes, anchor);
      }
    }
  }
}

// The lengths of an entry, given or not, within the new sizes.
void adapt_lengths(json& fields, const Problem& base, const Fit& fit) {
  for (const auto& [list, field, size] : {std::tuple{"query_lens", "query_len", Size::query_len},
                                          {"key_lens", "key_len", Size::key_len}}) {
    const auto wanted = fit.sizes.find(size);
    const bool follow = base.packed || (size == Size::key_len && base.paging.page_size > 0);
    if (fields.contains(list)) {
      json& lens = fields[list];
      if (fit.sizes.contains(Size::batch)) set_count(lens, fit.sizes.at(Size::batch));
      if (wanted != fit.sizes.end()) {
        follow ? set_longest(lens, wanted->second) : cut(lens, wanted->second);
      }
    }
    if (wanted == fit.sizes.end()) continue;
    if (follow) {
      fields.erase(field);
    } else {
      fields[field] = wanted->second;
    }
  }
  if (!base.packed || fit.packed == Fit::Relation::as_given) return;
  json& keys = fields.at("key_lens");
  const json& queries = fields.at("query_lens");
  for (std::size_t b = 0; b < keys.size() && b < queries.size(); ++b) {
    const Index query = queries[b].get<Index>(), key = keys[b].get<Index>();
    keys[b] = fit.packed == Fit::Relation::square ? query : std::max(query, key);
  }
  fields.erase("key_len");
}

json adapted(json entry, const Problem& base, const Fit& fit) {
  json& fields = entry.at("problem");
  for (const auto& [size, number] : fit.sizes) {
    if (size == Size::page_size) {
      fields.at("paging")["page_size"] = number;
    } else if (size != Size::query_len && size != Size::key_len) {
      fields[std::string(name(size))] = number;
    }
  }
  const bool channels = fit.sizes.contains(Size::head_dim) || fit.sizes.contains(Size::value_dim);
  if (channels && !fit.sizes.contains(Size::value_dim)) fields["value_dim"] = base.value_dim;
  adapt_lengths(fields, base, fit);
  Problem sizes = base;
  for (const auto& [size, into] :
       {std::pair{Size::batch, &sizes.batch}, {Size::key_len, &sizes.key_len}}) {
    if (fit.sizes.contains(size)) *into = fit.sizes.at(size);
  }
  if (fields.contains("mask")) adapt_mask(fields["mask"], sizes, fit.anchor);
  const bool heads = fit.sizes.contains(Size::query_heads) || fit.sizes.contains(Size::batch);
  if (heads && fields.contains("alibi")) fields["alibi"]["slopes"] = "standard";
  if (fit.order) {
    fields.erase("layouts");
    if (*fit.order != "bhsd") fields["layouts"] = *fit.order;
  }
  return entry;
}

// ---- What carries a clause ----------------------------------------------------------------------

bool sees_nothing_somewhere(const Problem& p) {
  for (Index b = 0; b < p.batch; ++b) {
    for (Index h = 0; h < p.query_heads; ++h) {
      for (Index i = 0; i < p.lengths(b).query; ++i) {
        Index j = 0;
        while (j < p.key_len && !visible(p, {.batch = b, .head = h, .query = i, .key = j})) ++j;
        if (j == p.key_len) return true;
      }
    }
  }
  return false;
}

int order_of_lengths(const Problem& p) {
  return (p.query_len > p.key_len) - (p.query_len < p.key_len);
}

std::vector<Anchor> anchors_of(const Mask& mask) {
  std::vector<Anchor> found;
  if (mask.kind == Mask::Kind::band || mask.kind == Mask::Kind::dilated) {
    found.push_back(mask.anchor);
  }
  for (const Mask& part : mask.parts) {
    const auto below = anchors_of(part);
    found.insert(found.end(), below.begin(), below.end());
  }
  return found;
}

bool has_zero(const Problem& p) {
  const Index sizes[] = {p.batch,   p.query_heads, p.key_heads, p.query_len,
                         p.key_len, p.head_dim,    p.value_dim};
  return std::count(std::begin(sizes), std::end(sizes), 0) > 0;
}

// Whether what the clause speaks of is there in the fitted problem, if it was in the case's.
struct Carrier {
  std::string_view clause;  // or the beginning of several, with - at its end
  bool (*carries)(const Problem& base, const Problem& fitted);
};

bool keeps_groups(const Problem& base, const Problem& fitted) {
  return base.key_heads == base.query_heads || fitted.key_heads != fitted.query_heads;
}
bool keeps_dims(const Problem& base, const Problem& fitted) {
  return base.head_dim == base.value_dim || fitted.head_dim != fitted.value_dim;
}
bool keeps_zeros(const Problem& base, const Problem& fitted) {
  return !has_zero(base) || has_zero(fitted);
}
bool keeps_corner(const Problem& base, const Problem& fitted) {
  return order_of_lengths(base) == order_of_lengths(fitted) &&
         anchors_of(base.mask) == anchors_of(fitted.mask);
}
bool keeps_layouts(const Problem& base, const Problem& fitted) {
  return std::all_of(kLaidOut.begin(), kLaidOut.end(), [&](TensorName tensor) {
    return base.layouts[tensor] == fitted.layouts[tensor];
  });
}
bool keeps_batch(const Problem& base, const Problem& fitted) {
  return base.batch <= 1 || fitted.batch > 1;
}
bool keeps_pages(const Problem& base, const Problem& fitted) {
  const auto several = [](const Problem& p) { return p.key_len > p.paging.page_size; };
  return !several(base) || several(fitted);
}
bool keeps_empty_rows(const Problem& base, const Problem& fitted) {
  return !sees_nothing_somewhere(base) || sees_nothing_somewhere(fitted);
}

constexpr Carrier kCarriers[] = {
    {"HEAD-", keeps_groups},     {"LAW-9", keeps_groups},      {"SHAPE-1", keeps_dims},
    {"SHAPE-2", keeps_zeros},    {"MASK-2", keeps_corner},     {"MASK-3", keeps_corner},
    {"LAYOUT-1", keeps_layouts}, {"LAYOUT-2", keeps_layouts},  {"LAYOUT-3", keeps_layouts},
    {"LAYOUT-4", keeps_layouts}, {"LAYOUT-5", keeps_batch},    {"DET-2", keeps_batch},
    {"PAGE-1", keeps_pages},     {"EMPTY-", keeps_empty_rows},
};

void strike(Case& fitted, const Problem& base) {
  std::erase_if(fitted.clauses, [&](const std::string& clause) {
    return std::any_of(std::begin(kCarriers), std::end(kCarriers), [&](const Carrier& carrier) {
      const bool speaks = carrier.clause.ends_with('-') ? clause.starts_with(carrier.clause)
                                                        : clause == carrier.clause;
      return speaks && !carrier.carries(base, fitted.problem);
    });
  });
}

// ---- The search for sizes -----------------------------------------------------------------------

constexpr double kMostTimes = 8;

double or_one(Index size) { return static_cast<double>(std::max<Index>(size, 1)); }

class Fitter {
 public:
  Fitter(const Problem& base, const KernelLimits& limits, const std::vector<std::string>& features)
      : base_(base), implied_(implied_by_absent(features)), features_(features) {
    terms_ = limits.binding(base.dtype, base.backward);
    terms_.push_back(&implied_);
  }

  // Sizes that nothing but "never" may object to; none if there are none, and then `why` says which
  // limit is in the way.
  std::optional<Fit> find(std::string& why) {
    Fit fit;
    const bool found = choose_heads(fit, why) && choose_one(Size::batch, base_.batch, fit, why) &&
                       (base_.paging.page_size == 0 ||
                        choose_one(Size::page_size, base_.paging.page_size, fit, why)) &&
                       choose_lengths_and_dims(fit, why);
    if (!found) return std::nullopt;
    choose_anchor(fit);
    choose_order(fit);
    return fit;
  }

  // Not that one again.
  void forbid(Size size, Index number) { forbidden_[size].push_back(number); }

 private:
  using Candidates = std::vector<Index>;

  // The next allowed number in one direction, itself included.
  std::optional<Index> next(Size size, Index from, bool up) const {
    for (int steps = 0; steps < 1000; ++steps) {
      const Index before = from;
      for (const Terms* terms : terms_) {
        const auto place = terms->sizes.find(size);
        if (place == terms->sizes.end()) continue;
        const auto found = up ? place->second.at_least(from) : place->second.at_most(from);
        if (!found) return std::nullopt;
        from = *found;
      }
      const auto place = forbidden_.find(size);
      if (place != forbidden_.end() &&
          std::find(place->second.begin(), place->second.end(), from) != place->second.end()) {
        from += up ? 1 : -1;
      }
      if (from < 0) return std::nullopt;
      if (from == before) return from;
    }
    return std::nullopt;
  }
  bool allowed(Size size, Index number) const { return next(size, number, true) == number; }

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
        if (!allowed(Size::key_heads, keys)) continue;
        const bool divides = keys == 0 ? heads == 0 || base_.key_heads == 0 : heads % keys == 0;
        if (!divides || (keys > 0 && !allowed(Size::group, heads / keys))) continue;
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
    why = fmt::format("{} query heads of {} key heads", base_.query_heads, base_.key_heads);
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
      std::erase_if(listed, [&](const auto& pair) {
        return std::find(terms->head_dims.begin(), terms->head_dims.end(), pair) ==
               terms->head_dims.end();
      });
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
    const auto take = [&](std::optional<Index> queries, std::optional<Index> keys) {
      if (!queries || !keys || or_one(*queries) * or_one(*keys) > most) return;
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
    const bool square = is(&Terms::square), more_keys = is(&Terms::keys_at_least_queries);
    if (square) {
      const auto above = both(std::max(base_.query_len, base_.key_len), true);
      take(above, above);
      const auto below = both(static_cast<Index>(std::sqrt(most)), false);
      take(below, below);
      return found;
    }
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
    return found;
  }

  bool choose_lengths_and_dims(Fit& fit, std::string& why) const {
    const double most = kMostTimes * or_one(base_.query_len) * or_one(base_.key_len) *
                        or_one(std::max(base_.head_dim, base_.value_dim));
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
      if (base_.packed && is(&Terms::square)) fit.packed = Fit::Relation::square;
      if (base_.packed && !is(&Terms::square) && is(&Terms::keys_at_least_queries)) {
        fit.packed = Fit::Relation::keys_at_least_queries;
      }
      return true;
    }
    why.clear();
    for (const Terms* terms : terms_) {
      Terms sizes = *terms;
      sizes.masks.reset();
      sizes.layouts.reset();
      sizes.features.reset();
      sizes.lengths.reset();
      sizes.bias_axes.reset();
      sizes.dense_layouts = false;
      if (why.empty()) why = beyond(sizes, base_);
    }
    why += ", and what it takes has more than 8 times the case's Sq Sk D";
    return false;
  }

  // The other corner, where the one given is not taken.
  void choose_anchor(Fit& fit) const {
    const auto anchors = anchors_of(base_.mask);
    if (anchors.empty()) return;
    const auto takes = [&](const Mask& mask) {
      Problem p = base_;
      p.mask = mask;
      return std::all_of(terms_.begin(), terms_.end(), [&](const Terms* terms) {
        return beyond(Terms{.masks = terms->masks}, p).empty();
      });
    };
    if (takes(base_.mask)) return;
    for (const Anchor anchor : {Anchor::top_left, Anchor::bottom_right}) {
      Mask other = base_.mask;
      place_at(other, anchor);
      if (!takes(other)) continue;
      fit.anchor = anchor;
      return;
    }
  }
  static void place_at(Mask& mask, Anchor anchor) {
    mask.anchor = anchor;
    for (Mask& part : mask.parts) place_at(part, anchor);
  }

  void choose_order(Fit& fit) const {
    const auto takes = [&](const Problem& p) {
      return std::all_of(terms_.begin(), terms_.end(), [&](const Terms* terms) {
        return beyond(Terms{.layouts = terms->layouts, .dense_layouts = terms->dense_layouts}, p)
            .empty();
      });
    };
    const auto needed = needed_by(base_);
    const bool declared = std::all_of(needed.begin(), needed.end(), [&](const Feature* feature) {
      return !feature->in_layout ||
             std::find(features_.begin(), features_.end(), feature->name) != features_.end();
    });
    if (declared && takes(base_)) return;
    for (const char* order : {"bhsd", "bshd", "sbhd"}) {
      Problem p = base_;
      for (const TensorName tensor : kLaidOut) p.layouts[tensor] = Layout::parse(order);
      if (!takes(p)) continue;
      fit.order = order;
      return;
    }
  }

  const Problem& base_;
  const Terms implied_;
  const std::vector<std::string>& features_;
  std::vector<const Terms*> terms_;
  std::map<Size, Candidates> forbidden_;
};

// Sizes of a "never" that the problem meets: those to avoid.
std::vector<Size> sizes_to_avoid(const KernelLimits& limits, const Problem& problem) {
  std::vector<Size> sizes;
  for (const auto& [terms, text] : limits.never) {
    if (!meets(terms, problem)) continue;
    for (const auto& [size, among] : terms.sizes) {
      if (size != Size::mask_offset && size != Size::group) sizes.push_back(size);
    }
    if (!terms.head_dims.empty()) sizes.push_back(Size::head_dim);
  }
  return sizes;
}

bool has(const std::vector<std::string>& features, std::string_view feature) {
  return std::find(features.begin(), features.end(), feature) != features.end();
}

// Of a case that was fitted: with its id, and without what it no longer tries.
Fitted judged(const CaseWithEntry& base, const KernelLimits& limits, Fitter& fitter, int tries) {
  std::string why;
  const auto fit = fitter.find(why);
  if (!fit) return {.why = why};
  std::optional<Case> asked;
  if (fit->empty()) {
    asked = base.test_case;
  } else {
    try {
      asked = with_fit(base, *fit);
    } catch (const InputError& error) {
      return {.why = fmt::format("fit={}: {}", fit->to_string(), error.what())};
    }
  }
  why = beyond(limits, asked->problem);
  if (why.empty()) {
    if (asked->clauses.empty()) {
      return {.why = fmt::format("fit={}: nothing is left of what it tries", fit->to_string())};
    }
    return {.asked = std::move(asked)};
  }
  for (const Size size : sizes_to_avoid(limits, asked->problem)) {
    if (tries == 0) break;
    Fitter other = fitter;
    other.forbid(size, sizes_of(size, asked->problem).front());
    if (Fitted found = judged(base, limits, other, tries - 1); found.asked) return found;
  }
  return {.why = why};
}

}  // namespace

bool Fit::empty() const {
  return sizes.empty() && packed == Relation::as_given && !anchor && !order;
}

std::string Fit::to_string() const {
  std::vector<std::string> parts;
  for (const auto& [size, key] : kShort) {
    if (const auto place = sizes.find(size); place != sizes.end()) {
      parts.push_back(fmt::format("{}:{}", key, place->second));
    }
  }
  if (packed == Relation::square) parts.emplace_back("packed:square");
  if (packed == Relation::keys_at_least_queries) parts.emplace_back("packed:keys");
  if (anchor) {
    parts.emplace_back(*anchor == Anchor::top_left ? "corner:top_left" : "corner:bottom_right");
  }
  if (order) parts.push_back("order:" + *order);
  return fmt::format("{}", fmt::join(parts, ","));
}

Fit Fit::parse(std::string_view text) {
  Fit fit;
  const std::string_view whole = text;
  const auto wrong = [&] {
    return InputError("", fmt::format("\"fit={}\" is no fit of a case, such as "
                                      "fit=sq:128,sk:128,d:64",
                                      whole));
  };
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const auto colon = part.find(':');
    if (colon == part.npos) throw wrong();
    const std::string_view key = part.substr(0, colon), value = part.substr(colon + 1);
    const auto size = std::find_if(kShort.begin(), kShort.end(),
                                   [&](const auto& each) { return each.second == key; });
    if (size != kShort.end()) {
      Index number = 0;
      const auto [stop, error] = std::from_chars(value.data(), value.data() + value.size(), number);
      if (error != std::errc() || stop != value.data() + value.size() || number < 0) throw wrong();
      fit.sizes[size->first] = number;
    } else if (key == "packed" && (value == "square" || value == "keys")) {
      fit.packed = value == "square" ? Relation::square : Relation::keys_at_least_queries;
    } else if (key == "corner" && (value == "top_left" || value == "bottom_right")) {
      fit.anchor = value == "top_left" ? Anchor::top_left : Anchor::bottom_right;
    } else if (key == "order") {
      Layout::parse(value);
      fit.order = value;
    } else {
      throw wrong();
    }
  }
  if (fit.empty() || fit.to_string() != whole) throw wrong();  // one text for one fit
  return fit;
}

std::string_view base_id(std::string_view id) { return id.substr(0, id.find(kMark)); }

std::string_view fit_of(std::string_view id) {
  return base_id(id) == id ? "" : id.substr(base_id(id).size() + kMark.size());
}

Case with_fit(const CaseWithEntry& base, const Fit& fit) {
  const Case& c = base.test_case;
  Case fitted = read_entry(adapted(base.entry, c.problem, fit), "fit");
  fitted.id = fmt::format("{}{}{}", c.id, kMark, fit.to_string());
  fitted.bits = c.bits.empty() ? c.id : c.bits;
  fitted.tier = c.tier;
  fitted.seed = c.seed;
  fitted.file = c.file;
  fitted.line = c.line;
  strike(fitted, c.problem);
  return fitted;
}

Fitted fitted(const CaseWithEntry& base, const KernelLimits& limits,
              const std::vector<std::string>& features) {
  constexpr int kTries = 4;  // of sizes beside a "never"
  Fitter fitter(base.test_case.problem, limits, features);
  return judged(base, limits, fitter, kTries);
}

}  // namespace attest
