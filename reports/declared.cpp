#include "reports/declared.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <nlohmann/json.hpp>

#include "reports/text.h"
#include "spec/arithmetic.h"
#include "spec/contains.h"
#include "spec/dialect.h"
#include "spec/dtype.h"
#include "spec/feature.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"

namespace attest {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

// A record may have been written by anybody: what is of no form that we know is shown as it is.
std::string plain(const json& value) {
  if (value.is_string() && value != "") return value.get<std::string>();
  return json_text(value);
}

std::string joined(const Words& words, std::string_view by) {
  return fmt::format("{}", fmt::join(words, by));
}

// "64, 96 or 128", "[64, 64] or [192, 128]"
std::string alternatives(const json& list) {
  Words words;
  for (const json& each : list) {
    Words pair;
    for (const json& size : each.is_array() ? each : json::array()) pair.push_back(plain(size));
    words.push_back(each.is_array() ? fmt::format("[{}]", joined(pair, ", ")) : plain(each));
  }
  if (words.size() < 2) return joined(words, "");
  const std::string last = words.back();
  words.pop_back();
  return fmt::format("{} or {}", joined(words, ", "), last);
}

// "1 to 4096, a multiple of 16"
std::string range_words(const json& range) {
  Words words;
  const bool from = range.contains("min"), to = range.contains("max");
  if (from && to) {
    words.push_back(fmt::format("{} to {}", plain(range["min"]), plain(range["max"])));
  } else if (from || to) {
    words.push_back(from ? "at least " + plain(range["min"]) : "at most " + plain(range["max"]));
  }
  for (const auto& [key, value] : range.items()) {
    if (key == "multiple") words.push_back("a multiple of " + plain(value));
    if (key != "multiple" && key != "min" && key != "max") {
      words.push_back(fmt::format("{} {}", key, plain(value)));
    }
  }
  return joined(words, ", ");
}

// Of a term that needs no words of its own; empty if it says nothing.
std::string term_words(const std::string& key, const json& value) {
  if (value.is_boolean()) return value == true ? key : "";
  if (value.is_array()) return fmt::format("{} {}", key, alternatives(value));
  if (value.is_object()) return fmt::format("{} {}", key, range_words(value));
  return fmt::format("{} {}", key, plain(value));
}

void add(Words& words, const std::string& text) {
  if (!text.empty()) words.push_back(text);
}

// Of limits, those of a pass and of a format: "head_dim 64; in f16 no features but causal".
std::string limits_words(const json& limits) {
  if (!limits.is_object()) return plain(limits);
  Words words;
  for (const auto& [key, value] : limits.items()) {
    if (key == "never" && value.is_array()) continue;
    if (key == "backward" && value.is_object()) {
      const std::string own = limits_words(value);
      if (!own.empty()) words.push_back("in a backward pass " + own);
    } else if (key == "dtypes" && value.is_object()) {
      for (const auto& [dtype, terms] : value.items()) {
        const std::string own = limits_words(terms);
        if (!own.empty()) words.push_back(fmt::format("in {} {}", dtype, own));
      }
    } else if (key == "features" && value.is_array()) {
      Words features;
      for (const json& each : value) features.push_back(plain(each));
      words.push_back("no features but " + joined(features, ", "));
    } else {
      add(words, term_words(key, value));
    }
  }
  return joined(words, "; ");
}

// "softcap with dropout, in f16"
std::string never_words(const json& never) {
  if (!never.is_object()) return plain(never);
  Words words;
  const auto list = [](const json& names) {
    Words all;
    for (const json& each : names) all.push_back(plain(each));
    return all;
  };
  for (const auto& [key, value] : never.items()) {
    if (key == "backward" && value.is_boolean()) {
      words.emplace_back(value == true ? "a backward pass" : "no backward pass");
    } else if (key == "features" && value.is_array()) {
      words.push_back(joined(list(value), " with "));
    } else if (key == "lacks" && value.is_array()) {
      words.push_back("without " + joined(list(value), ", "));
    } else if (key == "dtypes" && value.is_array()) {
      words.push_back("in " + alternatives(value));
    } else {
      add(words, term_words(key, value));
    }
  }
  return joined(words, ", ");
}

std::string all_never_words(const json& limits) {
  if (!limits.is_object() || !limits.contains("never") || !limits["never"].is_array()) return "";
  Words words;
  for (const json& each : limits["never"]) add(words, never_words(each));
  return joined(words, "; ");
}

std::string dialect_words(const json& said) {
  if (said.empty()) return "";
  if (!said.is_object()) return plain(said);
  Words words;
  try {
    const Dialect dialect = parse_dialect(said);
    const std::string base = dialect.lse.base_2 ? " in base 2" : "";
    if (dialect.lse.apart) {
      words.push_back(fmt::format("a maximum{} and a sum in place of LSE", base));
    } else {
      add(words, base.empty() ? "" : "LSE" + base);
    }
    const std::string windows = to_string(dialect.window);
    add(words, windows.empty() ? "" : "windows " + windows);
  } catch (const InputError&) {
    return plain(said);
  }
  Words empty;
  const json rows = said.value("empty_rows", json::object());
  for (const auto& [key, value] : rows.items()) {
    empty.push_back(fmt::format("{} {}", key, plain(value)));
  }
  add(words, empty.empty() ? "" : "in rows that see no key " + joined(empty, ", "));
  return joined(words, "; ");
}

// What of each format's arithmetic lies beyond the default column; formats alike together.
std::string beyond_default_words(const TesteeRecord& testee) {
  std::vector<std::pair<std::string, Words>> formats;  // by what is said of them
  for (const std::string& dtype : testee.dtypes) {
    const auto format = dtype_named(dtype);
    if (!format || !testee.arithmetic.is_object() || !testee.arithmetic.contains(dtype)) continue;
    std::string words;
    try {
      words = joined(
          beyond_default(parse_arithmetic(testee.arithmetic[dtype], *format, "/" + dtype)), ", ");
    } catch (const InputError&) {
      words = plain(testee.arithmetic[dtype]);
    }
    if (words.empty()) continue;
    const auto same = std::find_if(formats.begin(), formats.end(),
                                   [&](const auto& each) { return each.first == words; });
    if (same == formats.end()) {
      formats.push_back({words, {dtype}});
    } else {
      same->second.push_back(dtype);
    }
  }
  Words all;
  for (const auto& [words, dtypes] : formats) {
    all.push_back(fmt::format("{} in {}", words, joined(dtypes, ", ")));
  }
  return joined(all, "; ");
}

std::string beyond_caps_words(const TesteeRecord& testee) {
  Words all;
  for (const auto& [dtype, words] : testee.beyond_caps) {
    all.push_back(fmt::format("{} in {}", words, dtype));
  }
  return joined(all, "; ");
}

std::string undeclared_words(const TesteeRecord& testee) {
  Words missing;
  for (const std::string& feature : known_features()) {
    if (!contains(testee.features, feature)) missing.push_back(feature);
  }
  return joined(missing, ", ");
}

std::string dispatch_words(const TesteeRecord& testee) {
  Words tables;
  for (const DispatchRecord& each : testee.dispatch) {
    tables.push_back(
        fmt::format("cases in {} of {} instances of {}", each.met, each.instances, each.table));
    if (each.met > 0) tables.back() += fmt::format(", at least {} in each", each.fewest);
  }
  return joined(tables, "; ");
}

}  // namespace

std::vector<DeclaredFact> declared_facts(const TesteeRecord& testee) {
  constexpr std::size_t kBytes = 300;  // of the beginning and of the end of what is long
  std::vector<DeclaredFact> facts;
  const auto say = [&](const char* what, const std::string& words) {
    if (!words.empty()) facts.push_back({what, one_line(excerpt(words, kBytes))});
  };
  if (testee.probed) say("Declaration", "told from results by attest probe, and not adopted");
  say("Formats", joined(testee.dtypes, ", "));
  say("Limits", limits_words(testee.limits));
  say("Never", all_never_words(testee.limits));
  say("Otherwise than the standard", dialect_words(testee.dialect));
  say("Beyond the default", beyond_default_words(testee));
  say("Beyond the caps", beyond_caps_words(testee));
  say("Dispatch", dispatch_words(testee));
  say("Not declared", undeclared_words(testee));
  return facts;
}

}  // namespace attest
