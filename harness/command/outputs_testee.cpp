#include "harness/command/outputs_testee.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "spec/json_reader.h"
#include "spec/json_text.h"
#include "spec/read_file.h"

namespace attest {

nlohmann::json read_declaration(const std::filesystem::path& file) {
  const std::string text = read_file(file);
  try {
    return parse_json(text);
  } catch (const nlohmann::json::exception& error) {
    throw InputError("", fmt::format("{}: {}", file.string(), error.what()));
  }
}

Testee outputs_testee(const nlohmann::json& declared, const std::filesystem::path& folder,
                      const std::string& where) {
  Testee testee;
  try {
    testee.description = parse_description(declared);
    if (testee.description.name.empty()) throw InputError("/name", "is empty");
  } catch (const InputError& error) {
    throw InputError("", fmt::format("{}: {}{}{}", where, error.pointer(),
                                     error.pointer().empty() ? "" : ": ", error.what()));
  }
  testee.name = testee.kernel = testee.description.name;
  testee.spec = std::filesystem::absolute(folder).lexically_normal().string();
  return testee;
}

}  // namespace attest
