// Negative controls: a feature that a case has must be seen in its numbers, and so must each axis
// of a table, or a kernel that makes this mistake would pass (feature_matters.h).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>

#include "tests/cases/feature_matters.h"

namespace attest {
namespace {

// Entries, or single points of them, in which a feature is there for something else than its own
// effect.
bool is_exception(const std::string& point, const std::string& feature) {
  static const std::set<std::pair<std::string, std::string>> kExceptions = {
      {"score/softcap/nearly_linear", "softcap"},  // as good as the identity, on purpose
      {"sink/sinks/negligible", "sink"},           // far below all scores, on purpose
      {"grad/scores/sink_negligible", "sink"},
      {"mask/unions/with_full", "part of a mask"},  // a union with everything
      {"mask/unions/of_nothing", "part of a mask"},
      {"mask/dilated/steps/n=1", "mask"},  // hides nothing, at the edge of what is legal
      {"mask/prefix/alone/mask=prefix_37", "mask"},
      {"mask/segments/interleaved", "batch axis of a mask"},  // other numbers, the same documents
      {"mask/segments/resumed", "batch axis of a mask"},
      {"mask/segments/padding", "batch axis of a mask"},
      {"mask/segments/backward", "batch axis of a mask"},
      {"mask/segments/documents/length=1", "batch axis of a mask"},
      {"sink/sinks/segments", "batch axis of a mask"},
      {"pairs/forms/dense_mask_packed_and_paged/axes=", "pages"},  // one word for all: nothing
      {"mask/edges/outside_in_pages", "pages"},                    // no row sees a key, on purpose
  };
  for (const auto& [place, name] : kExceptions) {
    if (name == feature && (point + "/").starts_with(place + "/")) return true;
  }
  return false;
}

TEST(FeatureMattersTest, EveryCaseShowsEachOfItsFeatures) {
  std::map<std::pair<std::string, std::string>, bool> shown;
  for (const Case& c : load_cases(ATTEST_CASES_DIR)) {
    if (c.tier == Tier::full || !matters::tells(c)) continue;
    // One format and one class of inputs that show it are enough.
    const std::string point = c.id.substr(0, c.id.find("/dtype="));
    const auto is_known = [&](const std::string& feature) {
      const auto known = shown.find({point, feature});
      return known != shown.end() && known->second;
    };
    for (const auto& [feature, is_shown] : matters::shown_in(c, is_known)) {
      shown[{point, feature}] = is_shown;
    }
  }
  for (const auto& [key, is_shown] : shown) {
    if (is_exception(key.first, key.second)) continue;
    EXPECT_TRUE(is_shown) << key.first << " is the same without its " << key.second;
  }
  fmt::print("{} features of problems are seen in their numbers\n", shown.size());
  EXPECT_GT(shown.size(), 1500u);
}

}  // namespace
}  // namespace attest
