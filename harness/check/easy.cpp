#include "harness/check/easy.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <tuple>

#include "cases/fit.h"
#include "spec/contains.h"
#include "spec/feature.h"

namespace attest {
namespace {

std::set<std::string_view> features_needed(const Case& c) {
  std::set<std::string_view> names;
  for (const Feature* feature : needed_by(c.problem)) {
    if (feature->key == kOfFeatures) names.insert(feature->name);
  }
  return names;
}

bool hides_nothing(const Case& c) {
  return c.hidden == Hidden::plain && c.check == Check::none && c.laws.empty() && c.excerpt == 0 &&
         c.data == "normal" && element_count(c.problem.o_shape()) > 0 && c.problem.key_len > 0;
}

// Whether wrong strides, heads and lengths would show.
bool tells_axes_apart(const Problem& p) {
  return p.batch > 1 && p.query_heads > 1 && p.query_len > 3 && p.query_len != p.key_len &&
         p.head_dim > 3;
}

// The smaller, the easier.
auto difficulty(const Case& c) {
  const Problem& p = c.problem;
  return std::tuple(p.mask.offset != 0, features_needed(c).size(), !tells_axes_apart(p),
                    !fit_of(c.id).empty(),
                    p.batch * p.query_heads * p.query_len * p.key_len * p.head_dim);
}

}  // namespace

std::vector<Case> easy_cases(const std::vector<Case>& asked) {
  std::vector<const Case*> order;
  for (const Case& c : asked) {
    if (hides_nothing(c)) order.push_back(&c);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const Case* a, const Case* b) { return difficulty(*a) < difficulty(*b); });
  std::vector<const Case*> chosen;
  const auto choose = [&](const std::function<bool(const Case&)>& wanted) {
    for (const Case* c : order) {
      if (contains(chosen, c) || !wanted(*c)) continue;
      chosen.push_back(c);
      return true;
    }
    return false;
  };
  const auto any = [](const Case&) { return true; };
  const auto is_forward = [](const Case& c) { return !c.problem.backward; };
  if (!choose(is_forward) && !choose(any)) return {};
  const Case& first = *chosen.front();
  const auto is_causal = [&](const Case& c) {
    return is_forward(c) && features_needed(c).contains("causal");
  };
  const auto needs_another = [&](const Case& c) {
    return is_forward(c) && features_needed(c) != features_needed(first);
  };
  const bool has_causal = choose(is_causal);
  if (!has_causal && !choose(needs_another)) choose(is_forward);
  // With as many queries as keys the corners are one.
  const auto is_of_other_corner = [&](const Case& c) {
    return is_causal(c) && c.problem.mask.anchor != chosen.back()->problem.mask.anchor &&
           c.problem.query_len != c.problem.key_len;
  };
  const auto is_also_of_first_format = [&](const Case& c) {
    return is_of_other_corner(c) && c.problem.dtype == first.problem.dtype;
  };
  if (has_causal && !choose(is_also_of_first_format)) choose(is_of_other_corner);
  const auto is_of_another_kind = [&](const Case& c) {
    return c.problem.backward || c.problem.dtype != first.problem.dtype;
  };
  if (!choose([](const Case& c) { return c.problem.backward; }) && !choose(is_of_another_kind)) {
    choose(any);
  }
  std::vector<Case> cases;
  for (const Case* c : chosen) cases.push_back(*c);
  return cases;
}

}  // namespace attest
