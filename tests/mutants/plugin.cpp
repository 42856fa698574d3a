// The plug-in `mutants.so`: a kernel "mutant/NAME" for every fault of the catalogue, and the
// catalogue itself as JSON, for `attest selfcheck`.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "tests/mutants/catalogue.h"
#include "tests/mutants/kernels.h"
#include "tests/mutants/rare.h"

namespace attest::mutants {
namespace {

// ---- The catalogue as JSON ----------------------------------------------------------------------

// Texts stand in JSON as they are.
constexpr bool needs_no_escape(std::string_view text) {
  return text.find_first_of("\"\\\n") == std::string_view::npos;
}
static_assert(std::all_of(kFaults.begin(), kFaults.end(), [](const Fault& f) {
  return needs_no_escape(f.about) && needs_no_escape(f.id) && needs_no_escape(f.reference);
}));
static_assert(std::all_of(kInexpressible.begin(), kInexpressible.end(), [](const Inexpressible& i) {
  return needs_no_escape(i.reference) && needs_no_escape(i.why);
}));
static_assert(std::all_of(kEquivalent.begin(), kEquivalent.end(), [](const Equivalent& e) {
  return needs_no_escape(e.name) && needs_no_escape(e.why);
}));

// "MASK-3 EMPTY-1" as a list.
std::string words(std::string_view text) {
  std::string list;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    list += fmt::format("{}\"{}\"", list.empty() ? "" : ", ", text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return list;
}

const char* control_of(Base base) {
  switch (base) {
    case Base::textbook:
      return "none";
    case Base::fa2:
      return "fa2_none";
    case Base::fa1:
      return "fa1_none";
    case Base::split:
      return "split_none";
  }
  return "";
}

const char* shown_by(std::string_view fault) {
  const auto rare = std::find_if(kRare.begin(), kRare.end(),
                                 [&](const Rare& each) { return each.fault == fault; });
  return rare != kRare.end() ? rare->shown_by : "";
}

std::string catalogue() {
  std::string mutants, controls, inexpressible, equivalent;
  const auto add = [](std::string& list, const std::string& entry) {
    list += (list.empty() ? "" : ",\n") + entry;
  };
  for (const Fault& f : kFaults) {
    const std::string_view kind = f.kind;
    if (kind == "control") add(controls, fmt::format("\"mutant/{}\"", f.name));
    if (!is_mutant(f)) continue;
    add(mutants, fmt::format(R"({{"name": "mutant/{}", "id": "{}", "class": "{}",
 "reference": "{}", "about": "{}", "clauses": [{}], "dtypes": [{}], "control": "mutant/{}",
 "shown_by": "{}"}})",
                             f.name, f.id, f.kind, f.reference, f.about, words(f.clauses),
                             words(f.dtypes), control_of(f.base), shown_by(f.name)));
  }
  for (const Inexpressible& i : kInexpressible) {
    const std::string why = fmt::format("{} ({})", i.why, i.reference);
    add(inexpressible, fmt::format(R"({{"id": "{}", "why": "{}"}})", i.id, why));
  }
  for (const Equivalent& e : kEquivalent) {
    add(equivalent, fmt::format(R"({{"name": "{}", "why": "{}"}})", e.name, e.why));
  }
  return fmt::format(
      R"({{"mutants": [{}], "inexpressible": [{}], "equivalent": [{}], "controls": [{}]}})",
      mutants, inexpressible, equivalent, controls);
}

}  // namespace
}  // namespace attest::mutants

extern "C" ATTEST_EXPORT const attest_plugin* attest_plugin_get(void) {
  static const attest::mutants::Kernels kernels;
  return kernels.plugin();
}

// {"mutants": [{"name", "id", "class", "reference", "about", "clauses", "dtypes", "control"}],
//  "inexpressible": [{"id", "why"}], "equivalent": [{"name", "why"}], "controls":
//  [name]}
extern "C" ATTEST_EXPORT const char* attest_mutants(void);
extern "C" const char* attest_mutants(void) {
  static const std::string text = attest::mutants::catalogue();
  return text.c_str();
}
