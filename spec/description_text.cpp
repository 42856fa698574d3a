#include "spec/description_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "spec/json_reader.h"
#include "spec/json_text.h"
#include "spec/named_arithmetic.h"

namespace attest {
namespace {

Description with_arithmetic(const nlohmann::json& declaration, DType dtype,
                            const std::string& pointer) {
  Description description = {.name = "outputs",
                             .version = "",
                             .vendor = "",
                             .profiles = {},
                             .dtypes = {dtype},
                             .features = {"lse"},
                             .arithmetic = {}};
  description.arithmetic[dtype] = parse_arithmetic(declaration, dtype, pointer);
  description.declared_arithmetic[std::string(name(dtype))] = declaration;
  return description;
}

// The declaration for one of the formats, of an object with a key for each.
Description by_format(const nlohmann::json& all, DType dtype) {
  for (const auto& [key, value] : all.items()) {
    if (!dtype_named(key)) throw InputError("/" + key, fmt::format("no format is called {}", key));
  }
  const auto own = all.find(std::string(name(dtype)));
  if (own == all.end()) {
    throw InputError("", fmt::format("it has no arithmetic for {}", name(dtype)));
  }
  return with_arithmetic(*own, dtype, "/" + std::string(name(dtype)));
}

}  // namespace

Description description_by(std::string_view text, DType dtype) {
  const std::size_t first = text.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  if (first == std::string_view::npos || text[first] != '{') {
    return with_arithmetic(declaration_named(text, dtype), dtype, "");
  }
  if (too_deep_at(text, kDeepestJson)) throw InputError("", "its JSON is too deep");
  const nlohmann::json declared = in_whole_numbers(parse_json_if_any(text));
  if (!declared.is_object()) throw InputError("", "it is neither a name nor JSON");
  if (const auto looseness = looseness_of(text)) throw InputError("", "it " + *looseness);
  if (declared.contains("dtypes")) {
    Description whole = parse_description(declared);
    const auto beyond = whole.beyond_caps.find(dtype);
    if (beyond != whole.beyond_caps.end()) {
      throw InputError("/beyond_caps", fmt::format("of {} it says that no bound holds: {}",
                                                   name(dtype), beyond->second));
    }
    if (std::find(whole.dtypes.begin(), whole.dtypes.end(), dtype) == whole.dtypes.end()) {
      throw InputError("/dtypes", fmt::format("it declares no {}", name(dtype)));
    }
    return whole;
  }
  const bool by_formats = std::any_of(kDTypes.begin(), kDTypes.end(), [&](DType each) {
    return declared.contains(std::string(name(each)));
  });
  return by_formats ? by_format(declared, dtype) : with_arithmetic(declared, dtype, "");
}

}  // namespace attest
