#include "spec/dispatch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "spec/contains.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

// As a kernel is told them: of sequences that are packed or lie in pages the longest, else Sq, Sk.
Index longest(const Problem& p, bool of_keys) {
  if (!p.packed && !(of_keys && p.paging.page_size > 0)) return of_keys ? p.key_len : p.query_len;
  Index most = 0;
  for (Index b = 0; b < p.batch; ++b) {
    const Lengths lengths = p.lengths(b);
    most = std::max(most, of_keys ? lengths.key : lengths.query);
  }
  return most;
}

std::string mask_of(const Problem& p) {
  if (p.mask.kind == Mask::Kind::full) return "full";
  if (p.mask.kind != Mask::Kind::band) return "other";
  return p.mask.right == 0 && p.mask.left == kUnbounded ? "causal" : "window";
}

std::string storage_of(const Problem& p) {
  if (p.paging.page_size > 0) return "paged";
  if (p.packed) return "packed";
  return p.key_lens.empty() && p.query_lens.empty() ? "dense" : "padded";
}

using Number = Index (*)(const Problem&);
const std::map<std::string, Number, std::less<>> kNumbers = {
    {"head_dim", [](const Problem& p) { return p.head_dim; }},
    {"value_dim", [](const Problem& p) { return p.value_dim; }},
    {"query_len", [](const Problem& p) { return longest(p, false); }},
    {"key_len", [](const Problem& p) { return longest(p, true); }},
    {"batch", [](const Problem& p) { return p.batch; }},
    {"query_heads", [](const Problem& p) { return p.query_heads; }},
    {"key_heads", [](const Problem& p) { return p.key_heads; }},
    {"heads_times_batch", [](const Problem& p) { return p.batch * p.query_heads; }},
    {"group", [](const Problem& p) { return p.key_heads > 0 ? p.group_size() : 1; }},
    {"page_size", [](const Problem& p) { return p.paging.page_size; }}};

using Flag = bool (*)(const Problem&);
const std::map<std::string, Flag, std::less<>> kFlags = {
    {"softcap", [](const Problem& p) { return p.softcap > 0; }},
    {"alibi", [](const Problem& p) { return has_alibi(p); }},
    {"bias", [](const Problem& p) { return has_bias(p); }},
    {"sink", [](const Problem& p) { return p.sink; }},
    {"dropout", [](const Problem& p) { return p.dropout.mode != Dropout::Mode::none; }}};

// What a point compares with its values.
std::string value_of(const std::string& of, const Problem& p) {
  if (of == "dtype") return std::string(name(p.dtype));
  if (of == "mask") return mask_of(p);
  if (of == "storage") return storage_of(p);
  if (const auto flag = kFlags.find(of); flag != kFlags.end()) {
    return flag->second(p) ? "true" : "false";
  }
  const Index number = kNumbers.at(of)(p);
  if (of != "group" || number == 1) return std::to_string(number);
  return p.key_heads == 1 ? "all" : "some";
}

// What a point may be of.
std::vector<std::string> known_things() {
  std::vector<std::string> all = {"dtype", "mask", "storage"};
  for (const auto& [of, number] : kNumbers) all.push_back(of);
  for (const auto& [of, flag] : kFlags) all.push_back(of);
  return all;
}

// The values that there are of it; empty of numbers.
std::vector<std::string> known_values(const std::string& of) {
  if (of == "dtype") {
    std::vector<std::string> formats;
    for (const DType dtype : kDTypes) formats.emplace_back(name(dtype));
    return formats;
  }
  if (of == "mask") return {"full", "causal", "window", "other"};
  if (of == "storage") return {"paged", "packed", "padded", "dense"};
  if (kFlags.contains(of)) return {"true", "false"};
  return {};
}

// Whole, as 16.0 is.
bool is_size(const nlohmann::json& json) {
  constexpr double kMostSize = 0x1p62;
  const double size = json.is_number() ? json.get<double>() : -1;
  return size >= 0 && size <= kMostSize && size == std::floor(size);
}
Index size_of(const nlohmann::json& json) {
  return json.is_number_float() ? static_cast<Index>(json.get<double>()) : json.get<Index>();
}

