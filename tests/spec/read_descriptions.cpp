// Reads descriptions, one a line, and says of each on a line of its own what is wrong, or nothing.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "spec/description.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::string error;
    try {
      attest::parse_description(attest::parse_json(line));
    } catch (const attest::InputError& wrong) {
      error = fmt::format("{}: {}", wrong.pointer(), wrong.what());
    }
    std::replace(error.begin(), error.end(), '\n', ' ');
    fmt::print("{}\n", error);
  }
}
