// Limits as descriptions write them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "spec/contains.h"
#include "spec/feature.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"
#include "spec/limits.h"
#include "spec/mask_kind.h"
#include "spec/possible_limits.h"

namespace attest {
namespace {

constexpr Index kLargest = Index(1) << 40;  // of which sums and products stay within their type

// What limits may speak of: of what the kernel declares.
struct Declared {
  std::span<const DType> dtypes;
  std::span<const std::string> features;

  bool has(std::string_view feature) const { return contains(features, feature); }
};

Index read_size(const nlohmann::json& value, const std::string& pointer, bool may_be_negative) {
  if (!value.is_number_integer() || value > kLargest || value < (may_be_negative ? -kLargest : 0)) {
    throw InputError(pointer, fmt::format("{} is no size: a whole number from {} to 2^40",
                                          json_text(value), may_be_negative ? "-2^40" : "0"));
  }
  return value.get<Index>();
}

SizeSet read_sizes(const nlohmann::json& value, const std::string& pointer, Size size) {
  const bool negative = size == Size::mask_offset;
  try {
    if (value.is_array()) {
      std::vector<Index> listed;
      for (std::size_t i = 0; i < value.size(); ++i) {
        listed.push_back(read_size(value[i], fmt::format("{}/{}", pointer, i), negative));
      }
      return SizeSet::listed(std::move(listed));
    }
    if (!value.is_object()) return SizeSet::listed({read_size(value, pointer, negative)});
    ObjectReader reader(value, pointer);
    const auto bound = [&](const char* key, Index fallback) {
      const nlohmann::json* given = reader.find(key);
      return given ? read_size(*given, reader.pointer(key), negative) : fallback;
    };
    const Index least = bound("min", std::numeric_limits<Index>::min());
    const Index most = bound("max", std::numeric_limits<Index>::max());
    const Index multiple = reader.get_or<Index>("multiple", 1);
    reader.finish();
    if (multiple < 1 || multiple > kLargest) {
      throw InputError(reader.pointer("multiple"), "\"multiple\" is from 1 to 2^40");
    }
    if (value.empty()) {
      throw InputError(pointer, "a range has \"min\", \"max\" or \"multiple\"");
    }
    return SizeSet::range(least, most, multiple);
  } catch (const InputError& error) {
    if (!error.pointer().empty()) throw;
    throw InputError(pointer, error.what());
  }
}

// [[64, 64], [192, 128]]
std::vector<std::pair<Index, Index>> read_head_dims(const nlohmann::json& list,
                                                    const std::string& pointer,
                                                    const Declared& declared) {
  std::vector<std::pair<Index, Index>> pairs;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string place = fmt::format("{}/{}", pointer, i);
    if (!list[i].is_array() || list[i].size() != 2) {
      throw InputError(place, fmt::format("{} is no pair [D, Dv]", json_text(list[i])));
    }
    pairs.emplace_back(read_size(list[i][0], place + "/0", false),
                       read_size(list[i][1], place + "/1", false));
    if (pairs.back().first != pairs.back().second && !declared.has("value-dim")) {
      throw InputError(place, "D and Dv differ, and \"value-dim\" is not declared");
    }
  }
  return pairs;
}

MaskForm read_mask_form(const std::string& text, const std::string& pointer,
                        const Declared& declared) {
  std::vector<std::pair<std::string, MaskForm>> forms;
  for (const MaskKind& each : mask_kinds()) {
    const bool is_band = each.kind == Mask::Kind::band;
    if (each.combines) continue;
    if (is_band) forms.push_back({"causal", {.kind = each.kind, .causal = true}});
    forms.push_back({std::string(each.declared), {.kind = each.kind}});
    if (is_band) forms.push_back({"window causal", {.kind = each.kind, .right_is_zero = true}});
  }
  std::vector<std::string> known;
  for (const auto& [name, form] : forms) {
    for (const char* anchor : {"", " top_left", " bottom_right"}) {
      if (*anchor != '\0' && !about(form.kind).is_anchored) continue;
      known.push_back(name + anchor);
      if (known.back() != text) continue;
      const std::string feature = name.substr(0, name.find(' '));
      if (feature != "full" && !declared.has(feature)) {
        throw InputError(pointer, fmt::format("\"{}\" is not declared", feature));
      }
      MaskForm found = form;
      if (text.ends_with("top_left")) found.anchor = Anchor::top_left;
      if (text.ends_with("bottom_right")) found.anchor = Anchor::bottom_right;
      return found;
    }
  }
  check_name(text, known, "form of a mask", pointer);
  return {};
}

// The orders of the four axes.
std::vector<std::string> known_orders() {
  std::string order = "bdhs";
  std::vector<std::string> orders;
  do {
    orders.push_back(order);
  } while (std::next_permutation(order.begin(), order.end()));
  return orders;
}

std::vector<std::string> known_axes() {
  std::vector<std::string> all;
  for (unsigned set = 0; set < 16; ++set) {
    all.emplace_back();
    for (unsigned axis = 0; axis < 4; ++axis) {
      if (set >> axis & 1) all.back() += "bhqk"[axis];
    }
  }
  return all;
}

// Throws if `key` speaks of what the kernel does not declare.
void check_declared(const char* key, const char* feature, const std::string& pointer,
                    const Declared& declared) {
  if (declared.has(feature)) return;
  throw InputError(
      pointer,
      fmt::format("\"{}\" speaks of what \"{}\" declares, which is not declared", key, feature));
}

// Of those that are declared.
std::optional<std::vector<std::string>> read_features(ObjectReader& reader, const char* key,
                                                      const Declared& declared) {
  const nlohmann::json* list = reader.find(key);
  if (!list) return std::nullopt;
  const auto features = read_names(*list, reader.pointer(key), "feature", known_features());
  for (std::size_t i = 0; i < features.size(); ++i) {
    if (declared.has(features[i])) continue;
    throw InputError(fmt::format("{}/{}", reader.pointer(key), i),
                     fmt::format("\"{}\" is not declared", features[i]));
  }
  return features;
}

// The terms that allowed sizes and "never" have in common.
Terms read_common(ObjectReader& reader, const Declared& declared) {
  Terms terms;
  for (const Size size : kLimitedSizes) {
    const std::string key(name(size));
    const nlohmann::json* value = reader.find(key);
    if (!value) continue;
    const std::string pointer = reader.pointer(key);
    if (size == Size::page_size) check_declared("page_size", "paged", pointer, declared);
    if (size == Size::head_dim && value->is_array() && !value->empty() &&
        value->front().is_array()) {
      terms.head_dims = read_head_dims(*value, pointer, declared);
      continue;
    }
    terms.sizes.emplace(size, read_sizes(*value, pointer, size));
  }
  terms.square = reader.get_or("square", false);
  terms.keys_at_least_queries = reader.get_or("keys_at_least_queries", false);
  if (const nlohmann::json* list = reader.find("masks")) {
    if (!list->is_array() || list->empty()) {
      throw InputError(reader.pointer("masks"), "\"masks\" takes a list of at least one form");
    }
    terms.masks.emplace();
    for (std::size_t i = 0; i < list->size(); ++i) {
      const std::string place = fmt::format("{}/{}", reader.pointer("masks"), i);
      if (!(*list)[i].is_string()) throw InputError(place, "a form of a mask is a text");
      terms.masks->push_back(read_mask_form((*list)[i].get<std::string>(), place, declared));
    }
  }
  const auto names = [&](const char* key, const char* feature, const char* what,
                         const std::vector<std::string>& known) {
    std::optional<std::vector<std::string>> given;
    const nlohmann::json* list = reader.find(key);
    if (!list) return given;
    check_declared(key, feature, reader.pointer(key), declared);
    given = read_names(*list, reader.pointer(key), what, known);
    return given;
  };
  terms.lengths = names("lengths", "lengths", "kind of lengths", {"key", "query"});
  terms.bias_axes =
      names("bias_axes", "bias", "set of axes (of bhqk, in this order)", known_axes());
  terms.layouts = names("layouts", "strides", "order of axes", known_orders());
  return terms;
}

Terms read_never(const nlohmann::json& value, const std::string& pointer,
                 const Declared& declared) {
  ObjectReader reader(value, pointer);
  Terms terms = read_common(reader, declared);
  // It reads as if the opposite were never taken.
  for (const char* flag : {"square", "keys_at_least_queries"}) {
    if (reader.get_or(flag, true)) continue;
    throw InputError(reader.pointer(flag), fmt::format("here \"{}\" is true, or left out", flag));
  }
  terms.features = read_features(reader, "features", declared);
  terms.lacks = read_features(reader, "lacks", declared);
  if (reader.find("backward")) {
    check_declared("backward", "backward", reader.pointer("backward"), declared);
    terms.backward = reader.get<bool>("backward");
  }
  if (const nlohmann::json* list = reader.find("dtypes")) {
    std::vector<std::string> known;
    for (const DType dtype : declared.dtypes) known.emplace_back(name(dtype));
    terms.dtypes.emplace();
    for (const std::string& each :
         read_names(*list, reader.pointer("dtypes"), "declared dtype", known)) {
      terms.dtypes->push_back(*dtype_named(each));
    }
  }
  reader.finish();
  if (value.empty()) throw InputError(pointer, "without a term nothing would ever be asked");
  return terms;
}

// Terms of a part of all problems: of a pass, of a format.
Terms read_part(const nlohmann::json& value, const std::string& pointer, const Declared& declared,
                const std::function<void(ObjectReader&, Terms&)>& more = {}) {
  ObjectReader reader(value, pointer);
  Terms terms = read_common(reader, declared);
  if (more) more(reader, terms);
  reader.finish();
  return terms;
}

// The key "backward", if it is there.
std::vector<Terms> read_backward(ObjectReader& reader, const Declared& declared) {
  const nlohmann::json* value = reader.find("backward");
  if (!value) return {};
  const std::string pointer = reader.pointer("backward");
  check_declared("backward", "backward", pointer, declared);
  return {read_part(*value, pointer, declared)};
}

void read_formats(ObjectReader& reader, const Declared& declared, KernelLimits& limits) {
  const nlohmann::json* formats = reader.find("dtypes");
  if (!formats) return;
  ObjectReader each(*formats, reader.pointer("dtypes"));
  std::vector<std::string> known;
  for (const DType dtype : declared.dtypes) known.emplace_back(name(dtype));
  for (const auto& [key, value] : formats->items()) {
    check_name(key, known, "declared dtype", each.pointer(key));
    const DType dtype = *dtype_named(key);
    limits.formats[dtype].push_back(
        read_part(value, each.pointer(key), declared, [&](ObjectReader& own, Terms& terms) {
          terms.features = read_features(own, "features", declared);
          limits.formats_backward[dtype] = read_backward(own, declared);
        }));
  }
}

void read_all_never(ObjectReader& reader, const Declared& declared, KernelLimits& limits) {
  const nlohmann::json* list = reader.find("never");
  if (!list) return;
  if (!list->is_array()) {
    throw InputError(reader.pointer("never"), "\"never\" takes a list of objects");
  }
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string place = fmt::format("{}/{}", reader.pointer("never"), i);
    limits.never.emplace_back(read_never((*list)[i], place, declared), json_text((*list)[i]));
  }
}

}  // namespace

KernelLimits parse_limits(const nlohmann::json& json, const std::string& pointer,
                          std::span<const DType> dtypes, std::span<const std::string> features) {
  const Declared declared = {.dtypes = dtypes, .features = features};
  ObjectReader reader(json, pointer);
  KernelLimits limits;
  limits.always.push_back(read_common(reader, declared));
  limits.backward = read_backward(reader, declared);
  read_formats(reader, declared, limits);
  read_all_never(reader, declared, limits);
  reader.finish();
  check_possible(limits, pointer, dtypes, features);
  return limits;
}

}  // namespace attest
