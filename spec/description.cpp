#include "spec/description.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "spec/contains.h"
#include "spec/json_reader.h"
#include "spec/named_arithmetic.h"
#include "spec/profile.h"

namespace attest {
namespace {

std::vector<std::string> strings(ObjectReader& reader, const std::string& key) {
  std::vector<std::string> values;
  const nlohmann::json& list = reader.at(key);
  if (!list.is_array()) {
    throw InputError(reader.pointer(key), fmt::format("\"{}\" must be a list of names", key));
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_string()) {
      throw InputError(fmt::format("{}/{}", reader.pointer(key), i),
                       fmt::format("\"{}\" must be a list of names", key));
    }
    values.push_back(list[i].get<std::string>());
  }
  return values;
}

ScheduleDeclaration parse_schedule(const nlohmann::json& json) {
  ObjectReader reader(json, "/schedule");
  ScheduleDeclaration schedule;
  schedule.masks_partial_only = reader.get_or("masks_partial_only", false);
  if (reader.find("imbalance")) {
    schedule.imbalance = reader.get<double>("imbalance");
    if (!(*schedule.imbalance >= 1)) {
      throw InputError(reader.pointer("imbalance"),
                       "no worker has less than the mean of all: an "
                       "imbalance is at least 1");
    }
  }
  reader.finish();
  return schedule;
}

ByteCount parse_bytes(const nlohmann::json& json, const std::string& pointer) {
  ObjectReader reader(json, pointer);
  const auto term = [&](const char* key) {
    const double bytes = reader.get_or(key, 0.0);
    if (!(bytes >= 0)) throw InputError(reader.pointer(key), "a number of bytes is 0 or more");
    return bytes;
  };
  const ByteCount count = {.fixed = term("fixed"),
                           .per_thread = term("per_thread"),
                           .per_thread_channel = term("per_thread_channel"),
                           .per_thread_query = term("per_thread_query"),
                           .per_thread_query_channel = term("per_thread_query_channel"),
                           .per_thread_key = term("per_thread_key"),
                           .per_thread_key_channel = term("per_thread_key_channel"),
                           .per_thread_pair = term("per_thread_pair"),
                           .per_query = term("per_query"),
                           .per_query_channel = term("per_query_channel"),
                           .per_key = term("per_key"),
                           .per_key_channel = term("per_key_channel"),
                           .per_pair = term("per_pair")};
  reader.finish();
  return count;
}

MemoryDeclaration parse_memory(const nlohmann::json& json) {
  ObjectReader reader(json, "/memory");
  MemoryDeclaration memory;
  using enum Growth;
  const auto growth = reader.get<std::string>("growth");
  if (growth == "constant") {
    memory.growth = constant;
  } else if (growth == "linear") {
    memory.growth = linear;
  } else if (growth != "quadratic") {
    throw InputError(reader.pointer("growth"),
                     fmt::format("memory grows \"constant\", \"linear\" or \"quadratic\", not "
                                 "\"{}\"",
                                 growth));
  }
  const auto bytes = [&](const char* key) {
    const nlohmann::json* count = reader.find(key);
    return count ? parse_bytes(*count, reader.pointer(key)) : ByteCount();
  };
  memory.workspace = bytes("workspace");
  memory.own = bytes("own");
  reader.finish();
  if (memory.workspace.growth() > memory.growth || memory.own.growth() > memory.growth) {
    throw InputError("/memory", fmt::format("the terms declared grow faster than \"{}\"", growth));
  }
  return memory;
}

// What it says otherwise, of what it has.
void read_dialect(ObjectReader& reader, Description& result) {
  for (const char* key : {"lse", "empty_rows", "window"}) {
    if (const nlohmann::json* said = reader.find(key)) result.declared_dialect[key] = *said;
  }
  result.dialect = parse_dialect(result.declared_dialect);
  const std::pair<const char*, const char*> needs[] = {{"lse", "lse"}, {"window", "window"}};
  for (const auto& [key, feature] : needs) {
    if (result.declared_dialect.contains(key) && !result.has(feature)) {
      throw InputError(
          reader.pointer(key),
          fmt::format("\"{}\" is declared, and the feature \"{}\" is not", key, feature));
    }
  }
}

// What a declaration says of a format, or the name that stands for it.
nlohmann::json declared_for(DType dtype, const nlohmann::json& said, const std::string& pointer) {
  if (!said.is_string()) return said;
  try {
    return declaration_named(said.get<std::string>(), dtype);
  } catch (const InputError& error) {
    throw InputError(pointer, error.what());
  }
}

// The arithmetic of each format: as declared, or the loosest.
void read_arithmetic(ObjectReader& reader, Description& result) {
  const nlohmann::json* arithmetic = reader.find("arithmetic");
  nlohmann::json by_format = nlohmann::json::object();
  if (arithmetic && arithmetic->is_string()) {  // of all formats
    for (const DType dtype : result.dtypes) by_format[std::string(name(dtype))] = *arithmetic;
  } else if (arithmetic) {
    by_format = *arithmetic;
  }
  ObjectReader declared(by_format, "/arithmetic");
  for (const DType dtype : result.dtypes) {
    const std::string key(name(dtype));
    const nlohmann::json* said = declared.find(key);
    result.arithmetic[dtype] = loosest(dtype);
    if (said) {
      result.declared_arithmetic[key] = declared_for(dtype, *said, declared.pointer(key));
      result.arithmetic[dtype] =
          parse_arithmetic(result.declared_arithmetic[key], dtype, declared.pointer(key));
    }
    result.arithmetic[dtype].lse = result.dialect.lse;
  }
  declared.finish();
}

void read_beyond_caps(ObjectReader& reader, Description& result) {
  if (const nlohmann::json* beyond = reader.find("beyond_caps")) {
    ObjectReader formats(*beyond, "/beyond_caps");
    for (const DType dtype : result.dtypes) {
      const std::string key(name(dtype));
      if (!formats.find(key)) continue;
      result.beyond_caps[dtype] = line_of(formats, key);
      if (result.beyond_caps[dtype].empty()) {
        throw InputError(formats.pointer(key), "say in words what lies beyond the caps");
      }
    }
    formats.finish();
  }
}

// Whether some size is in all of these sets.
bool have_one(const std::vector<const SizeSet*>& sets) {
  constexpr int kMostSteps = 10'000;  // then there may be one
  Index size = 0;
  for (int n = 0; n < kMostSteps; ++n) {
    const Index before = size;
    for (const SizeSet* const set : sets) {
      const auto next = set->at_least(size);
      if (!next) return false;
      size = *next;
    }
    if (size == before) return true;
  }
  return true;
}

// Whether the limits leave some number for each size, in some format.
bool leave_some(const KernelLimits& limits, const std::vector<DType>& dtypes, bool backward) {
  return std::any_of(dtypes.begin(), dtypes.end(), [&](DType dtype) {
    std::map<Size, std::vector<const SizeSet*>> by_size;
    for (const Terms* const terms : limits.binding(dtype, backward)) {
      for (const auto& [size, set] : terms->sizes) by_size[size].push_back(&set);
    }
    return std::all_of(by_size.begin(), by_size.end(),
                       [](const auto& each) { return have_one(each.second); });
  });
}

}  // namespace

