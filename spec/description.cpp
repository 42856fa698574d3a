#include "spec/description.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "spec/json_reader.h"
#include "spec/profile.h"

namespace attest {
namespace {

template <class List, class Value>
bool contains(const List& list, const Value& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

void add_features_of(const Mask& mask, std::vector<std::string>& features) {
  switch (mask.kind) {
    case Mask::Kind::full:
      return;
    case Mask::Kind::band:
      features.push_back(mask.left == kUnbounded && mask.right == 0 ? "causal" : "window");
      return;
    case Mask::Kind::dense:
      features.push_back("dense-mask");
      return;
    case Mask::Kind::all_of:
    case Mask::Kind::any_of:
      features.push_back(mask.kind == Mask::Kind::all_of ? "mask-and" : "mask-or");
      for (const Mask& part : mask.parts) add_features_of(part, features);
      return;
  }
}

// What `problem` needs, in the words of known_features().
std::vector<std::string> features_of(const Problem& p) {
  std::vector<std::string> features;
  if (p.backward) features.push_back("backward");
  add_features_of(p.mask, features);
  if (!p.key_lens.empty() || !p.query_lens.empty()) features.push_back("lengths");
  if (p.key_heads != p.query_heads) features.push_back("gqa");
  if (p.value_dim != p.head_dim) features.push_back("value-dim");
  const Layouts& l = p.layouts;
  for (const Layout* layout : {&l.q, &l.k, &l.v, &l.o, &l.d_o, &l.dq, &l.dk, &l.dv}) {
    if (*layout != Layout{}) features.push_back("strides");
    if (layout->transposes()) features.push_back("transposed");
    for (const Axis axis : {kBatch, kHead, kPosition, kChannel}) {
      if (layout->expands(axis)) features.push_back("expanded");
    }
  }
  for (const Index size :
       {p.batch, p.query_heads, p.key_heads, p.query_len, p.key_len, p.head_dim, p.value_dim}) {
    if (size == 0) {
      features.push_back("zero-sizes");
      break;
    }
  }
  return features;
}

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

}  // namespace

std::vector<std::string> known_features() {
  return {"backward", "lse", "causal",    "window",  "dense-mask", "mask-and",   "mask-or",
          "lengths",  "gqa", "value-dim", "strides", "expanded",   "transposed", "zero-sizes"};
}

bool Description::has(const std::string& feature) const { return contains(features, feature); }

Description parse_description(const nlohmann::json& json) {
  ObjectReader reader(json, "");
  Description result;
  result.name = reader.get<std::string>("name");
  result.version = reader.get<std::string>("version");
  result.vendor = reader.get<std::string>("vendor");
  result.profiles = strings(reader, "profiles");
  for (const std::string& profile : result.profiles) {
    if (!find_profile(profile)) {
      throw InputError("/profiles", fmt::format("there is no profile \"{}\"", profile));
    }
  }
  for (const std::string& text : strings(reader, "dtypes")) {
    const auto dtype = dtype_named(text);
    if (!dtype) throw InputError("/dtypes", fmt::format("there is no dtype \"{}\"", text));
    result.dtypes.push_back(*dtype);
  }
  result.features = strings(reader, "features");
  for (const std::string& feature : result.features) {
    if (!contains(known_features(), feature)) {
      throw InputError("/features", fmt::format("there is no feature \"{}\"; known: {}", feature,
                                                fmt::join(known_features(), ", ")));
    }
  }
  result.alignment = reader.get_or<Index>("alignment", result.alignment);
  if (result.alignment < 1 || result.alignment > 512 ||
      (result.alignment & (result.alignment - 1)) != 0) {
    throw InputError("/alignment", "the alignment is a power of two, at most 512 bytes");
  }
  const nlohmann::json* arithmetic = reader.find("arithmetic");
  result.declared_arithmetic = arithmetic ? *arithmetic : nlohmann::json::object();
  ObjectReader declared(result.declared_arithmetic, "/arithmetic");
  for (const DType dtype : result.dtypes) {
    const std::string key(name(dtype));
    const nlohmann::json* declaration = declared.find(key);
    result.arithmetic[dtype] =
        declaration ? parse_arithmetic(*declaration, dtype, declared.pointer(key)) : loosest(dtype);
  }
  declared.finish();
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

}  // namespace attest