Index read_size(const nlohmann::json& json, const std::string& pointer) {
  if (!is_size(json)) throw InputError(pointer, fmt::format("{} is no size", json.dump()));
  return size_of(json);
}

std::string read_value(const nlohmann::json& json, const std::string& of,
                       const std::string& pointer) {
  if (kNumbers.contains(of)) {
    if (of == "group" && (json == "some" || json == "all")) return json.get<std::string>();
    if (is_size(json)) return std::to_string(size_of(json));
    throw InputError(pointer, fmt::format("{} is no {}", json.dump(), of));
  }
  const auto known = known_values(of);
  const bool is_text = !kFlags.contains(of) && json.is_string();
  std::string value = is_text ? json.get<std::string>() : json.dump();
  if (!contains(known, value)) {
    throw InputError(
        pointer, fmt::format("{} is no {}; there are {}", json.dump(), of, fmt::join(known, ", ")));
  }
  return value;
}

std::vector<std::string> read_values(const nlohmann::json& list, const std::string& of,
                                     const std::string& pointer) {
  if (!list.is_array() || list.empty()) throw InputError(pointer, "\"values\" are a list");
  std::vector<std::string> values;
  for (std::size_t n = 0; n < list.size(); ++n) {
    const std::string at = fmt::format("{}/{}", pointer, n);
    std::string value = read_value(list[n], of, at);
    if (contains(values, value)) throw InputError(at, fmt::format("{} stands twice", value));
    values.push_back(std::move(value));
  }
  return values;
}

DispatchPoint read_point(const nlohmann::json& json, const std::string& pointer) {
  ObjectReader reader(json, pointer);
  DispatchPoint point = {.of = reader.get<std::string>("of")};
  check_name(point.of, known_things(), "dispatch point", reader.pointer("of"));
  const nlohmann::json* const values = reader.find("values");
  const bool ascends = reader.find("up_to"), divides = reader.find("multiple_of");
  if ((values != nullptr) + ascends + divides != 1) {
    throw InputError(pointer, "takes one of \"values\", \"up_to\" and \"multiple_of\"");
  }
  if (values) {
    point.values = read_values(*values, point.of, reader.pointer("values"));
  } else if (!kNumbers.contains(point.of)) {
    throw InputError(pointer, fmt::format("{} is no number: it takes \"values\"", point.of));
  }
  point.open = reader.get_or("open", false);
  if (reader.find("open") && !ascends) throw InputError(reader.pointer("open"), "is of \"up_to\"");
  if (ascends) {
    const nlohmann::json& sizes = reader.at("up_to");
    const std::string at = reader.pointer("up_to");
    if (!sizes.is_array()) throw InputError(at, "\"up_to\" is a list");
    for (std::size_t n = 0; n < sizes.size(); ++n) {
      point.up_to.push_back(read_size(sizes[n], fmt::format("{}/{}", at, n)));
    }
    // Of the sizes, each more than the one before it.
    const auto no_more = std::adjacent_find(point.up_to.begin(), point.up_to.end(),
                                            [](Index a, Index b) { return a >= b; });
    if (point.up_to.empty() || no_more != point.up_to.end()) {
      throw InputError(at, "is no list of numbers that ascend from 0 or more");
    }
  }
  if (divides) {
    point.multiple_of = read_size(reader.at("multiple_of"), reader.pointer("multiple_of"));
    if (point.multiple_of < 2) throw InputError(reader.pointer("multiple_of"), "is less than 2");
  }
  reader.get_or<std::string>("because", "");
  reader.finish();
  return point;
}

constexpr std::array kOtherMasks = {"dense-mask", "prefix",   "segments", "block-sparse",
                                    "dilated",    "mask-and", "mask-or"};

}  // namespace

std::size_t DispatchPoint::classes() const {
  if (!values.empty()) return values.size();
  return multiple_of > 0 ? 2 : up_to.size() + open;
}