const char* name(Growth growth) {
  switch (growth) {
    case Growth::constant:
      return "constant";
    case Growth::linear:
      return "linear";
    case Growth::quadratic:
      return "quadratic";
  }
  return "?";
}

Growth ByteCount::growth() const {
  if (per_thread_pair > 0 || per_pair > 0) return Growth::quadratic;
  const double with_length = per_thread_query + per_thread_query_channel + per_thread_key +
                             per_thread_key_channel + per_query + per_query_channel + per_key +
                             per_key_channel;
  return with_length > 0 ? Growth::linear : Growth::constant;
}

double ByteCount::bytes(const Problem& p, int threads) const {
  const auto channels = static_cast<double>(std::max(p.head_dim, p.value_dim));
  const double rows = static_cast<double>(p.batch) * static_cast<double>(p.query_heads);
  const auto queries = static_cast<double>(p.query_len), keys = static_cast<double>(p.key_len);
  const Index group = p.key_heads == 0 ? 1 : std::max<Index>(p.query_heads / p.key_heads, 1);
  const double group_queries = static_cast<double>(group) * queries;
  return fixed +
         threads * (per_thread + per_thread_channel * channels +
                    group_queries * (per_thread_query + per_thread_query_channel * channels) +
                    keys * (per_thread_key + per_thread_key_channel * channels) +
                    queries * keys * per_thread_pair) +
         rows * (queries * (per_query + per_query_channel * channels) +
                 keys * (per_key + per_key_channel * channels) + queries * keys * per_pair);
}

