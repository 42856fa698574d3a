// Negative controls: a feature that a case has must be seen in its numbers. What the problem would
// give without the feature lies outside of the bounds of what it gives with it, or a kernel that
// ignores the feature would pass.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cases/case.h"
#include "cases/generate.h"
#include "cases/keep.h"
#include "reference/working.h"

namespace attest {
namespace {

struct Feature {
  const char* name;
  bool (*remove)(Problem&);  // false if there is none
};

const std::vector<Feature>& features() {
  static const std::vector<Feature> kFeatures = {
      {"softcap", [](Problem& p) { return std::exchange(p.softcap, 0) != 0; }},
      {"bias", [](Problem& p) { return std::exchange(p.bias_shape, std::nullopt).has_value(); }},
      {"alibi", [](Problem& p) { return std::exchange(p.slopes_shape, std::nullopt).has_value(); }},
      {"sink", [](Problem& p) { return std::exchange(p.sink, false); }},
      {"dlse", [](Problem& p) { return std::exchange(p.d_lse, false); }},
      {"dropout",
       [](Problem& p) {
         const Dropout was = std::exchange(p.dropout, {});
         return was.mode != Dropout::Mode::none && was.probability > 0;
       }},
      {"pages",
       [](Problem& p) {  // the next page instead of the one that is meant
         for (auto& row : p.paging.table) {
           for (Index& page : row) page = page < 0 ? page : (page + 1) % p.paging.pages;
         }
         return p.paging.pages > 1;
       }},
      {"part of a mask",
       [](Problem& p) {
         if (p.mask.parts.size() < 2) return false;
         p.mask = Mask(p.mask.parts.front());
         return true;
       }},
      {"mask",
       [](Problem& p) {
         const Mask::Kind was = p.mask.kind;
         p.mask = Mask::full();
         return was == Mask::Kind::prefix || was == Mask::Kind::segments ||
                was == Mask::Kind::block_sparse || was == Mask::Kind::dilated;
       }},
  };
  return kFeatures;
}

// Entries in which a feature is there for something else than its own effect.
const std::set<std::pair<std::string, std::string>>& exceptions() {
  static const std::set<std::pair<std::string, std::string>> kExceptions = {
      {"score/softcap/nearly_linear", "softcap"},  // as good as the identity, on purpose
      {"sink/sinks/negligible", "sink"},           // far below all scores, on purpose
      {"grad/scores/sink_negligible", "sink"},
      {"mask/unions/with_full", "part of a mask"},  // a union with everything
      {"mask/unions/of_nothing", "part of a mask"},
  };
  return kExceptions;
}

bool differs(const Expected& with, const Expected& without) {
  if (with.value.size() != without.value.size()) return false;  // the feature's own gradient
  for (std::size_t i = 0; i < with.value.size(); ++i) {
    const double a = with.value[i], b = without.value[i];
    if (std::isnan(a) || a == b) continue;
    if (!(std::abs(a - b) <= with.bound[i])) return true;
  }
  return false;
}

struct All {
  ForwardExpected forward;
  BackwardExpected backward;
};
All expect(const Problem& p, const Inputs& inputs) {
  All all{.forward = expect_forward(p, inputs, loosest(p.dtype)), .backward = {}};
  if (p.backward) all.backward = expect_backward(p, inputs, loosest(p.dtype));
  return all;
}

bool differs(const All& with, const All& without) {
  const BackwardExpected &a = with.backward, &b = without.backward;
  return differs(with.forward.o, without.forward.o) ||
         differs(with.forward.lse, without.forward.lse) || differs(a.dq, b.dq) ||
         differs(a.dk, b.dk) || differs(a.dv, b.dv) || differs(a.dbias, b.dbias) ||
         differs(a.dsink, b.dsink);
}

std::string entry_of(const Case& c) {
  // The id without axes, dtype, data and seed: file and name.
  const std::string file = c.file.substr(std::string(ATTEST_CASES_DIR "/").size());
  const std::size_t end = c.id.find('/', file.size() - std::string(".json").size() + 1);
  return c.id.substr(0, end);
}

TEST(FeatureMattersTest, EveryEntryShowsEachOfItsFeatures) {
  std::map<std::pair<std::string, std::string>, bool> shown;
  for (const Case& c : load_cases(ATTEST_CASES_DIR)) {
    const Problem& p = c.problem;
    const bool empty =
        std::min({p.batch, p.query_heads, p.query_len, p.key_len, p.head_dim, p.value_dim}) == 0;
    if (c.tier == Tier::full || c.hidden != Hidden::plain || empty) continue;
    std::optional<Inputs> inputs;
    std::optional<All> with;
    for (const Feature& feature : features()) {
      Problem without = p;
      const auto key = std::pair(entry_of(c), std::string(feature.name));
      if (!feature.remove(without) || shown[key]) continue;
      if (!inputs) {
        inputs = generate(c);
        if (p.dropout.mode == Dropout::Mode::generated) inputs->keep = make_keep(p);
        with = expect(p, *inputs);
      }
      shown[key] = differs(*with, expect(without, *inputs));
    }
  }
  for (const auto& [key, is_shown] : shown) {
    if (exceptions().contains(key)) continue;
    EXPECT_TRUE(is_shown) << key.first << " is the same without its " << key.second;
  }
  fmt::print("{} features of entries are seen in their numbers\n", shown.size());
  EXPECT_GT(shown.size(), 250u);
}

}  // namespace
}  // namespace attest
