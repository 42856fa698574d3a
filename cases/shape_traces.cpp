#include "cases/shape_traces.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "cases/located_json.h"
#include "spec/index.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"
#include "spec/read_file.h"

namespace attest {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool is_definition(const json& item) {
  return item.is_object() && item.contains("op_type") && item.contains("axes");
}
bool is_workload(const json& item) {
  return item.is_object() && item.contains("definition") && item.contains("workload");
}

[[noreturn]] void complain(const std::string& what) { throw InputError("", what); }

std::string text_at(const json& object, const char* key) {
  if (!object.contains(key) || !object[key].is_string()) {
    complain(fmt::format("\"{}\" is missing, or no text", key));
  }
  return object[key].get<std::string>();
}

const json& object_at(const json& object, const char* key) {
  if (!object.contains(key) || !object[key].is_object()) {
    complain(fmt::format("\"{}\" is missing, or no object", key));
  }
  return object[key];
}

// `total` in so many parts that differ by 1 at most.
std::vector<Index> dealt(Index total, Index parts) {
  std::vector<Index> all;
  for (Index n = 0; n < parts; ++n) all.push_back(total / parts + (n < total % parts ? 1 : 0));
  return all;
}

// The values of the axes of a definition.
class Axes {
 public:
  Axes(const json& definition, const json* workload) {
    for (const auto& [axis, what] : object_at(definition, "axes").items()) {
      if (what.is_object() && what.contains("value")) set(axis, what["value"]);
    }
    if (!workload) return;
    for (const auto& [axis, value] : object_at(*workload, "axes").items()) set(axis, value);
  }

  bool has(const std::string& axis) const { return values_.contains(axis); }
  Index at(const std::string& axis) const {
    const auto value = values_.find(axis);
    if (value == values_.end()) complain(fmt::format("the axis \"{}\" has no value", axis));
    return value->second;
  }
  // Of a definition alone: a value of ours where it leaves one open.
  void fill(const std::string& axis, Index value) {
    if (values_.emplace(axis, value).second) filled_.push_back(fmt::format("{} = {}", axis, value));
  }
  const std::vector<std::string>& filled() const { return filled_; }

 private:
  void set(const std::string& axis, const json& value) {
    if (!value.is_number_integer() || value < 0 || value > (Index(1) << 40)) {
      complain(fmt::format("the axis \"{}\" takes a number, not {}", axis, json_text(value)));
    }
    values_[axis] = value.get<Index>();
  }

  std::map<std::string, Index> values_;
  std::vector<std::string> filled_;
};

// The shape that a definition and a workload of it are, null for a definition alone.
class TraceShape {
 public:
  TraceShape(const json& definition, const json* workload)
      : definition_(definition),
        workload_(workload),
        type_(text_at(definition, "op_type")),
        name_(text_at(definition, "name")),
        axes_(definition, workload) {}

  static bool knows(const std::string& type) {
    return type == "gqa_paged" || type == "gqa_ragged" || type == "mla_paged" ||
           type == "mla_ragged";
  }

  json entry(std::vector<std::string>& notes) {
    const json& inputs = object_at(definition_, "inputs");
    paged_ = type_.ends_with("_paged");
    decodes_ = paged_ && !inputs.contains("qo_indptr");
    if (!workload_) fill();
    read_sizes();
    read_lengths();
    read_scale(inputs);
    const bool causal = name_.find("causal") != name_.npos || type_ == "mla_ragged";
    if (!decodes_ && causal) problem_["mask"] = "causal bottom_right";
    json entry = {{"name", entry_name()},
                  {"problem", problem_},
                  {"dtypes", {dtype(inputs)}},
                  {"because", fmt::format("{} of FlashInfer Trace{}.", name_,
                                          workload_ ? "" : ", lengths of the suite's")}};
    if (!axes_.filled().empty()) {
      notes.push_back(
          fmt::format("{}: the definition leaves axes open, and no workload gives them: "
                      "{} is taken",
                      name_, fmt::join(axes_.filled(), ", ")));
    }
    return entry;
  }

