// A shape as the entry of a case file that it becomes, and where it was written.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace attest {

struct ShapeEntry {
  nlohmann::json entry;  // "name", "problem", and what else is known
  int line;
};

// `text` as a name of an entry: lower case, with _ for what no name may have.
std::string as_name(std::string_view text);

}  // namespace attest
