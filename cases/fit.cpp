#include "cases/fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "cases/carrier.h"
#include "cases/resize.h"
#include "spec/assert.h"
#include "spec/contains.h"
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

// The features that a case can be asked without, in the order in which an id has them, and the
// fields of an entry that say they are there. What a problem is without them spec/feature.cpp
// knows.
struct LeftOut {
  std::string_view feature;
  std::vector<const char*> fields;
};
const std::vector<LeftOut>& all_left_out() {
  static const std::vector<LeftOut> all = {
      {"packed", {"packed"}},
      {"paged", {"paging"}},
      {"lengths", {"query_lens", "key_lens"}},
      {"softcap", {"softcap"}},
      {"sink", {"sink"}},
      {"dropout", {"dropout"}},
      {"dropout-generated", {"dropout"}},
      {"dlse", {"d_lse"}},
  };
  return all;
}

constexpr std::array kStoredTensors = {"qkv", "qk", "kv"};

// "kv e4m3 hs" of "kv_e4m3_hs", if that is one: the tensors, their format, and for which axes there
// is a scale each.
std::optional<std::string> stored_named(std::string_view text) {
  for (const char* const tensors : kStoredTensors) {
    for (const DType dtype : kStoredDTypes) {
      for (const char* const axes : {"", " h", " s", " hs", " c"}) {
        std::string words = fmt::format("{} {}{}", tensors, name(dtype), axes);
        if (std::equal(words.begin(), words.end(), text.begin(), text.end(),
                       [](char word, char id) { return (word == ' ' ? '_' : word) == id; })) {
          return words;
        }
      }
    }
  }
  return std::nullopt;
}

// ---- What an entry becomes ----------------------------------------------------------------------

// None longer than that, and the longest as long.
void set_longest(json& list, Index longest) {
  cut_down(list, longest);
  const auto place = std::max_element(list.begin(), list.end(), [](const json& a, const json& b) {
    return a.get<Index>() < b.get<Index>();
  });
  if (place != list.end()) *place = longest;
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
        follow ? set_longest(lens, wanted->second) : cut_down(lens, wanted->second);
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

// Fields of an entry that say the feature is there.
void leave_out(json& fields, const Problem& base, const std::vector<std::string>& without) {
  const auto goes = [&](const char* feature) { return contains(without, feature); };
  for (const LeftOut& each : all_left_out()) {
    if (!contains(without, each.feature)) continue;
    for (const char* field : each.fields) fields.erase(field);
  }
  // What was packed, or lay in pages, has whole sequences then, or is padded.
  if (goes("packed")) fields["query_len"] = base.query_len;
  if (goes("packed") || goes("paged")) fields["key_len"] = base.key_len;
}

json adapted(json entry, const Problem& whole, const Fit& fit) {
  json& fields = entry.at("problem");
  if (fit.stored) fields["stored"] = *fit.stored;
  leave_out(fields, whole, fit.without);
  const Problem base = without(whole, fit.without);
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
  if (fit.causal) fields["mask"] = fmt::format("causal {}", name(*fit.causal));
  if (fields.contains("mask")) adapt_mask(fields["mask"], sizes, fit.anchor);
  const bool heads = fit.sizes.contains(Size::query_heads) || fit.sizes.contains(Size::batch);
  if (heads && fields.contains("alibi")) fields["alibi"]["slopes"] = "standard";
  if (fit.order) {
    fields.erase("layouts");
    if (*fit.order != "bhsd") fields["layouts"] = *fit.order;
  }
  return entry;
}

// Its messages without the name that no case has.
Case read_fitted(const json& entry) {
  const std::string stem = "fit";  // which patterns of segments are drawn from
  try {
    return read_entry(entry, stem);
  } catch (const InputError& error) {
    const std::string named =
        fmt::format("\"{}/{}\" is ", stem, entry.at("name").get<std::string>());
    const std::string_view message = error.what();
    throw InputError("",
                     std::string(message.substr(message.starts_with(named) ? named.size() : 0)));
  }
}

// Throws InputError for what the case does not have.
void check_fit(const Fit& fit, const Problem& base) {
  const Problem rest = without(base, fit.without);
  if (fit.sizes.contains(Size::page_size) && rest.paging.page_size == 0) {
    throw InputError("", "the case has no pages");
  }
  if (fit.packed != Fit::Relation::as_given && !rest.packed) {
    throw InputError("", "the case is not packed");
  }
  if (fit.stored && base.stored.any()) throw InputError("", "the case is stored in 8 bits");
  if (fit.causal && rest.mask.kind != Mask::Kind::full) {
    throw InputError("", "the case's mask is not full");
  }
}

// Throws InputError for a part of the fit that changes nothing: one problem has one id. Lengths of
// packed sequences may be related already, as each kernel that needs it asks.
void check_changes(const Fit& fit, const Problem& base, const Problem& fitted) {
  const Problem rest = without(base, fit.without);
  const auto demand = [](bool changed, const std::string& part) {
    if (!changed) throw InputError("", fmt::format("{} changes nothing", part));
  };
  const auto differs = [&](Size size) { return sizes_of(size, rest) != sizes_of(size, fitted); };
  const bool dims = differs(Size::head_dim) || differs(Size::value_dim);  // a pair
  for (const auto& [size, key] : kShort) {
    const auto place = fit.sizes.find(size);
    if (place == fit.sizes.end()) continue;
    const bool of_dims = size == Size::head_dim || size == Size::value_dim;
    demand(of_dims ? dims : differs(size), fmt::format("{}:{}", key, place->second));
  }
  if (fit.anchor) demand(to_string(rest.mask) != to_string(fitted.mask), "the corner");
  const auto lies_alike = [&](TensorName tensor) {
    return rest.layouts[tensor] == fitted.layouts[tensor];
  };
  if (fit.order) demand(!std::all_of(kLaidOut.begin(), kLaidOut.end(), lies_alike), "the order");
  for (const std::string& feature : fit.without) {
    std::vector<std::string> others = fit.without;
    std::erase(others, feature);
    demand(contains(features_of(without(base, others)), feature), "without:" + feature);
  }
}

// Throws InputError if a size is another one that the entry pins.
void check_pins(const json& entry, const Problem& base, const Problem& fitted) {
  const auto pins = entry.find("pin");
  if (pins == entry.end()) return;
  for (const Size size : kLimitedSizes) {
    if (!contains(*pins, json(name(size))) || sizes_of(size, base) == sizes_of(size, fitted)) {
      continue;
    }
    throw InputError("", fmt::format("the case is about its {} of {}", name(size),
                                     fmt::join(sizes_of(size, base), ", ")));
  }
}

}  // namespace