 private:
  std::string entry_name() const {
    if (!workload_) return as_name(name_);
    const std::string uuid = workload_->value("uuid", "");
    return as_name(name_ + (uuid.empty() ? "" : "_" + uuid.substr(0, 8)));
  }

  void fill() {
    constexpr Index kBatch = 4, kQueries = 128, kKeys = 1024;  // of each
    if (decodes_) {
      axes_.fill("batch_size", kBatch);
    } else {
      axes_.fill("len_indptr", kBatch + 1);
      axes_.fill(total_queries(), kBatch * (paged_ ? kQueries : kKeys));
    }
    if (!paged_) axes_.fill(total_keys(), kBatch * kKeys);
    if (!paged_) return;
    const Index pages = kBatch * kKeys / std::max<Index>(axes_.at("page_size"), 1);
    axes_.fill("num_kv_indices", std::max(pages, kBatch));
    axes_.fill("num_pages", axes_.at("num_kv_indices") + 1);
  }

  // In mla_ragged queries and keys may share an axis.
  std::string total_queries() const {
    const json& axes = definition_["axes"];
    return axes.contains("total_tokens") ? "total_tokens" : "total_q";
  }
  std::string total_keys() const {
    const json& axes = definition_["axes"];
    return axes.contains("total_tokens") ? "total_tokens" : "total_kv";
  }

  void read_sizes() {
    problem_["query_heads"] = axes_.at("num_qo_heads");
    if (type_ == "mla_paged") {  // one key head, of which V is a part
      problem_["key_heads"] = 1;
      problem_["head_dim"] = axes_.at("head_dim_ckv") + axes_.at("head_dim_kpe");
      problem_["value_dim"] = axes_.at("head_dim_ckv");
    } else if (type_ == "mla_ragged") {
      problem_["key_heads"] =
          axes_.has("num_kv_heads") ? axes_.at("num_kv_heads") : axes_.at("num_qo_heads");
      problem_["head_dim"] = axes_.at("head_dim_qk");
      problem_["value_dim"] = axes_.at("head_dim_vo");
    } else {
      problem_["key_heads"] = axes_.at("num_kv_heads");
      problem_["head_dim"] = axes_.at("head_dim");
    }
  }

  // Sequences are alike, as far as totals divide. Of a last page that holds several keys each
  // sequence leaves another number free, as kv_last_page_len would say.
  void read_lengths() {
    const Index batch = decodes_ ? axes_.at("batch_size") : axes_.at("len_indptr") - 1;
    if (batch < 1) complain("there is no sequence");
    problem_["batch"] = batch;
    if (decodes_) {
      problem_["query_len"] = 1;
    } else {
      problem_["packed"] = true;
      problem_["query_lens"] = dealt(axes_.at(total_queries()), batch);
    }
    if (!paged_) {
      problem_["key_lens"] = dealt(axes_.at(total_keys()), batch);
      return;
    }
    const Index used = axes_.at("num_kv_indices"), size = axes_.at("page_size");
    if (size < 1) complain("page_size is 0");
    std::vector<Index> keys = dealt(used, batch);
    for (Index b = 0; b < batch; ++b) {
      Index& own = keys[static_cast<std::size_t>(b)];
      own = own * size - (own > 0 ? b % size : 0);
    }
    problem_["key_lens"] = keys;
    const Index spare = axes_.has("num_pages") ? axes_.at("num_pages") - used : 0;
    problem_["paging"] = {{"page_size", size}, {"unused", std::clamp<Index>(spare, 0, used)}};
  }

  void read_scale(const json& inputs) {
    if (workload_ && workload_->contains("inputs")) {
      const json& given = (*workload_)["inputs"];
      if (given.is_object() && given.contains("sm_scale") && given["sm_scale"].contains("value")) {
        const json& scale = given["sm_scale"]["value"];
        if (!scale.is_number())
          complain(fmt::format("sm_scale takes a number, not {}", json_text(scale)));
        problem_["scale"] = scale;
        return;
      }
    }
    // Of the widths before absorption, where it is not given.
    if (type_ == "mla_paged" && inputs.contains("sm_scale")) problem_["scale"] = kAbsorbedScale;
  }

