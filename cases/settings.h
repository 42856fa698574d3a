// What "defaults" of a case file and its entries both may say of the cases, beside their problem;
// an entry's word wins.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cases/case.h"
#include "spec/json_reader.h"

namespace attest {

// read_names, of which none may stand twice.
std::vector<std::string> read_distinct_names(const nlohmann::json& list, const std::string& pointer,
                                             std::string_view what,
                                             const std::vector<std::string>& known);

struct Settings {
  std::vector<std::string> dtypes = {"f32", "f16", "bf16"};
  std::vector<std::string> data = {"normal"};
  Hidden hidden = Hidden::plain;
  Check check = Check::none;
  Index excerpt = 0;
  std::optional<ExcerptHeads> excerpt_heads = {};
  bool statistical = false;
  std::vector<std::string> laws = {};
  std::vector<std::string> pin = {};  // sizes that no fitting changes (fit.h)
  Tier tier = Tier::standard;

  void read(ObjectReader& reader);

  // All but what a case has one of.
  void write(nlohmann::json& entry) const;
};

// The keys that Settings read; all others of "defaults" are fields of a problem.
inline constexpr const char* kSettingKeys[] = {"dtypes",      "data", "hidden", "check", "excerpt",
                                               "statistical", "laws", "pin",    "tier"};

}  // namespace attest
