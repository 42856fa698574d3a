// What came of a question: what the testee does, told by what it returned, or why that is not told.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace attest {

struct Answer {
  // What a declared value may be beside the one that was told.
  enum class Declared {
    equal,     // nothing else
    at_least,  // anything as large: a lower bound was seen
    at_most,   // anything as small
    promise,   // whoever promises nothing is right whatever was seen
    any,       // whatever is declared comes to the same
  };

  std::string key;            // of a description: "arithmetic.f16.products.qk.truncates"
  nlohmann::json value = {};  // null: it cannot be told
  std::string words = {};     // what was seen, or why it cannot be told
  std::string inputs = {};    // what told: the problem in a line, and the numbers
  Declared declared = Declared::equal;
  std::string against = {};  // what it is against of the testee's own declaration, if that is seen
  bool is_key = true;        // of a description; else what no description says

  bool told() const { return !value.is_null(); }
};

using Answers = std::vector<Answer>;

// Of what it does not have: no key that could be told.
inline Answer means_nothing(std::string key, std::string why) {
  return {.key = std::move(key), .words = std::move(why), .is_key = false};
}

inline Answer untold(std::string key, std::string why, std::string inputs = {}) {
  return {.key = std::move(key), .words = std::move(why), .inputs = std::move(inputs)};
}

}  // namespace attest