bool Description::has(std::string_view feature) const { return contains(features, feature); }

std::vector<TensorName> Description::statistics_in(DType dtype) const {
  const std::vector<std::string> lse = {"lse"};
  if (!has("lse") || !excluded_in(dtype, limits, lse).empty()) return {};
  return dialect.statistics();
}

Arithmetic Description::arithmetic_in(DType dtype) const {
  const auto declared = arithmetic.find(dtype);
  return declared != arithmetic.end() ? declared->second : loosest(dtype);
}

Description parse_description(const nlohmann::json& json) {
  const nlohmann::json said = in_whole_numbers(json);
  ObjectReader reader(said, "");
  reader.require({"name", "version", "vendor", "profiles", "dtypes", "features"});
  Description result;
  result.name = line_of(reader, "name");
  result.version = line_of(reader, "version");
  result.vendor = line_of(reader, "vendor");
  result.profiles = strings(reader, "profiles");
  for (const std::string& profile : result.profiles) {
    if (!find_profile(profile)) throw InputError("/profiles", no_profile(profile));
  }
  result.probed = reader.get_or("probed", false);
  if (result.probed && !result.profiles.empty()) {
    throw InputError("/profiles",
                     "a declaration that was probed claims no profile: whoever adopts it takes "
                     "\"probed\" out first");
  }
  std::vector<std::string> formats;
  for (const DType dtype : kDTypes) formats.emplace_back(name(dtype));
  for (const std::string& text : strings(reader, "dtypes")) {
    check_name(text, formats, "dtype", "/dtypes");
    result.dtypes.push_back(*dtype_named(text));
  }
  if (result.dtypes.empty()) throw InputError("/dtypes", "names no format that it takes");
  result.features = strings(reader, "features");
  for (const std::string& feature : result.features) {
    check_name(feature, known_features(), "feature", "/features");
  }
  const nlohmann::json* limits = reader.find("limits");
  result.declared_limits = limits ? *limits : nlohmann::json::object();
  if (limits) result.limits = parse_limits(*limits, "/limits", result.dtypes, result.features);
  result.alignment = reader.get_or<Index>("alignment", result.alignment);
  if (result.alignment < 1 || result.alignment > 512 ||
      (result.alignment & (result.alignment - 1)) != 0) {
    throw InputError("/alignment", "the alignment is a power of two, at most 512 bytes");
  }
  result.keep_quantum = reader.get_or("keep_quantum", 0.0);
  if (!(result.keep_quantum >= 0 && result.keep_quantum <= 1.0 / 128)) {
    throw InputError("/keep_quantum", "the keep rate is at most 1/128 from 1-p");
  }
  result.leaves_padding_unwritten = reader.get_or("leaves_padding_unwritten", false);
  read_dialect(reader, result);
  result.threads = reader.get_or("threads", false);
  if (const nlohmann::json* dispatch = reader.find("dispatch")) {
    result.dispatch = parse_dispatches(*dispatch, reader.pointer("dispatch"));
  }
  if (const nlohmann::json* schedule = reader.find("schedule")) {
    result.schedule = parse_schedule(*schedule);
  }
  if (const nlohmann::json* memory = reader.find("memory")) {
    result.memory = parse_memory(*memory);
  }
  read_arithmetic(reader, result);
  read_beyond_caps(reader, result);
  reader.finish();
  return result;
}

