#include "spec/limits.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "spec/contains.h"
#include "spec/feature.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"
#include "spec/mask_kind.h"

namespace attest {
namespace {

constexpr std::array<std::pair<Size, std::string_view>, kLimitedSizes.size()> kSizeNames = {{
    {Size::batch, "batch"},
    {Size::query_heads, "query_heads"},
    {Size::key_heads, "key_heads"},
    {Size::group, "group"},
    {Size::query_len, "query_len"},
    {Size::key_len, "key_len"},
    {Size::head_dim, "head_dim"},
    {Size::value_dim, "value_dim"},
    {Size::page_size, "page_size"},
    {Size::mask_offset, "mask_offset"},
    {Size::pairs, "pairs"},
}};

template <class Visit>
void for_each_leaf(const Mask& mask, const Visit& visit) {
  if (mask.parts.empty()) visit(mask);
  for (const Mask& part : mask.parts) for_each_leaf(part, visit);
}

std::vector<std::string> lengths_given(const Problem& p) {
  std::vector<std::string> given;
  if (p.packed || p.paging.page_size > 0) return given;  // these have lengths of their own
  if (!p.key_lens.empty()) given.emplace_back("key");
  if (!p.query_lens.empty()) given.emplace_back("query");
  return given;
}

// Which axes of the bias are as long as the problem's: "hqk". An axis of size 1 that is all there
// is counts as one that broadcasts.
std::string axes_of_bias(const Problem& p) {
  std::string axes;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if ((*p.bias_shape)[axis] != 1) axes += "bhqk"[axis];
  }
  return axes;
}

// Of every batch element, as far as each has its own place.
bool for_all_lengths(const Problem& p, bool (*test)(const Lengths&)) {
  if (!p.packed) return test({.query = p.query_len, .key = p.key_len});
  for (Index b = 0; b < p.batch; ++b) {
    if (!test(p.lengths(b))) return false;
  }
  return true;
}

bool are_equal(const Lengths& l) { return l.query == l.key; }
bool has_as_many_keys(const Lengths& l) { return l.key >= l.query; }

std::vector<const Layout*> layouts_of(const Problem& p) {
  std::vector<const Layout*> found;
  for (const TensorName tensor : laid_out(p)) found.push_back(&p.layouts[tensor]);
  return found;
}

bool fits_one(const std::vector<MaskForm>& forms, const Mask& part) {
  return std::any_of(forms.begin(), forms.end(),
                     [&](const MaskForm& form) { return form.fits(part); });
}

}  // namespace

std::string_view name(Size size) { return kSizeNames[static_cast<std::size_t>(size)].second; }

std::vector<Index> sizes_of(Size size, const Problem& p) {
  switch (size) {
    case Size::batch:
      return {p.batch};
    case Size::query_heads:
      return {p.query_heads};
    case Size::key_heads:
      return {p.key_heads};
    case Size::group:
      if (p.key_heads == 0) return {};
      return {p.group_size()};
    case Size::query_len:
      return {p.query_len};
    case Size::key_len:
      return {p.key_len};
    case Size::head_dim:
      return {p.head_dim};
    case Size::value_dim:
      return {p.value_dim};
    case Size::page_size:
      if (p.paging.page_size == 0) return {};
      return {p.paging.page_size};
    case Size::mask_offset: {
      std::vector<Index> offsets;
      for_each_leaf(p.mask, [&](const Mask& part) {
        if (about(part.kind).is_anchored) offsets.push_back(part.offset);
      });
      return offsets;
    }
    case Size::pairs:
      return {p.query_len * p.key_len};
  }
  return {};
}

// ---- Sets of sizes ------------------------------------------------------------------------------

SizeSet SizeSet::listed(std::vector<Index> sizes) {
  if (sizes.empty()) throw InputError("", "a list of sizes is empty");
  SizeSet result;
  result.listed_ = std::move(sizes);
  std::sort(result.listed_.begin(), result.listed_.end());
  return result;
}

SizeSet SizeSet::range(Index least, Index most, Index multiple) {
  SizeSet result;
  result.least_ = least;
  result.most_ = most;
  result.multiple_ = multiple;
  if (least > most)
    throw InputError("", fmt::format("\"min\" {} is above \"max\" {}", least, most));
  const auto first = result.at_least(least);
  if (!first || *first > most) {
    throw InputError("",
                     fmt::format("no multiple of {} lies within {}..{}", multiple, least, most));
  }
  return result;
}

bool SizeSet::has(Index size) const {
  if (!listed_.empty()) return std::binary_search(listed_.begin(), listed_.end(), size);
  return size >= least_ && size <= most_ && size % multiple_ == 0;
}

std::optional<Index> SizeSet::at_least(Index size) const {
  if (!listed_.empty()) {
    const auto place = std::lower_bound(listed_.begin(), listed_.end(), size);
    return place == listed_.end() ? std::nullopt : std::optional(*place);
  }
  const Index from = std::max(size, least_);
  const Index below = from % multiple_;  // of a negative number, negative or 0
  const Index step = below == 0 ? 0 : below < 0 ? -below : multiple_ - below;
  if (from > most_ - step) return std::nullopt;
  return from + step;
}

