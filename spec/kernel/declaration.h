// What a kernel declares (SPEC.md, chapter "Description"), as the JSON that `describe` returns.
//
//   attest::declare().dtypes({"f32", "bf16"}).features({"causal", "lse", "gqa"})
//       .limit("head_dim", {64, 128}).arithmetic("f32", "exact-f32").arithmetic("bf16",
//       "gpu-16bit")
//
// Nothing is checked here: the command reads it strictly, and names the key that it does not take.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>

#include "problem.h"

namespace attest {

class Declaration {
 public:
  using Numbers = std::initializer_list<std::int64_t>;
  using Words = std::initializer_list<const char*>;
  using Workspace =
      std::function<std::uint64_t(const Problem& problem, bool backward, std::int32_t threads)>;

  Declaration& version(const std::string& text) { return set("version", quoted(text)); }
  Declaration& vendor(const std::string& text) { return set("vendor", quoted(text)); }
  // Default: what the pass or passes come to, within the limits: "forward-core/limits", and
  // "training-core/limits" with the feature "backward".
  Declaration& profiles(Words names) { return set("profiles", list(names)); }
  Declaration& dtypes(Words names) { return set("dtypes", list(names)); }
  Declaration& features(Words names) {
    for (const char* name : names) backward_ |= std::string("backward") == name;
    return set("features", list(names));
  }

  // A term of the chapter "Limits": sizes, words, or any value as JSON.
  Declaration& limit(const std::string& term, Numbers sizes) { return limit(term, list(sizes)); }
  Declaration& limit(const std::string& term, std::int64_t size) { return limit(term, item(size)); }
  Declaration& limit(const std::string& term, Words words) { return limit(term, list(words)); }
  Declaration& limit(const std::string& term, const std::string& json) {
    limits_[term] = json;
    return *this;
  }

  // A name of NUMERICS.md, section 9, for all formats or for one; or for one a declaration, as
  // JSON.
  Declaration& arithmetic(const std::string& name) { return set("arithmetic", quoted(name)); }
  Declaration& arithmetic(const std::string& dtype, const std::string& name_or_json) {
    const bool is_json = name_or_json.find('{') == 0;
    arithmetic_[dtype] = is_json ? name_or_json : quoted(name_or_json);
    return *this;
  }

  // Any other key of the chapter, with its value as JSON.
  Declaration& set(const std::string& key, const std::string& json) {
    values_[key] = json;
    return *this;
  }

  // How many bytes a call needs; default: none.
  Declaration& workspace(Workspace bytes) {
    workspace_ = std::move(bytes);
    return *this;
  }
  const Workspace& workspace() const { return workspace_; }

  std::string text(const std::string& name) const {
    Values all = {{"version", "\"0\""}, {"vendor", "\"\""}, {"dtypes", "[]"}, {"features", "[]"}};
    all["name"] = quoted(name);
    all["profiles"] = backward_ ? "[\"forward-core/limits\",\"training-core/limits\"]"
                                : "[\"forward-core/limits\"]";
    if (!limits_.empty()) all["limits"] = object(limits_);
    if (!arithmetic_.empty()) all["arithmetic"] = object(arithmetic_);
    for (const auto& [key, json] : values_) all[key] = json;
    return object(all);
  }

 private:
  using Values = std::map<std::string, std::string>;  // JSON by key

  static std::string quoted(const std::string& text) {
    std::string json = "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\') json += '\\';
      json += c;
    }
    return json + '"';
  }
  static std::string item(std::int64_t number) { return std::to_string(number); }
  static std::string item(const char* word) { return quoted(word); }
  template <class T>
  static std::string list(std::initializer_list<T> items) {
    std::string json;
    for (const T each : items) {
      json += json.empty() ? '[' : ',';
      json += item(each);
    }
    return json.empty() ? "[]" : json + ']';
  }
  static std::string object(const Values& values) {
    std::string json;
    for (const auto& [key, value] : values) {
      json += json.empty() ? '{' : ',';
      json += quoted(key) + ':' + value;
    }
    return json + '}';
  }

  Values values_, limits_, arithmetic_;
  bool backward_ = false;
  Workspace workspace_;
};

inline Declaration declare() { return {}; }

}  // namespace attest
