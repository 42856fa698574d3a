#include "harness/instances/dispatch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "spec/contains.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"
#include "spec/read_file.h"

namespace attest::instances {
namespace {

namespace fs = std::filesystem;

Index longest(const Problem& p, bool of_keys) {
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

bool is_known(const std::string& of) {
  return of == "dtype" || of == "mask" || of == "storage" || kFlags.contains(of) ||
         kNumbers.contains(of);
}

Point read_point(const nlohmann::json& json, const std::string& pointer) {
  ObjectReader reader(json, pointer);
  Point point = {.of = reader.get<std::string>("of")};
  if (!is_known(point.of)) {
    throw InputError(pointer + "/of", fmt::format("nothing is known of \"{}\"", point.of));
  }
  if (const auto* values = reader.find("values")) {
    for (const nlohmann::json& each : *values) {
      point.values.push_back(each.is_string() ? each.get<std::string>() : each.dump());
    }
  }
  point.up_to = reader.get_or<std::vector<Index>>("up_to", {});
  point.open = reader.get_or("open", false);
  point.multiple_of = reader.get_or<Index>("multiple_of", 0);
  reader.get_or<std::string>("because", "");
  reader.finish();
  const int ways = !point.values.empty() + !point.up_to.empty() + (point.multiple_of > 0);
  if (ways != 1 || (point.values.empty() && !kNumbers.contains(point.of)) ||
      !std::is_sorted(point.up_to.begin(), point.up_to.end()) || point.classes() < 1) {
    throw InputError(pointer, "takes one of values, up_to (ascending, of numbers), multiple_of");
  }
  return point;
}

Dispatch read_dispatch(const fs::path& file) {
  const nlohmann::json json = parse_json(read_file(file));
  ObjectReader reader(json, "");
  Dispatch dispatch = {.name = file.stem().string(),
                       .system = reader.get<std::string>("system"),
                       .about = reader.get<std::string>("about"),
                       .sources = reader.get<std::vector<std::string>>("sources"),
                       .points = {}};
  const auto passes = reader.get<std::string>("passes");
  if (passes != "forward" && passes != "backward") {
    throw InputError("/passes", "is \"forward\" or \"backward\"");
  }
  dispatch.backward = passes == "backward";
  dispatch.held_out = reader.get_or("held_out", false);
  const nlohmann::json& points = *reader.find("points");
  for (std::size_t n = 0; n < points.size(); ++n) {
    dispatch.points.push_back(read_point(points[n], fmt::format("/points/{}", n)));
  }
  reader.finish();
  return dispatch;
}

constexpr std::array kMaskFeatures = {"causal",       "window",  "dense-mask", "prefix", "segments",
                                      "block-sparse", "dilated", "mask-and",   "mask-or"};

// The features that no problem of the class has.
std::vector<std::string> without_features(const Point& point, std::size_t of_class) {
  if (point.values.empty()) return {};
  const std::string& value = point.values[of_class];
  std::vector<std::string> without;
  if (point.of == "mask") {
    for (const char* const each : kMaskFeatures) {
      const bool is_band = std::string(each) == "causal" || std::string(each) == "window";
      if (value == "other" ? is_band : each != value) without.emplace_back(each);
    }
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

// As "limits" say it; null if they don't.
nlohmann::json limit_of(const Point& point, std::size_t of_class) {
  if (!kNumbers.contains(point.of) || point.of == "heads_times_batch") return nullptr;
  if (point.multiple_of > 0) {
    return of_class == 0 ? nlohmann::json{{"multiple", point.multiple_of}} : nullptr;
  }
  if (!point.values.empty()) {
    Index number = 0;
    const std::string& text = point.values[of_class];
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() ? nlohmann::json(number) : nullptr;
  }
  nlohmann::json limit;
  if (of_class > 0) limit["min"] = point.up_to[of_class - 1] + 1;
  if (of_class < point.up_to.size()) limit["max"] = point.up_to[of_class];
  return limit;
}

}  // namespace

std::size_t Point::classes() const {
  if (!values.empty()) return values.size();
  return multiple_of > 0 ? 2 : up_to.size() + open;
}

std::optional<std::size_t> Point::class_of(const Problem& problem) const {
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

std::string Point::text(std::size_t of_class) const {
  if (!values.empty()) return fmt::format("{} {}", of, values[of_class]);
  if (multiple_of > 0) {
    return fmt::format("{} {} multiple of {}", of, of_class == 0 ? "a" : "no", multiple_of);
  }
  if (of_class == up_to.size()) return fmt::format("{} > {}", of, up_to.back());
  return fmt::format("{} in ({},{}]", of, of_class > 0 ? up_to[of_class - 1] : 0, up_to[of_class]);
}

std::vector<Dispatch> load_dispatches(const fs::path& folder) {
  std::vector<Dispatch> all;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    if (entry.path().extension() != ".json") continue;
    try {
      all.push_back(read_dispatch(entry.path()));
    } catch (const InputError& error) {
      throw InputError("", fmt::format("{}: {}{}{}", entry.path().string(), error.pointer(),
                                       error.pointer().empty() ? "" : " ", error.what()));
    }
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  if (all.empty()) {
    throw InputError("", fmt::format("there is no dispatch table in {}", folder.string()));
  }
  return all;
}

bool Instance::has(const Problem& problem) const {
  if (dispatch->backward && !problem.backward) return false;
  for (std::size_t n = 0; n < classes.size(); ++n) {
    if (dispatch->points[n].class_of(problem) != classes[n]) return false;
  }
  return true;
}

std::string Instance::text() const {
  std::vector<std::string> words;
  for (std::size_t n = 0; n < classes.size(); ++n) {
    words.push_back(dispatch->points[n].text(classes[n]));
  }
  return fmt::format("{}: {}", dispatch->name, fmt::join(words, ", "));
}

std::optional<Description> Instance::declared(const Description& whole) const {
  Description description = whole;
  nlohmann::json limits = nlohmann::json::object();
  for (std::size_t n = 0; n < classes.size(); ++n) {
    const Point& point = dispatch->points[n];
    if (point.of == "dtype") {
      const auto dtype = dtype_named(point.values[classes[n]]);
      if (!dtype || !contains(whole.dtypes, *dtype)) return std::nullopt;
      description.dtypes = {*dtype};
    }
    for (const std::string& feature : without_features(point, classes[n])) {
      std::erase(description.features, feature);
    }
    const nlohmann::json limit = limit_of(point, classes[n]);
    if (limit.is_object() && limits[point.of].is_object()) {
      limits[point.of].update(limit);
    } else if (!limit.is_null()) {
      limits[point.of] = limit;
    }
  }
  try {
    description.limits = parse_limits(limits, "", description.dtypes, description.features);
  } catch (const InputError&) {
    return std::nullopt;  // no problem meets them
  }
  return description;
}

}  // namespace attest::instances