std::optional<Index> SizeSet::at_most(Index size) const {
  if (!listed_.empty()) {
    const auto place = std::upper_bound(listed_.begin(), listed_.end(), size);
    return place == listed_.begin() ? std::nullopt : std::optional(*std::prev(place));
  }
  const Index from = std::min(size, most_);
  const Index below = from % multiple_;
  const Index step = below >= 0 ? below : multiple_ + below;
  if (from < least_ + step) return std::nullopt;
  return from - step;
}

std::string SizeSet::to_string() const {
  if (!listed_.empty()) {
    return listed_.size() == 1 ? fmt::format("{}", listed_.front())
                               : fmt::format("one of {}", fmt::join(listed_, ", "));
  }
  std::string text = multiple_ > 1 ? fmt::format("a multiple of {}", multiple_) : "";
  const bool from = least_ != std::numeric_limits<Index>::min();
  const bool to = most_ != std::numeric_limits<Index>::max();
  if (from) text += fmt::format("{}at least {}", text.empty() ? "" : ", ", least_);
  if (to) text += fmt::format("{}at most {}", text.empty() ? "" : ", ", most_);
  return text.empty() ? "any" : text;
}

// ---- Terms --------------------------------------------------------------------------------------

bool MaskForm::fits(const Mask& part) const {
  if (part.kind != kind || (anchor && about(kind).is_anchored && part.anchor != *anchor))
    return false;
  if (kind != Mask::Kind::band) return true;
  return causal == is_causal(part) && (!right_is_zero || part.right == 0);
}

std::string MaskForm::to_string() const {
  std::string text(causal ? "causal" : about(kind).declared);
  if (right_is_zero) text += " causal";
  if (anchor) text += *anchor == Anchor::top_left ? " top_left" : " bottom_right";
  return text;
}

std::string beyond(const Terms& terms, const Problem& p) {
  for (const auto& [size, allowed] : terms.sizes) {
    for (const Index each : sizes_of(size, p)) {
      if (!allowed.has(each)) {
        return fmt::format("{} {}: takes {}", name(size), each, allowed.to_string());
      }
    }
  }
  if (!terms.head_dims.empty() && !contains(terms.head_dims, std::pair(p.head_dim, p.value_dim))) {
    std::vector<std::string> pairs;
    for (const auto& [d, dv] : terms.head_dims) pairs.push_back(fmt::format("[{}, {}]", d, dv));
    return fmt::format("head_dim [{}, {}]: takes {}", p.head_dim, p.value_dim,
                       fmt::join(pairs, ", "));
  }
  if (terms.same_head_dims && p.head_dim != p.value_dim) {
    return fmt::format("value_dim {}: takes head_dim's {}", p.value_dim, p.head_dim);
  }
  if (terms.square && !for_all_lengths(p, are_equal)) {
    return fmt::format("query_len {}, key_len {}: takes square ones", p.query_len, p.key_len);
  }
  if (terms.keys_at_least_queries && !for_all_lengths(p, has_as_many_keys)) {
    return fmt::format("query_len {}, key_len {}: takes at least as many keys as queries",
                       p.query_len, p.key_len);
  }
  std::string why;
  if (terms.masks) {
    for_each_leaf(p.mask, [&](const Mask& part) {
      if (fits_one(*terms.masks, part)) return;
      std::vector<std::string> forms;
      for (const MaskForm& form : *terms.masks) forms.push_back(form.to_string());
      why = fmt::format("mask {}: takes {}", to_string(part), fmt::join(forms, ", "));
    });
    if (!why.empty()) return why;
  }
  if (terms.lengths) {
    for (const std::string& given : lengths_given(p)) {
      if (!contains(*terms.lengths, given)) return fmt::format("{} lengths: not taken", given);
    }
  }
  if (terms.bias_axes && p.bias_shape && !contains(*terms.bias_axes, axes_of_bias(p))) {
    return fmt::format("bias over \"{}\": takes {}", axes_of_bias(p),
                       fmt::join(*terms.bias_axes, ", "));
  }
  for (const Layout* layout : layouts_of(p)) {
    if (terms.dense_layouts && *layout != Layout{}) {
      return fmt::format("layout {}: takes dense bhsd", layout->to_string());
    }
    if (terms.layouts && !contains(*terms.layouts, layout->order())) {
      return fmt::format("layout {}: takes {}", layout->to_string(),
                         fmt::join(*terms.layouts, ", "));
    }
  }
  if (terms.features) {
    for (const std::string& feature : features_of(p)) {
      if (!contains(*terms.features, feature)) {
        return fmt::format("{}: not taken in {}", feature, name(p.dtype));
      }
    }
  }
  return "";
}

