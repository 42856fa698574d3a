// The problems of a search, by number. Most are drawn afresh, the others are made of entries of the
// suite; to some a law is added that applies. What turns out to be no case, to have no inputs, to
// need what the testee does not declare or to cost too much, is drawn again.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cases/entry.h"
#include "harness/fuzz/dice.h"
#include "harness/fuzz/random_entry.h"
#include "harness/run/examine.h"
#include "spec/description.h"

namespace attest {

// The stem of their ids.
inline constexpr const char* kFuzzStem = "found";

// A problem as an entry, which holds all that it takes to repeat it, and ready to be judged.
struct Drawn {
  nlohmann::json entry;
  PreparedCase prepared;
  int refused = 0;  // how many were drawn before it and were no such problem
};

// The same without a law, which may have had nothing to compare.
Drawn without_laws(const Drawn& drawn);

// An instance of the testee's own dispatch that a problem is drawn for.
struct Aim {
  const Dispatch* dispatch;
  DispatchClasses instance;
};

class Draws {
 public:
  // All that is referred to must outlive the draws.
  Draws(const Scope& scope, const std::vector<CaseWithEntry>& suite, std::uint64_t seed);

  // Depends on nothing but the seed, the number, the suite, the formats, and what the testee
  // declares. Several threads may draw at the same time.
  Drawn draw(std::uint64_t number) const;

  // Of three in four problems of a testee that declares a dispatch; null of the others. What no
  // problem was found for in a while is drawn without.
  const Aim* aim_of(std::uint64_t number) const;

  // Entries of the suite of which problems are made.
  std::size_t pool_size() const { return pool_.size(); }

 private:
  std::string name_of(std::uint64_t number) const;
  nlohmann::json entry(const Scope& scope, Dice& dice, bool afresh) const;
  void add_law(nlohmann::json& entry, const Case& test_case, Dice& dice) const;

  Scope scope_;
  std::uint64_t seed_;
  std::vector<const nlohmann::json*> pool_;
  std::vector<Aim> aims_;
};

}  // namespace attest
