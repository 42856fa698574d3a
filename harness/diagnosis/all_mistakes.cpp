#include "harness/diagnosis/mistake.h"

#include <utility>

#include "harness/diagnosis/setting.h"

namespace attest {
namespace {

// The same from a key on alone: what a kernel does in all tiles but the first, or in no part of the
// keys but the first. Of mistakes that change scores or the mask.
Mistake from_key(const Mistake& whole, Index first) {
  Mistake part = whole;
  part.name += ", from key " + std::to_string(first) + " on";
  part.alter = [alter = whole.alter, first](Setting& s) {
    if (s.problem.key_len <= first) return false;
    const Setting before = s;
    Setting after = s;
    if (!alter(after)) return false;
    set_visible(s, [&](const Position& at) {
      return visible(at.key < first ? before.problem : after.problem, at);
    });
    return set_scores(s, [&](const Position& at, const Score&) {
      return score_of(at.key < first ? before : after, at).whole();
    });
  };
  return part;
}

std::vector<Mistake> all_mistakes() {
  std::vector<Mistake> all;
  for (auto family : {score_mistakes(), mask_mistakes(), length_mistakes(), head_mistakes(),
                      output_mistakes(), dropout_mistakes(), gradient_mistakes()}) {
    for (Mistake& each : family) all.push_back(std::move(each));
  }
  std::vector<Mistake> parts;
  for (const Mistake& each : all) {
    const bool of_scores =
        each.name == "no softcap" || each.clause == "SCORE-3" || each.clause == "SCORE-4";
    const bool of_tables =
        each.name == "no dense mask" || each.name == "the mask of the first batch element";
    if (!each.only.empty() || !(of_scores || of_tables)) continue;
    for (const Index first : {64, 96, 128, 512}) parts.push_back(from_key(each, first));
  }
  for (Mistake& each : parts) all.push_back(std::move(each));
  return all;
}

}  // namespace

const std::vector<Mistake>& mistakes() {
  static const std::vector<Mistake> all = all_mistakes();
  return all;
}

}  // namespace attest
