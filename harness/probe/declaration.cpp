#include "harness/probe/declaration.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "harness/probe/questions.h"
#include "spec/contains.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"
#include "spec/mask_kind.h"

namespace attest {
namespace {

using nlohmann::json;

// ---- As a declaration --------------------------------------------------------------------------

class Writer {
 public:
  Writer(const Testee& testee, const Probed& probed, std::vector<std::string>& left_out)
      : testee_(testee), probed_(probed), left_out_(left_out) {}

  nlohmann::ordered_json write() {
    const Description& own = testee_.description;
    for (const Answer& answer : probed_.answers) {
      if (answer.key.starts_with("features.") && answer.value == true) {
        features_.push_back(answer.key.substr(9));
      }
    }
    nlohmann::ordered_json out = {
        {"probed", true},       {"name", own.name},          {"version", own.version},
        {"vendor", own.vendor}, {"profiles", json::array()}, {"dtypes", json::array()},
        {"features", features_}};
    for (const DType dtype : probed_.formats) out["dtypes"].push_back(name(dtype));
    if (const json limits = limits_of(); !limits.empty()) out["limits"] = limits;
    for (const char* key : {"keep_quantum", "leaves_padding_unwritten", "threads", "alignment"}) {
      const json value = told(probed_.answers, key);
      if (!value.is_null() && value != 0 && value != false) out[key] = value;
    }
    add_dialect(out);
    if (told(probed_.answers, "schedule") == "reported") out["schedule"] = json::object();
    for (const DType dtype : probed_.formats) add_arithmetic(dtype, out);
    return out;
  }

 private:
  json value(const std::string& key) const { return told(probed_.answers, key); }
  bool has(std::string_view feature) const { return contains(features_, feature); }

  // What the term speaks of, where it needs a feature.
  bool means_something(const std::string& term) const {
    const std::pair<const char*, const char*> needs[] = {
        {"page_size", "paged"}, {"bias_axes", "bias"},  {"lengths", "lengths"},
        {"group", "gqa"},       {"layouts", "strides"}, {"mask_offset", "causal"}};
    return std::all_of(std::begin(needs), std::end(needs),
                       [&](const auto& need) { return term != need.first || has(need.second); });
  }

  json limits_of() {
    json limits = json::object();
    for (const Answer& answer : probed_.answers) {
      if (!answer.key.starts_with("limits.") || !answer.told() || answer.value.is_string())
        continue;
      std::string term = answer.key.substr(7);
      const bool backward = term.starts_with("backward.");
      if (backward) term = term.substr(9);
      if (answer.value == false || !means_something(term)) continue;
      if (term == "masks") {
        if (json masks = masks_of(answer.value); !masks.empty()) limits[term] = std::move(masks);
      } else if (backward) {
        if (answer.value != value("limits." + term)) limits["backward"][term] = answer.value;
      } else {
        limits[term] = answer.value;
      }
    }
    return limits;
  }

  // Of those tried, what is taken, and all forms that have no corner; none if nothing is left out
  // that the features would have.
  json masks_of(const json& taken) const {
    json masks = json::array();
    bool narrow = !contains(taken.get<std::vector<std::string>>(), "full");
    if (!narrow) masks.push_back("full");
    std::vector<std::string> anchored = {"causal", "window", "window causal"}, others;
    for (const MaskKind& each : mask_kinds()) {
      if (each.kind == Mask::Kind::full || each.kind == Mask::Kind::band || each.combines) continue;
      (each.is_anchored ? anchored : others).emplace_back(each.declared);
    }
    for (const std::string& form : anchored) {
      if (!has(form.substr(0, form.find(' ')))) continue;
      const auto takes = [&](const char* corner) {
        return contains(taken.get<std::vector<std::string>>(), form + corner);
      };
      const bool top = takes(" top_left"), bottom = takes(" bottom_right");
      narrow |= !top || !bottom;
      if (top && bottom) {
        masks.push_back(form);
      } else if (top || bottom) {
        masks.push_back(form + (top ? " top_left" : " bottom_right"));
      }
    }
    for (const std::string& form : others) {
      if (has(form)) masks.push_back(form);
    }
    return narrow ? masks : json();
  }