std::optional<std::size_t> DispatchPoint::class_of(const Problem& problem) const {
  if (!values.empty()) {
    const auto found = std::find(values.begin(), values.end(), value_of(of, problem));
    if (found == values.end()) return std::nullopt;
    return static_cast<std::size_t>(found - values.begin());
  }
  const Index number = kNumbers.at(of)(problem);
  if (multiple_of > 0) return number % multiple_of == 0 ? 0 : 1;
  const auto place = static_cast<std::size_t>(std::lower_bound(up_to.begin(), up_to.end(), number) -
                                              up_to.begin());
  if (place == up_to.size() && !open) return std::nullopt;
  return place;
}

bool DispatchPoint::may_bring(const Problem& problem, std::size_t to_class) const {
  if (values.empty()) return true;
  const std::string now = value_of(of, problem), &then = values[to_class];
  if (now == then) return true;
  if (of == "mask") return now == "full" && then == "causal";
  if (of == "storage") return then == "dense" || then == "padded";
  if (kFlags.contains(of)) return then == "false" && of != "alibi" && of != "bias";
  return of != "dtype" && limit_of(*this, to_class).is_number();
}

std::string DispatchPoint::text(std::size_t of_class) const {
  if (!values.empty()) return fmt::format("{} {}", of, values[of_class]);
  if (multiple_of > 0) {
    return fmt::format("{} {} multiple of {}", of, of_class == 0 ? "a" : "no", multiple_of);
  }
  if (of_class == up_to.size()) return fmt::format("{} > {}", of, up_to.back());
  if (of_class == 0) return fmt::format("{} in [0,{}]", of, up_to[0]);
  return fmt::format("{} in ({},{}]", of, up_to[of_class - 1], up_to[of_class]);
}

std::optional<DispatchClasses> Dispatch::instance_of(const Problem& problem) const {
  if (backward && !problem.backward) return std::nullopt;
  DispatchClasses classes;
  for (const DispatchPoint& point : points) {
    const auto of_point = point.class_of(problem);
    if (!of_point) return std::nullopt;
    classes.push_back(*of_point);
  }
  return classes;
}

std::vector<DispatchClasses> Dispatch::instances() const {
  std::vector<DispatchClasses> all = {{}};
  for (const DispatchPoint& point : points) {
    std::vector<DispatchClasses> longer;
    for (const DispatchClasses& each : all) {
      for (std::size_t n = 0; n < point.classes(); ++n) {
        longer.push_back(each);
        longer.back().push_back(n);
      }
    }
    all = std::move(longer);
  }
  return all;
}

std::vector<std::string> Dispatch::words(const DispatchClasses& instance) const {
  std::vector<std::string> words;
  for (std::size_t n = 0; n < instance.size(); ++n) words.push_back(points[n].text(instance[n]));
  return words;
}

void read_dispatch(ObjectReader& reader, Dispatch& dispatch) {
  const auto passes = reader.get<std::string>("passes");
  if (passes != "forward" && passes != "backward") {
    throw InputError(reader.pointer("passes"), "is \"forward\" or \"backward\"");
  }
  dispatch.backward = passes == "backward";
  const nlohmann::json& points = reader.at("points");
  const std::string pointer = reader.pointer("points");
  if (!points.is_array() || points.empty()) {
    throw InputError(pointer, "\"points\" takes a list of at least one");
  }
  for (std::size_t n = 0; n < points.size(); ++n) {
    dispatch.points.push_back(read_point(points[n], fmt::format("{}/{}", pointer, n)));
  }
}

std::vector<Dispatch> parse_dispatches(const nlohmann::json& list, const std::string& pointer) {
  constexpr int kMostInstances = 4096;
  if (!list.is_array()) throw InputError(pointer, "\"dispatch\" takes a list of tables");
  std::vector<Dispatch> all;
  double of_all = 0;
  for (std::size_t n = 0; n < list.size(); ++n) {
    ObjectReader reader(list[n], fmt::format("{}/{}", pointer, n));
    Dispatch dispatch = {.name = line_of(reader, "name")};
    if (dispatch.name.empty()) throw InputError(reader.pointer("name"), "is empty");
    const auto is_same = [&](const Dispatch& other) { return other.name == dispatch.name; };
    if (std::any_of(all.begin(), all.end(), is_same)) {
      throw InputError(reader.pointer("name"), fmt::format("\"{}\" stands twice", dispatch.name));
    }
    read_dispatch(reader, dispatch);
    reader.finish();
    double instances = 1;
    for (const DispatchPoint& point : dispatch.points) {
      instances *= static_cast<double>(point.classes());
    }
    of_all += instances;
    if (of_all > kMostInstances) {
      throw InputError(reader.pointer("points"),
                       fmt::format("has {:.0f} instances, of which all tables together may have {}",
                                   instances, kMostInstances));
    }
    all.push_back(std::move(dispatch));
  }
  return all;
}

