// JSON that knows its lines, so that every complaint about a case file can name one.
//
// Stricter than JSON: a key that stands twice in one object is an error, where most readers keep
// the last one and say nothing.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "spec/json_reader.h"

namespace attest {

class LocatedJson {
 public:
  // Throws InputError for what is no JSON, and for duplicate keys; `file` is named in all errors.
  LocatedJson(std::string_view text, std::string file);

  const nlohmann::json& root() const { return root_; }

  // The line of a JSON pointer, or of the nearest value that encloses it.
  int line_of(std::string pointer) const;

  // The same error with "FILE:LINE: " before its text.
  InputError locate(const InputError& error) const;

 private:
  std::string file_;
  nlohmann::json root_;
  std::map<std::string, int> lines_;
};

}  // namespace attest