  void add_dialect(nlohmann::ordered_json& out) const {
    const json o = value("empty_rows.o"), lse = value("empty_rows.lse");
    const bool apart = value("lse.as") == "maximum_and_sum";
    if (!o.is_null() && o != 0) out["empty_rows"]["o"] = o;
    if (!lse.is_null() && lse != "-inf" && has("lse") && !apart) out["empty_rows"]["lse"] = lse;
    if (value("lse.base") == 2) out["lse"]["base"] = 2;
    if (apart) out["lse"]["as"] = "maximum_and_sum";
    if (!has("window")) return;
    const bool width = value("window.said_by") == "width";
    if (width) out["window"]["said_by"] = "width";
    for (const char* end : {"left", "right"}) {
      if (!width && value(std::string("window.") + end) == "exclusive") {
        out["window"][end] = "exclusive";
      }
    }
    if (const json number = value("window.unbounded"); number.is_number()) {
      out["window"]["unbounded"] = number;
    }
  }

  // Key by key, as long as a declaration may say so.
  void add_arithmetic(DType dtype, nlohmann::ordered_json& out) {
    const std::string format(name(dtype)), prefix = key_of(dtype, "");
    json said = json::object();
    const auto try_it = [&](const std::string& key, const json& with) {
      try {
        parse_arithmetic(with, dtype, "");
        said = with;
      } catch (const InputError& error) {
        left_out_.push_back(fmt::format("{}{}: {}", prefix, key, error.what()));
        const bool beyond = key.starts_with("products") || key == "softmax" || key == "scores";
        if (beyond) out["beyond_caps"][format] = fmt::format("{}: {}", key, error.what());
      }
    };
    for (const Answer& answer : probed_.answers) {
      if (!answer.key.starts_with(prefix) || !answer.told()) continue;
      if (answer.declared == Answer::Declared::any) continue;
      const std::string key = answer.key.substr(prefix.size());
      json with = said;
      if (key.starts_with("products.")) {
        const std::size_t dot = key.rfind('.');
        with["products"][key.substr(9, dot - 9)][key.substr(dot + 1)] = answer.value;
      } else if (key == "exp_ulp" || key == "tanh_ulp") {
        // A lower bound: the default, unless that is less.
        const Arithmetic usual = loosest(dtype);
        const double most = (key == "exp_ulp" ? usual.exp_error : usual.tanh_error) /
                            (2 * unit_roundoff(wide_of(dtype)));
        if (answer.value.get<double>() <= most) continue;
        with[key] = answer.value;
      } else {
        with[key] = answer.value;
      }
      try_it(key, with);
    }
    out["arithmetic"][format] = said;
  }