bool Fit::empty() const {
  return sizes.empty() && packed == Relation::as_given && !anchor && !causal && !order && !stored &&
         without.empty();
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
  if (anchor) parts.push_back(fmt::format("corner:{}", name(*anchor)));
  if (causal) parts.push_back(fmt::format("causal:{}", name(*causal)));
  if (order) parts.push_back("order:" + *order);
  if (stored) {
    std::string text = *stored;
    std::replace(text.begin(), text.end(), ' ', '_');
    parts.push_back("stored:" + text);
  }
  if (!without.empty()) parts.push_back(fmt::format("without:{}", fmt::join(without, "+")));
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
    } else if ((key == "corner" || key == "causal") &&
               (value == "top_left" || value == "bottom_right")) {
      (key == "corner" ? fit.anchor : fit.causal) =
          value == "top_left" ? Anchor::top_left : Anchor::bottom_right;
    } else if (key == "order") {
      Layout::parse(value);
      fit.order = value;
    } else if (key == "stored") {
      fit.stored = stored_named(value);
      if (!fit.stored) throw wrong();
    } else if (key == "without") {
      for (const std::string_view each : features_to_leave_out()) {
        if (("+" + std::string(value) + "+").find(fmt::format("+{}+", each)) != std::string::npos) {
          fit.without.emplace_back(each);
        }
      }
    } else {
      throw wrong();
    }
  }
  if (fit.empty() || fit.to_string() != whole) throw wrong();  // one text for one fit
  return fit;
}

const std::vector<std::string_view>& features_to_leave_out() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all;
    for (const LeftOut& each : all_left_out()) all.push_back(each.feature);
    return all;
  }();
  return names;
}

Problem without(Problem p, std::span<const std::string> features) {
  for (const std::string& each : features) {
    const Feature* feature = find_feature(each);
    ATTEST_ASSERT(feature && feature->take_out);
    feature->take_out(p);
  }
  return p;
}

Absent absent_in(const Case& c, const std::vector<std::string>& features) {
  const bool is_plain = c.laws.empty() && c.check == Check::none;
  Absent absent;
  std::vector<std::string> goes;
  for (const Feature* feature : needed_by(c.problem)) {
    if (feature->key != kOfFeatures || contains(features, feature->name)) continue;
    if (is_limit_if_absent(*feature)) continue;
    const bool may_go = is_plain && contains(features_to_leave_out(), feature->name);
    std::vector<std::string>& list = may_go ? goes : absent.missing;
    if (!contains(list, feature->name)) list.emplace_back(feature->name);
  }
  // Lengths without packing or pages are a feature of their own.
  if (contains(features_of(without(c.problem, goes)), "lengths") &&
      !contains(features, "lengths") && !contains(goes, "lengths")) {
    goes.emplace_back("lengths");
  }
  for (const std::string_view each : features_to_leave_out()) {
    if (contains(goes, each)) absent.left_out.emplace_back(each);
  }
  return absent;
}

