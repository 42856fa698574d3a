// How a mistake changes a setting: the mask by a rule, scores by a formula, a table by its places.
#pragma once

#include <functional>
#include <limits>

#include "harness/diagnosis/mistake.h"

namespace attest {

inline constexpr double kInfinite = std::numeric_limits<double>::infinity();

// What a score is made of.
struct Score {
  double product;  // q.k
  double capped;   // after scale and softcap
  double bias;     // 0 without one
  double alibi;    // likewise
  double whole() const { return capped + bias + alibi; }
};
Score score_of(const Setting& setting, const Position& at);

// The largest of those that the query of a position sees, its sink among them; -inf if it sees
// none. Found once for each query; the setting must outlive it.
std::function<double(const Position&)> largest_scores(const Setting& setting);

// Calls `visit` for each query and key within the lengths.
void for_each_pair(const Problem& problem, const std::function<void(const Position&)>& visit);

// A mask that shows what `sees` says, within the lengths.
void set_visible(Setting& setting, const std::function<bool(const Position&)>& sees);

// Scores of what is visible as `score` says; ALiBi and bias become one bias. The derivative of a
// softcap stays, unless it is dropped. False if some score would be NaN or infinite.
bool set_scores(Setting& setting, const std::function<double(const Position&, const Score&)>& score,
                bool drops_cap = false);

// Rows that see no key see all, at scores of 0. False if set_scores() is.
bool fill_empty_rows(Setting& setting);

// Each band of a mask, with those within others.
bool change_bands(Mask& mask, const std::function<bool(Mask&)>& change);

// The mask without its parts of that kind: they hide nothing.
bool drop_parts(Mask& mask, Mask::Kind kind);

// A tensor of the same shape, whose element at a place is that at another one.
using Move = std::function<void(Index& b, Index& h, Index& s)>;
Values moved(const Values& values, const Move& move);

}  // namespace attest