  std::string dtype(const json& inputs) const {
    static const std::map<std::string, std::string> kNames = {
        {"float32", "f32"}, {"float16", "f16"}, {"bfloat16", "bf16"}, {"float64", "f64"}};
    const char* query = inputs.contains("q") ? "q" : "q_nope";
    const std::string theirs = text_at(object_at(inputs, query), "dtype");
    const auto ours = kNames.find(theirs);
    if (ours == kNames.end()) {
      complain(fmt::format("\"{}\" has the dtype {}, which is not judged yet", query, theirs));
    }
    return ours->second;
  }

  static constexpr double kAbsorbedScale = 0.07216878364870322;  // 1/sqrt(192)

  const json& definition_;
  const json* workload_;
  std::string type_, name_;
  Axes axes_;
  bool paged_ = false, decodes_ = false;
  json problem_ = json::object();
};

// Definitions by name: those of the file, and those that lie where the dataset has them.
class Definitions {
 public:
  Definitions(const std::vector<TraceItem>& items, const fs::path& file)
      : folder_(fs::absolute(file).parent_path()) {
    for (const TraceItem& item : items) {
      if (is_definition(item.json)) known_[text_at(item.json, "name")] = item.json;
    }
  }

  const json& named(const std::string& name) {
    if (const auto known = known_.find(name); known != known_.end()) return known->second;
    const std::string own = name + ".json";
    std::vector<fs::path> places = {folder_ / own};
    fs::path above = folder_;
    for (int n = 0; n < 4 && above.has_relative_path(); ++n, above = above.parent_path()) {
      places.push_back(above / "definitions" / folder_.filename() / own);
      places.push_back(above / "definitions" / own);
    }
    for (const fs::path& place : places) {
      if (!fs::is_regular_file(place)) continue;
      json definition = json::parse(read_file(place), nullptr, false);
      if (!is_definition(definition)) complain(fmt::format("{} is no definition", place.string()));
      return known_[name] = std::move(definition);
    }
    complain(
        fmt::format("the definition {} is neither in this file nor in {} nor in a folder "
                    "definitions/ beside or above it",
                    name, places.front().string()));
  }

 private:
  fs::path folder_;
  std::map<std::string, json> known_;
};

}  // namespace

bool is_trace(const json& item) { return is_definition(item) || is_workload(item); }

std::vector<ShapeEntry> shapes_of_traces(const std::vector<TraceItem>& items, const fs::path& file,
                                         std::vector<std::string>& notes) {
  std::vector<ShapeEntry> entries;
  std::map<std::string, int> names, left_out;  // how often
  bool dealt_lengths = false;
  const bool any_workload = std::any_of(
      items.begin(), items.end(), [](const TraceItem& item) { return is_workload(item.json); });
  try {
    Definitions definitions(items, file);
    for (const TraceItem& item : items) {
      try {
        const bool alone = !is_workload(item.json);
        if (alone && any_workload) continue;  // it is what workloads here are made of
        if (alone && !is_definition(item.json)) complain("is no workload, trace or definition");
        const json& definition =
            alone ? item.json : definitions.named(text_at(item.json, "definition"));
        const std::string type = text_at(definition, "op_type");
        if (!TraceShape::knows(type)) {
          ++left_out[type];
          continue;
        }
        const json* workload = alone ? nullptr : &object_at(item.json, "workload");
        json entry = TraceShape(definition, workload).entry(notes);
        const std::string name = entry["name"];
        if (const int count = ++names[name]; count > 1) {
          entry["name"] = fmt::format("{}_{}", name, count);
        }
        dealt_lengths = true;
        entries.push_back({std::move(entry), item.line});
      } catch (const InputError& error) {
        throw InputError("", fmt::format("{}: {}", item.line, error.what()));
      }
    }
  } catch (const json::exception& error) {
    throw InputError("", fmt::format("1: {}", error.what()));
  }
  for (const auto& [type, count] : left_out) {
    notes.push_back(fmt::format(
        "{} of op_type {} left out: that is no attention that is judged here", count, type));
  }
  if (dealt_lengths) {
    notes.push_back(
        "lengths of single sequences (qo_indptr, kv_indptr, kv_last_page_len) are not read: they "
        "are alike, as far as totals divide");
  }
  return entries;
}

}  // namespace attest