  const Testee& testee_;
  const Probed& probed_;
  std::vector<std::string>& left_out_;
  std::vector<std::string> features_;
};

// ---- Beside the testee's own -------------------------------------------------------------------

// What a declaration says that says nothing: of what nobody does by saying nothing.
json default_of(const std::string& key) {
  static const std::map<std::string, json> kDefaults = {{"operands", "exact"},
                                                        {"exp_zero", "exact"},
                                                        {"row_sum", "p"},
                                                        {"p_rounding", "nearest"},
                                                        {"max_lag", 0},
                                                        {"max_rounding", "exact"},
                                                        {"block_order", "monotone"},
                                                        {"gradient_block", 0},
                                                        {"grouped_gradients", "wide"},
                                                        {"dbias_terms", "wide"},
                                                        {"lse.base", "e"},
                                                        {"lse.as", "lse"},
                                                        {"window.said_by", "ends"},
                                                        {"window.left", "inclusive"},
                                                        {"window.right", "inclusive"},
                                                        {"empty_rows.o", 0},
                                                        {"empty_rows.lse", "-inf"},
                                                        {"window.unbounded", "none"},
                                                        {"leaves_padding_unwritten", false}};
  const auto at = kDefaults.find(key);
  return at == kDefaults.end() ? json() : at->second;
}

json at_path(const json& root, const std::string& path) {
  const json* at = &root;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const auto next = at->is_object() ? at->find(path.substr(begin, end - begin)) : at->end();
    if (!at->is_object() || next == at->end()) return nullptr;
    at = &*next;
    begin = end + 1;
  }
  return *at;
}

// What is declared of a key; null if nothing is, nor by default.
json declared_of(const Description& own, const std::string& key) {
  if (key == "keep_quantum") return own.keep_quantum;
  if (key == "leaves_padding_unwritten") return own.leaves_padding_unwritten;
  if (key == "threads") return own.threads;
  if (key == "alignment") return own.alignment;
  if (key == "features.lse") return own.has("lse");
  constexpr std::string_view kArithmetic = "arithmetic.";
  if (!key.starts_with(kArithmetic)) {
    const json said = at_path(own.declared_dialect, key);
    return said.is_null() ? default_of(key) : said;
  }
  const std::string path = key.substr(kArithmetic.size());
  json said = at_path(own.declared_arithmetic, path);
  const std::size_t product = path.find("products.");
  if (said.is_null() && product != std::string::npos) {
    const std::string products = path.substr(0, product + 9);
    const std::string named = path.substr(products.size(), path.rfind('.') - products.size());
    if (at_path(own.declared_arithmetic, products + named).is_null()) {
      said = at_path(own.declared_arithmetic, products + "default" + path.substr(path.rfind('.')));
    }
  }
  if (said.is_null() && path.ends_with(".scores")) {
    return name(wide_of(dtype_named(path.substr(0, path.find('.'))).value()));
  }
  return said.is_null() ? default_of(path.substr(path.rfind('.') + 1)) : said;
}

bool contradicts(const Answer& answer, const json& declared) {
  // What is said in words nobody checks.
  const bool in_words = declared.is_string() && declared != "inf" && declared != "-inf";
  if (answer.key.starts_with("empty_rows.") && in_words) return false;
  switch (answer.declared) {
    case Answer::Declared::any:
      return false;
    case Answer::Declared::promise:
      return declared == true && answer.value == false;
    case Answer::Declared::at_least:
      // A number of parts of 0 is any number.
      return declared.is_number() && answer.value.is_number() &&
             !(answer.key.ends_with("kv_splits") && declared == 0) &&
             declared.get<double>() < answer.value.get<double>();
    case Answer::Declared::at_most:
      return declared.is_number() && answer.value.is_number() &&
             declared.get<double>() > answer.value.get<double>();
    case Answer::Declared::equal:
      break;
  }
  // What is declared of a tensor of f32 may be no number of it.
  if (declared.is_number() && answer.value.is_number() &&
      static_cast<float>(declared.get<double>()) == answer.value.get<float>()) {
    return false;
  }
  return declared != answer.value;
}

}  // namespace

nlohmann::ordered_json declaration_of(const Testee& testee, const Probed& probed,
                                      std::vector<std::string>& left_out) {
  return Writer(testee, probed, left_out).write();
}

std::vector<Contradiction> contradictions(const Description& own, const Answers& answers) {
  std::vector<Contradiction> all;
  for (const Answer& answer : answers) {
    const auto add = [&](const std::string& declared) {
      const std::string told = answer.told() ? json_text(answer.value) + ": " : "";
      all.push_back({answer.key, declared, told + answer.words, answer.inputs});
    };
    if (!answer.against.empty()) {
      add(answer.against);
      continue;
    }
    if (!answer.told() || !answer.is_key) continue;
    const json declared = declared_of(own, answer.key);
    if (!declared.is_null() && contradicts(answer, declared)) add(json_text(declared));
  }
  return all;
}

}  // namespace attest
