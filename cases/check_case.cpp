#include "cases/check_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "cases/citation.h"
#include "cases/generate.h"
#include "cases/laws.h"
#include "spec/clause.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

// Throws if what the case hides cannot be hidden.
void check_hidden(const Case& test_case, const std::string& pointer) {
  const Problem& p = test_case.problem;
  const Layouts& layouts = p.layouts;
  const auto needs = [&](std::initializer_list<const Layout*> read, bool met, const char* what) {
    if (!met) throw InputError(pointer, what);
    if (std::any_of(read.begin(), read.end(), [](const Layout* l) { return l->expands(); })) {
      throw InputError(pointer,
                       "\"hidden\" needs tensors that are not expanded: an element may be "
                       "hidden in one place and seen in another");
    }
  };
  const auto shorter = [](const std::vector<Index>& lens, Index whole) {
    return std::any_of(lens.begin(), lens.end(), [&](Index length) { return length < whole; });
  };
  const auto alone = [&](const std::optional<Stored>& stored) {
    return stored && (stored->by_position || (stored->by_batch && p.paging.page_size > 0));
  };
  const auto keys = {&layouts.k, &layouts.v};
  switch (test_case.hidden) {
    case Hidden::plain:
      return;
    case Hidden::huge:
    case Hidden::large:
    case Hidden::nan_masked:
      return needs(keys, true, "");
    case Hidden::nan:
      return needs(keys, p.paging.page_size > 0 || (!p.packed && shorter(p.key_lens, p.key_len)),
                   "\"hidden\": \"nan\" fills keys beyond a length, and no key_lens is "
                   "below key_len");
    case Hidden::nan_scales:
      needs(keys, p.paging.page_size > 0 || (!p.packed && shorter(p.key_lens, p.key_len)),
            "\"hidden\": \"nan_scales\" is of keys beyond a length, and no key_lens is below "
            "key_len");
      return needs(keys, alone(p.stored.k) || alone(p.stored.v),
                   "\"hidden\": \"nan_scales\" needs K and V that are stored with a scale for each "
                   "position, or page");
    case Hidden::nan_rows:
      return needs({&layouts.q, &layouts.d_o}, !p.packed && shorter(p.query_lens, p.query_len),
                   "\"hidden\": \"nan_rows\" fills queries beyond a length, and no query_lens is "
                   "below query_len");
    case Hidden::nan_query:
      return needs({&layouts.q}, true, "");
    case Hidden::nan_key:
      return needs({&layouts.k}, true, "");
    case Hidden::nan_value:
      return needs({&layouts.v}, true, "");
    case Hidden::nan_gradient:
      return needs({&layouts.d_o}, p.backward, "\"nan_gradient\" needs a backward pass");
  }
}

// Throws if what the case tries is recommended and it does not cite that first: whoever misses it
// would fail.
void check_level(const Case& test_case, const std::string& needed, const std::string& pointer) {
  if (!is_recommended(needed) || is_recommended(test_case.clauses.front())) return;
  throw InputError(pointer,
                   fmt::format("\"{}\" tries {}, which is recommended, and must cite it first",
                               test_case.id, needed));
}

// Throws if a law needs what cases with an excerpt do not have.
void check_laws(const Case& test_case, const std::string& pointer) {
  for (const std::string& law : test_case.laws) {
    if (test_case.excerpt == 0 || find_law(law)->of_long) continue;
    throw InputError(pointer,
                     fmt::format("the law \"{}\" needs the bound of every element, or walks over "
                                 "all scores; \"excerpt\" is for problems that are too long for "
                                 "either",
                                 law));
  }
}

// Throws if roundings are not as good as random, or nothing was derived for what they do.
void check_generic(const Case& test_case, const std::string& pointer) {
  const auto& classes = input_classes();
  const auto of_case = std::find_if(classes.begin(), classes.end(), [&](const InputClass& each) {
    return each.name == test_case.data;
  });
  if (!of_case->generic) {
    throw InputError(pointer, fmt::format("inputs of the class \"{}\" are not random enough for a "
                                          "statistical verdict",
                                          test_case.data));
  }
  // Scores of inputs near 1 vary by |scale| sqrt(d). If they hardly do, rows are alike and round
  // alike, and gradients vanish.
  const Problem& p = test_case.problem;
  const double spread = std::abs(p.scale) * std::sqrt(static_cast<double>(p.head_dim));
  if (p.head_dim > 0 && !(spread >= 0.125)) {
    throw InputError(pointer, fmt::format("a statistical verdict needs scores that vary: |scale| "
                                          "sqrt(head_dim) is at least 1/8, not {:.3g}",
                                          spread));
  }
  if (test_case.hidden != Hidden::plain || test_case.excerpt > 0) {
    throw InputError(pointer, "a statistical verdict is about all elements of finite inputs");
  }
}

}  // namespace

void check_case(const Case& test_case, const std::string& pointer) {
  check_hidden(test_case, pointer + "/hidden");
  for (const std::string& id : implied_clauses(test_case)) check_level(test_case, id, pointer);
  check_laws(test_case, pointer + "/laws");
  if (test_case.statistical) check_generic(test_case, pointer + "/statistical");
  if (test_case.check == Check::neighbours &&
      test_case.problem.dropout.mode == Dropout::Mode::generated) {
    throw InputError(pointer + "/check",
                     "\"neighbours\" needs the same keep-mask for a batch element alone, "
                     "which no testee draws again");
  }
}

}  // namespace attest