std::string_view base_id(std::string_view id) { return id.substr(0, id.find(kMark)); }

std::string_view fit_of(std::string_view id) {
  return base_id(id) == id ? "" : id.substr(base_id(id).size() + kMark.size());
}

nlohmann::json entry_with_fit(const CaseWithEntry& base, const Fit& fit) {
  return adapted(base.entry, base.test_case.problem, fit);
}

Case with_fit(const CaseWithEntry& base, const Fit& fit) {
  const Case& c = base.test_case;
  check_fit(fit, c.problem);
  Case fitted = read_fitted(entry_with_fit(base, fit));
  fitted.id = fmt::format("{}{}{}", c.id, kMark, fit.to_string());
  fitted.bits = c.bits.empty() ? c.id : c.bits;
  fitted.tier = c.tier;
  fitted.seed = c.seed;
  fitted.file = c.file;
  fitted.line = c.line;
  check_changes(fit, c.problem, fitted.problem);
  check_pins(base.entry, c.problem, fitted.problem);
  strike_uncarried(fitted, c.problem);
  return fitted;
}

std::optional<std::string> stored_for(const CaseWithEntry& base, const KernelLimits& limits,
                                      const std::vector<std::string>& features) {
  const Case& c = base.test_case;
  const bool is_plain = c.laws.empty() && c.check == Check::none;
  if (!is_plain || c.problem.stored.any()) return std::nullopt;
  std::vector<std::string> wanted;  // that such a kernel is not without
  const std::vector<std::string> known = known_features();
  for (const auto& [never, text] : limits.never) {
    if (!never.lacks || !meets(never, c.problem)) continue;
    // One of them suffices: whichever is known first, so that no order of writing matters.
    const auto is_lacked = [&lacks = *never.lacks](const std::string& each) {
      return contains(lacks, each);
    };
    if (const auto one = std::find_if(known.begin(), known.end(), is_lacked); one != known.end()) {
      wanted.push_back(*one);
    }
  }
  const auto first = [&](const auto& words, const auto& feature_of) -> std::optional<std::string> {
    for (const std::vector<std::string>* each : {&std::as_const(wanted), &features}) {
      for (const auto& word : words) {
        if (contains(*each, feature_of(word))) return fmt::format("{}", word);
      }
    }
    return std::nullopt;
  };
  const auto tensors =
      first(kStoredTensors, [](const char* each) { return fmt::format("stored-{}", each); });
  std::vector<std::string> formats;
  for (const DType dtype : kStoredDTypes) formats.emplace_back(name(dtype));
  const bool in_bfp8 = contains(wanted, "bfp8"), in_mxfp8 = contains(wanted, "mxfp8");
  if (in_mxfp8) std::erase(formats, name(DType::int8));
  const auto format = in_bfp8 ? std::optional<std::string>(name(DType::int8))
                              : first(formats, [](const std::string& each) { return each; });
  const bool is_wanted = std::any_of(wanted.begin(), wanted.end(), [&](const std::string& each) {
    return each.starts_with("stored-") || each.starts_with("scales-of-") ||
           contains(formats, each) || in_bfp8 || in_mxfp8;
  });
  if (!is_wanted || !tensors || !format) return std::nullopt;
  // int8 has no NaN, of which these speak.
  const auto is_of_nan = [](const std::string& clause) {
    return clause.starts_with("FINITE-") || clause == "HIDE-2" || clause == "HIDE-3";
  };
  if (format == name(DType::int8) && std::any_of(c.clauses.begin(), c.clauses.end(), is_of_nan)) {
    return std::nullopt;
  }
  std::string axes;
  if (contains(wanted, "scales-of-heads")) axes += "h";
  if (contains(wanted, "scales-of-positions")) axes += "s";
  if (in_bfp8 || in_mxfp8) axes = "c";
  const std::string stored =
      fmt::format("{} {}{}{}", *tensors, *format, axes.empty() ? "" : " ", axes);
  try {
    with_fit(base, {.stored = stored});
    return stored;
  } catch (const InputError&) {
    return std::nullopt;  // of a backward pass, or of f64
  }
}

}  // namespace attest