bool meets(const Terms& never, const Problem& p) {
  if (never.backward && *never.backward != p.backward) return false;
  if (never.dtypes && !contains(*never.dtypes, p.dtype)) return false;
  for (const auto& [size, allowed] : never.sizes) {
    const auto sizes = sizes_of(size, p);
    const SizeSet& among = allowed;  // a lambda can't capture a structured binding
    if (std::none_of(sizes.begin(), sizes.end(), [&](Index each) { return among.has(each); })) {
      return false;
    }
  }
  if (!never.head_dims.empty() && !contains(never.head_dims, std::pair(p.head_dim, p.value_dim))) {
    return false;
  }
  if (never.square && !for_all_lengths(p, are_equal)) return false;
  if (never.keys_at_least_queries && !for_all_lengths(p, has_as_many_keys)) return false;
  if (never.masks) {
    bool found = false;
    for_each_leaf(p.mask, [&](const Mask& part) { found |= fits_one(*never.masks, part); });
    if (!found) return false;
  }
  if (never.lengths) {
    const auto given = lengths_given(p);
    if (std::none_of(given.begin(), given.end(),
                     [&](const auto& each) { return contains(*never.lengths, each); })) {
      return false;
    }
  }
  if (never.bias_axes && !(p.bias_shape && contains(*never.bias_axes, axes_of_bias(p)))) {
    return false;
  }
  if (never.layouts) {
    const auto layouts = layouts_of(p);
    if (std::none_of(layouts.begin(), layouts.end(),
                     [&](const Layout* each) { return contains(*never.layouts, each->order()); })) {
      return false;
    }
  }
  if (never.features) {
    const auto needed = features_of(p);
    for (const std::string& feature : *never.features) {
      if (!contains(needed, feature)) return false;
    }
  }
  if (never.lacks) {
    const auto needed = features_of(p);
    for (const std::string& feature : *never.lacks) {
      if (contains(needed, feature)) return false;
    }
  }
  return true;
}

// ---- Limits -------------------------------------------------------------------------------------

bool KernelLimits::empty() const {
  return always.empty() && backward.empty() && formats.empty() && formats_backward.empty() &&
         never.empty();
}

std::vector<const Terms*> KernelLimits::binding(DType dtype, bool of_backward) const {
  std::vector<const Terms*> found;
  const auto add = [&](const std::vector<Terms>& several) {
    for (const Terms& terms : several) found.push_back(&terms);
  };
  const auto of_format = [&](const std::map<DType, std::vector<Terms>>& each) {
    if (const auto place = each.find(dtype); place != each.end()) add(place->second);
  };
  add(always);
  of_format(formats);
  if (of_backward) {
    add(backward);
    of_format(formats_backward);
  }
  return found;
}

std::string beyond(const KernelLimits& limits, const Problem& problem) {
  for (const Terms* terms : limits.binding(problem.dtype, problem.backward)) {
    if (std::string why = beyond(*terms, problem); !why.empty()) return why;
  }
  for (const auto& [terms, text] : limits.never) {
    if (meets(terms, problem)) return fmt::format("never {}", text);
  }
  return "";
}

std::string limit_named_by(const std::string& why) {
  return why.substr(0, why.find_first_of(" :="));
}

namespace {
// The one feature that no problem of that format may need if it is never to meet these terms.
std::string ruled_out(const Terms& never, DType dtype) {
  const bool is_of_format = !never.dtypes || contains(*never.dtypes, dtype);
  const bool says_more = !never.sizes.empty() || !never.head_dims.empty() || never.square ||
                         never.keys_at_least_queries || never.masks || never.lengths ||
                         never.bias_axes || never.layouts || never.lacks;
  if (!is_of_format || says_more || !never.backward.value_or(true)) return "";
  std::vector<std::string> needed = never.features.value_or(std::vector<std::string>());
  if (never.backward && !contains(needed, "backward")) needed.emplace_back("backward");
  return needed.size() == 1 ? needed.front() : "";
}
}  // namespace

std::map<std::string, std::string> excluded_in(DType dtype, const KernelLimits& limits,
                                               std::span<const std::string> features) {
  std::map<std::string, std::string> excluded;
  for (const std::string& each : features) {
    for (const Terms* terms : limits.binding(dtype, false)) {
      if (!terms->features || contains(*terms->features, each)) continue;
      excluded[each] = fmt::format("{}: not taken in {}", each, name(dtype));
    }
    for (const auto& [terms, text] : limits.never) {
      if (ruled_out(terms, dtype) == each) excluded[each] = fmt::format("never {}", text);
    }
  }
  return excluded;
}

Terms implied_by_absent(std::span<const std::string> features) {
  Terms terms;
  if (!contains(features, "gqa")) terms.sizes.emplace(Size::group, SizeSet::listed({1}));
  if (!contains(features, "value-dim")) terms.same_head_dims = true;
  if (!contains(features, "strides")) terms.dense_layouts = true;
  const Index least = contains(features, "zero-sizes") ? std::numeric_limits<Index>::min() : 1;
  const Index longest = contains(features, "long") ? std::numeric_limits<Index>::max() : kLong;
  for (const Size size : {Size::query_len, Size::key_len}) {
    terms.sizes.emplace(size, SizeSet::range(least, longest));
  }
  for (const Size size :
       {Size::batch, Size::query_heads, Size::key_heads, Size::head_dim, Size::value_dim}) {
    terms.sizes.emplace(size, SizeSet::range(least, std::numeric_limits<Index>::max()));
  }
  return terms;
}

}  // namespace attest
