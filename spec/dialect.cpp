#include "spec/dialect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>

#include "spec/assert.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One of two words, the first unless it says otherwise; whether it is the second.
bool says(ObjectReader& reader, const std::string& key, const std::string& usual,
          const std::string& other) {
  const nlohmann::json* value = reader.find(key);
  if (!value || *value == usual) return false;
  if (*value == other) return true;
  throw InputError(reader.pointer(key), fmt::format("\"{}\" is \"{}\" or \"{}\", not {}", key,
                                                    usual, other, json_text(*value)));
}

LseForm parse_lse(const nlohmann::json& json) {
  ObjectReader reader(json, "/lse");
  LseForm form;
  form.apart = says(reader, "as", "lse", "maximum_and_sum");
  if (const nlohmann::json* base = reader.find("base")) {
    form.base_2 = *base == 2;
    if (!form.base_2 && *base != "e") {
      throw InputError(reader.pointer("base"),
                       fmt::format("the base of LSE is \"e\" or 2, not {}", json_text(*base)));
    }
  }
  reader.finish();
  return form;
}

WindowEnds parse_window(const nlohmann::json& json) {
  ObjectReader reader(json, "/window");
  WindowEnds ends;
  ends.left_exclusive = says(reader, "left", "inclusive", "exclusive");
  ends.right_exclusive = says(reader, "right", "inclusive", "exclusive");
  ends.centred = says(reader, "said_by", "ends", "width");
  if (ends.centred && (reader.find("left") || reader.find("right"))) {
    throw InputError(reader.pointer("said_by"),
                     "a window that is said by its width alone has no \"left\" and no \"right\"");
  }
  ends.unbounded = reader.get_or("unbounded", ends.unbounded);
  reader.finish();
  return ends;
}

// A number, which is checked, or words, which are not.
EmptyRows parse_empty(ObjectReader& reader, const std::string& key, double standard) {
  const nlohmann::json* json = reader.find(key);
  if (!json) return {};
  const auto holds = [&](double value) {
    return EmptyRows{.differs = value != standard, .value = value};
  };
  if (json->is_number()) return holds(json->get<double>());
  if (!json->is_string()) {
    throw InputError(
        reader.pointer(key),
        fmt::format("\"{}\" is a number, \"inf\", \"-inf\", or what empty rows hold in "
                    "words, not {}",
                    key, json_text(*json)));
  }
  const std::string text = line_of(reader, key);
  if (text == "inf" || text == "+inf") return holds(kInfinity);
  if (text == "-inf") return holds(-kInfinity);
  if (text.find_first_not_of(" ") == std::string::npos) {
    throw InputError(reader.pointer(key), "say in words what empty rows hold");
  }
  if (text.find_first_not_of("+-.0123456789eE ") == std::string::npos) {
    throw InputError(reader.pointer(key),
                     fmt::format("\"{}\" in quotes is taken for words, which nobody checks: write "
                                 "the number without them",
                                 text));
  }
  return {.differs = true};
}

void parse_empty_rows(const nlohmann::json& json, Dialect& result) {
  ObjectReader reader(json, "/empty_rows");
  result.empty_o = parse_empty(reader, "o", 0);
  const bool parts = reader.find("maximum") || reader.find("sum");
  if (!result.lse.apart) {
    if (parts) {
      throw InputError(reader.pointer(reader.find("maximum") ? "maximum" : "sum"),
                       "a maximum and a sum are returned where \"lse\" is declared \"as\" "
                       "\"maximum_and_sum\"; of empty rows of LSE say \"lse\"");
    }
    result.empty_lse = parse_empty(reader, "lse", -kInfinity);
    reader.finish();
    return;
  }
  if (reader.find("lse")) {
    throw InputError(reader.pointer("lse"),
                     "LSE is returned as a maximum and a sum: say \"maximum\" and \"sum\"");
  }
  if (parts) {
    for (const char* key : {"maximum", "sum"}) (void)reader.at(key);  // one says nothing
    EmptyRows &maximum = result.empty_maximum, &sum = result.empty_sum;
    maximum = parse_empty(reader, "maximum", std::nan(""));
    sum = parse_empty(reader, "sum", std::nan(""));
    if (maximum.value && sum.value) {
      const double lse = natural_lse(result.lse, *maximum.value, *sum.value);
      if (std::isnan(lse)) {
        throw InputError("/empty_rows",
                         "the maximum and the sum of empty rows add up to no LSE: "
                         "say in words what they hold");
      }
      maximum.differs = sum.differs = lse != -kInfinity;
    }
  }
  reader.finish();
}

}  // namespace

