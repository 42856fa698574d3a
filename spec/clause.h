// The clauses of the standard, as the code knows them. SPEC.md holds their text; a test proves that
// the two lists are the same, that every clause has a case, and that every case cites a clause.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace attest {

enum class Level { required, recommended, optional };

struct Clause {
  std::string_view id;  // "MASK-3": by topic, so that chapters can move
  Level level;
  std::string_view title;  // a few words; the statement itself stands in SPEC.md
};

// All clauses, in the order of SPEC.md.
std::span<const Clause> clauses();

// The clause of that id; null if there is none.
const Clause* find_clause(std::string_view id);

// Whether there is a clause of that id, and it is recommended: what breaks it is warned of.
bool is_recommended(std::string_view id);

// Whether it speaks of the backward pass alone.
bool is_of_gradients(std::string_view id);

// Whether it is about calls of a testee: outputs that are there already say nothing of it. All of
// them in words: "CALL, DET, DROP-3, ...".
bool takes_calls(std::string_view id);
std::string clauses_of_calls();

std::string_view name(Level level);

}  // namespace attest