std::vector<std::string> features_needed(const DispatchPoint& point, std::size_t of_class) {
  if (point.values.empty()) return {};
  const std::string& value = point.values[of_class];
  if (point.of == "mask") {
    if (value != "other") return value == "full" ? std::vector<std::string>() : std::vector{value};
    return {kOtherMasks.begin(), kOtherMasks.end()};
  }
  if (point.of == "storage") {
    if (value == "dense") return {};
    return {value == "padded" ? "lengths" : value};
  }
  if (kFlags.contains(point.of)) {
    if (value == "false") return {};
    if (point.of == "dropout") return {"dropout", "dropout-generated"};
    return {point.of};
  }
  if (point.of == "group" && value != "1") return {"gqa"};
  return {};
}

std::vector<std::string> without_features(const DispatchPoint& point, std::size_t of_class) {
  if (point.values.empty()) return {};
  const std::string& value = point.values[of_class];
  std::vector<std::string> without;
  if (point.of == "mask") {
    for (const char* const each : {"causal", "window"}) {
      if (each != value) without.emplace_back(each);
    }
    if (value != "other") without.insert(without.end(), kOtherMasks.begin(), kOtherMasks.end());
  } else if (point.of == "storage") {
    const std::string kept = value == "padded" ? "lengths" : value;
    for (const char* const each : {"lengths", "packed", "paged"}) {
      if (each != kept) without.emplace_back(each);
    }
  } else if (kFlags.contains(point.of) && value == "false") {
    without.push_back(point.of);
  } else if (point.of == "group" && value == "1") {
    without.emplace_back("gqa");
  }
  return without;
}

nlohmann::json limit_of(const DispatchPoint& point, std::size_t of_class, Numbers numbers) {
  if (!kNumbers.contains(point.of) || point.of == "heads_times_batch") return nullptr;
  const bool few =
      point.of == "query_len" && numbers != Numbers::all && numbers != Numbers::largest;
  if (point.multiple_of > 0) {
    if (of_class != 0) return nullptr;
    return few ? nlohmann::json(point.multiple_of)
               : nlohmann::json{{"multiple", point.multiple_of}};
  }
  if (!point.values.empty()) {
    Index number = 0;
    const std::string& text = point.values[of_class];
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() ? nlohmann::json(number) : nullptr;
  }
  const bool closed = of_class < point.up_to.size();
  if (closed && numbers == Numbers::largest) return point.up_to[of_class];
  const Index least = of_class > 0 ? point.up_to[of_class - 1] + 1 : 0;
  if (few) {
    const Index fewest = std::max<Index>(least, 1);
    const Index most = numbers == Numbers::few_queries ? std::max(fewest, kFewQueries) : fewest;
    return {{"min", fewest}, {"max", closed ? std::min(most, point.up_to[of_class]) : most}};
  }
  nlohmann::json limit;
  if (least > 0) limit["min"] = least;
  if (closed) limit["max"] = point.up_to[of_class];
  return limit;
}

std::optional<SizeSet> batches_of(const Dispatch& dispatch, const DispatchClasses& instance,
                                  Index query_heads) {
  for (std::size_t n = 0; n < instance.size(); ++n) {
    const DispatchPoint& point = dispatch.points[n];
    if (point.of != "heads_times_batch" || point.up_to.empty() || query_heads < 1) continue;
    const std::size_t place = instance[n];
    const Index least = place > 0 ? point.up_to[place - 1] / query_heads + 1 : 1;
    const bool closed = place < point.up_to.size();
    const Index most =
        closed ? point.up_to[place] / query_heads : std::numeric_limits<Index>::max();
    if (least <= most) return SizeSet::range(least, most);
  }
  return std::nullopt;
}

}  // namespace attest