std::vector<TensorName> Dialect::statistics() const {
  if (lse.apart) return {TensorName::maximum, TensorName::sum};
  return {TensorName::lse};
}

const EmptyRows& Dialect::empty(TensorName tensor) const {
  switch (tensor) {
    case TensorName::o:
      return empty_o;
    case TensorName::maximum:
      return empty_maximum;
    case TensorName::sum:
      return empty_sum;
    default:
      ATTEST_ASSERT(tensor == TensorName::lse);
      return empty_lse;
  }
}

bool Dialect::lse_of_empty_differs() const {
  return lse.apart ? empty_maximum.differs || empty_sum.differs : empty_lse.differs;
}

Dialect parse_dialect(const nlohmann::json& keys) {
  Dialect result;
  const auto find = [&](const char* key) -> const nlohmann::json* {
    const auto place = keys.find(key);
    return place == keys.end() ? nullptr : &*place;
  };
  if (const auto* lse = find("lse")) result.lse = parse_lse(*lse);
  if (const auto* rows = find("empty_rows")) parse_empty_rows(*rows, result);
  if (const auto* window = find("window")) result.window = parse_window(*window);
  return result;
}

std::optional<WindowNumbers> numbers_of(const Mask& band, const WindowEnds& ends) {
  const Index left = band.left, right = band.right;
  if (!is_window(band) || ends == WindowEnds{}) return WindowNumbers{left, right};
  if (ends.centred) {
    if (left == kUnbounded || right == kUnbounded) {
      if (left != right) return std::nullopt;
      return WindowNumbers{ends.unbounded, ends.unbounded};
    }
    if (left != right && left != right + 1) return std::nullopt;
    const Index width = left + right + 1;
    if (width == ends.unbounded) return std::nullopt;
    return WindowNumbers{width, width};
  }
  const auto said = [&](Index end, bool exclusive) -> std::optional<Index> {
    if (end == kUnbounded) return ends.unbounded;
    const Index number = exclusive ? end + 1 : end;
    if (number == ends.unbounded) return std::nullopt;  // it means another window
    return number;
  };
  const auto l = said(left, ends.left_exclusive), r = said(right, ends.right_exclusive);
  if (!l || !r) return std::nullopt;
  return WindowNumbers{*l, *r};
}

std::string unsayable(const Mask& mask, const WindowEnds& ends) {
  if (ends == WindowEnds{}) return "";
  if (mask.kind == Mask::Kind::band && !numbers_of(mask, ends)) {
    return fmt::format("{} cannot be said in windows {}", to_string(mask), to_string(ends));
  }
  for (const Mask& part : mask.parts) {
    if (std::string words = unsayable(part, ends); !words.empty()) return words;
  }
  return "";
}

std::string to_string(const WindowEnds& ends) {
  if (ends == WindowEnds{}) return "";
  std::vector<std::string> words;
  if (ends.centred) words.emplace_back("said by their width");
  if (ends.left_exclusive && ends.right_exclusive) {
    words.emplace_back("with exclusive ends");
  } else if (ends.left_exclusive || ends.right_exclusive) {
    words.push_back(fmt::format("exclusive on the {}", ends.left_exclusive ? "left" : "right"));
  }
  if (ends.unbounded != kUnbounded) {
    words.push_back(fmt::format("where {} is without limit", ends.unbounded));
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

double natural_lse(const LseForm& form, double statistic, double sum) {
  long double lse = statistic;
  // 0 times log 2 is 0, and an infinity stays what it is.
  if (form.base_2) lse *= std::numbers::ln2_v<long double>;
  if (form.apart) lse += std::log(static_cast<long double>(sum));
  return static_cast<double>(lse);
}

}  // namespace attest