std::string undeclared(const Problem& problem, const Description& description) {
  std::vector<std::string> missing;
  if (!contains(description.dtypes, problem.dtype)) missing.emplace_back(name(problem.dtype));
  for (const std::string& feature : features_of(problem)) {
    if (!description.has(feature) && !contains(missing, feature)) missing.push_back(feature);
  }
  return fmt::format("{}", fmt::join(missing, ", "));
}

bool is_too_long_alone(const Problem& problem, const std::string& reason, const std::string& what) {
  if (reason == "undeclared") return what == "long";
  return reason == "limits" && std::max(problem.query_len, problem.key_len) > kLong &&
         what.starts_with(fmt::format("{} ", name(Size::pairs)));
}

std::optional<Exclusion> exclusion(const Problem& problem, const Description& description) {
  if (std::string missing = undeclared(problem, description); !missing.empty()) {
    return Exclusion{.reason = "undeclared", .what = std::move(missing)};
  }
  if (std::string why = beyond(description.limits, problem); !why.empty()) {
    return Exclusion{.reason = "limits", .what = std::move(why)};
  }
  if (std::string why = unsayable(problem.mask, description.dialect.window); !why.empty()) {
    return Exclusion{.reason = "limits", .what = std::move(why)};
  }
  return std::nullopt;
}

std::optional<Description> declared_of(const DispatchClasses& instance, const Dispatch& dispatch,
                                       const Description& whole, Numbers numbers) {
  Description description = whole;
  description.dispatch.clear();
  std::vector<nlohmann::json> limits;  // several may be of one size
  for (std::size_t n = 0; n < instance.size(); ++n) {
    const DispatchPoint& point = dispatch.points[n];
    if (point.of == "dtype") {
      const auto dtype = dtype_named(point.values[instance[n]]);
      if (!dtype || !contains(whole.dtypes, *dtype)) return std::nullopt;
      description.dtypes = {*dtype};
    }
    const auto needed = features_needed(point, instance[n]);
    if (!needed.empty() && std::none_of(needed.begin(), needed.end(),
                                        [&](const auto& each) { return whole.has(each); })) {
      return std::nullopt;
    }
    for (const std::string& feature : without_features(point, instance[n])) {
      std::erase(description.features, feature);
    }
    if (point.of == "page_size" && (!whole.has("paged") || !point.values.empty()) &&
        point.class_of(Problem()) == instance[n]) {
      std::erase(description.features, "paged");  // 0: without pages
      continue;
    }
    const nlohmann::json limit = limit_of(point, instance[n], numbers);
    if (!limit.is_null()) limits.push_back({{point.of, limit}});
  }
  const auto is_of_queries = [](const auto& each) { return each.contains("query_len"); };
  if (numbers == Numbers::few_queries &&
      std::none_of(limits.begin(), limits.end(), is_of_queries)) {
    limits.push_back({{"query_len", {{"max", kFewQueries}}}});
  }
  try {
    for (const nlohmann::json& each : limits) {
      const KernelLimits own = parse_limits(each, "", description.dtypes, description.features);
      for (const Terms& terms : own.always) description.limits.always.push_back(terms);
    }
  } catch (const InputError&) {
    return std::nullopt;  // no problem meets them
  }
  const bool passes = !dispatch.backward || whole.has("backward");
  if (!passes || !leave_some(description.limits, description.dtypes, dispatch.backward)) {
    return std::nullopt;
  }
  return description;
}

}  // namespace attest
