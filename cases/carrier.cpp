#include "cases/carrier.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spec/contains.h"
#include "spec/feature.h"
#include "spec/mask_kind.h"

namespace attest {
namespace {

bool sees_nothing_somewhere(const Problem& p) {
  for (Index b = 0; b < p.batch; ++b) {
    // Rows beyond a length are as empty; and where there is none at all, it is for their sake.
    const Index queries = p.lengths(b).query;
    if (queries == 0 || (!p.packed && queries < p.query_len)) return true;
    for (Index h = 0; h < p.query_heads; ++h) {
      for (Index i = 0; i < p.lengths(b).query; ++i) {
        Index j = 0;
        while (j < p.key_len && !visible(p, {.batch = b, .head = h, .query = i, .key = j})) ++j;
        if (j == p.key_len) return true;
      }
    }
  }
  return false;
}

// Whether something lies where no row sees it: beyond a length, in a page or behind a mask.
bool hides_keys(const Problem& p) {
  for (Index b = 0; b < p.batch; ++b) {
    const Lengths lengths = p.lengths(b);
    const Index page = p.paging.page_size;
    if (page > 0 ? lengths.key % page > 0 : !p.packed && lengths.key < p.key_len) return true;
    for (Index g = 0; g < p.key_heads; ++g) {
      for (Index j = 0; j < lengths.key; ++j) {
        bool seen = false;
        for (Index n = 0; n < p.group_size() * lengths.query && !seen; ++n) {
          seen = visible(p, {.batch = b,
                             .head = g * p.group_size() + n / lengths.query,
                             .query = n % lengths.query,
                             .key = j});
        }
        if (!seen) return true;
      }
    }
  }
  return false;
}

int order_of_lengths(const Problem& p) {
  return (p.query_len > p.key_len) - (p.query_len < p.key_len);
}

std::vector<Anchor> anchors_of(const Mask& mask) {
  std::vector<Anchor> found;
  if (about(mask.kind).is_anchored) found.push_back(mask.anchor);
  for (const Mask& part : mask.parts) {
    const auto below = anchors_of(part);
    found.insert(found.end(), below.begin(), below.end());
  }
  return found;
}

bool has_offset(const Mask& mask) {
  return (about(mask.kind).is_anchored && mask.offset != 0) ||
         std::any_of(mask.parts.begin(), mask.parts.end(), has_offset);
}

// Whether what the clause speaks of is there in the fitted problem, if it was in the case's, where
// the features of the two do not tell.
struct Carrier {
  std::string_view clause;  // or the beginning of several, with - at its end
  const char* of;           // what it speaks of
  bool (*carries)(const Problem& base, const Problem& fitted);
};

bool keeps_groups(const Problem& base, const Problem& fitted) {
  return base.key_heads == base.query_heads || fitted.key_heads != fitted.query_heads;
}
bool keeps_corner(const Problem& base, const Problem& fitted) {
  return order_of_lengths(base) == order_of_lengths(fitted) &&
         anchors_of(base.mask) == anchors_of(fitted.mask);
}
// Rows and keys beyond lengths are where there is padding.
bool keeps_query_lens(const Problem&, const Problem& fitted) {
  return !fitted.packed && !fitted.query_lens.empty();
}
bool keeps_key_lens(const Problem&, const Problem& fitted) {
  return !fitted.packed && !fitted.key_lens.empty();
}
bool keeps_full(const Problem& base, const Problem& fitted) {
  return base.mask.kind != Mask::Kind::full || fitted.mask.kind == Mask::Kind::full;
}
bool keeps_layouts(const Problem& base, const Problem& fitted) {
  return std::all_of(kLaidOut.begin(), kLaidOut.end(), [&](TensorName tensor) {
    return base.layouts[tensor] == fitted.layouts[tensor];
  });
}
bool keeps_batch(const Problem& base, const Problem& fitted) {
  return base.batch <= 1 || fitted.batch > 1;
}
bool keeps_pages(const Problem& base, const Problem& fitted) {
  const auto several = [](const Problem& p) { return p.key_len > p.paging.page_size; };
  return !several(base) || several(fitted);
}
bool keeps_sink(const Problem& base, const Problem& fitted) { return !base.sink || fitted.sink; }
bool keeps_hidden_keys(const Problem& base, const Problem& fitted) {
  return !hides_keys(base) || hides_keys(fitted);
}
bool keeps_empty_rows(const Problem& base, const Problem& fitted) {
  return !sees_nothing_somewhere(base) || sees_nothing_somewhere(fitted);
}

// Clauses of features that are no longer needed.
std::vector<std::string_view> left_out(const Problem& base, const Problem& fitted) {
  std::vector<std::string_view> clauses;
  const auto needed = needed_by(fitted);
  for (const Feature* feature : needed_by(base)) {
    if (feature->key != kOfFeatures || contains(needed, feature)) continue;
    for (const auto& demand : feature->demands()) clauses.push_back(demand.clause);
  }
  for (const Feature* feature : needed) {
    for (const auto& demand : feature->demands()) std::erase(clauses, demand.clause);
  }
  return clauses;
}

constexpr Carrier kCarriers[] = {
    {"HEAD-", "groups", keeps_groups},
    {"LAW-9", "groups", keeps_groups},
    {"MASK-1", "full mask", keeps_full},
    {"MASK-2", "corner", keeps_corner},
    {"MASK-3", "corner", keeps_corner},
    {"MASK-5", "key lengths", keeps_key_lens},
    {"MASK-6", "query lengths", keeps_query_lens},
    {"LAYOUT-1", "layouts", keeps_layouts},
    {"LAYOUT-2", "layouts", keeps_layouts},
    {"LAYOUT-3", "layouts", keeps_layouts},
    {"LAYOUT-4", "layouts", keeps_layouts},
    {"LAYOUT-5", "batch", keeps_batch},
    {"DET-2", "batch", keeps_batch},
    {"PAGE-1", "pages", keeps_pages},
    {"HIDE-1", "hidden keys", keeps_hidden_keys},
    {"HIDE-3", "hidden keys", keeps_hidden_keys},
    {"EMPTY-", "empty rows", keeps_empty_rows},
    {"EMPTY-4", "sink", keeps_sink},
};

bool speaks_of(const Carrier& carrier, std::string_view clause) {
  return carrier.clause.ends_with('-') ? clause.starts_with(carrier.clause)
                                       : clause == carrier.clause;
}

// Null: the clause is carried still.
const Carrier* lost_carrier(std::string_view clause, const Problem& base, const Problem& fitted) {
  const auto place =
      std::find_if(std::begin(kCarriers), std::end(kCarriers), [&](const Carrier& carrier) {
        return speaks_of(carrier, clause) && !carrier.carries(base, fitted);
      });
  return place == std::end(kCarriers) ? nullptr : place;
}

}  // namespace

bool may_lie_outside(std::string_view clause) {
  return clause.starts_with("LAW-") ||
         std::any_of(std::begin(kCarriers), std::end(kCarriers),
                     [&](const Carrier& carrier) { return speaks_of(carrier, clause); });
}

void strike_other_corner(Case& test_case) {
  const Mask& mask = test_case.problem.mask;
  const auto anchors = anchors_of(mask);
  std::vector<std::string> left = test_case.clauses;
  if (!contains(anchors, Anchor::top_left)) std::erase(left, "MASK-2");
  if (!contains(anchors, Anchor::bottom_right) && !has_offset(mask)) std::erase(left, "MASK-3");
  if (!left.empty()) test_case.clauses = std::move(left);
}

void strike_uncarried(Case& fitted, const Problem& base) {
  const auto of_features = left_out(base, fitted.problem);
  std::erase_if(fitted.clauses, [&](const std::string& clause) {
    return contains(of_features, clause) || lost_carrier(clause, base, fitted.problem);
  });
}

std::string lost_in(const Problem& fitted, const Case& base) {
  for (const std::string& clause : base.clauses) {
    const Carrier* const lost = lost_carrier(clause, base.problem, fitted);
    if (lost) return lost->of;
  }
  return "";
}

}  // namespace attest
