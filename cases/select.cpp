#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "cases/case.h"
#include "cases/entry.h"
#include "cases/fit.h"
#include "spec/json_reader.h"
#include "spec/spelling.h"

namespace attest {
namespace {

// An id without its seed, and the seed.
struct SplitId {
  std::string stem;
  std::optional<std::uint64_t> seed;
};

SplitId split(const std::string& id) {
  const auto place = id.rfind("/s=");
  if (place == id.npos) return {id, std::nullopt};
  std::uint64_t seed = 0;
  const char* const first = id.data() + place + 3;
  const char* const end = id.data() + id.size();
  const auto [stop, error] = std::from_chars(first, end, seed);
  if (error != std::errc() || stop != end) {
    throw InputError("", fmt::format("\"{}\": s= takes a whole number", id));
  }
  return {id.substr(0, place), seed};
}

// The path up to its `count`-th slash.
std::string first_elements(const std::string& path, std::ptrdiff_t count) {
  std::size_t end = 0;
  for (; count > 0 && end != path.npos; --count) end = path.find('/', end + (end > 0));
  return path.substr(0, end);
}

// Of an id that somebody wrote.
Case with_fit_of(const std::string& id, const CaseWithEntry& base) {
  try {
    Case found = with_fit(base, Fit::parse(fit_of(id)));
    if (!found.clauses.empty()) return found;
    throw InputError("", "nothing is left of what the case tries");
  } catch (const InputError& error) {
    throw InputError("", fmt::format("{}: {}", id, error.what()));
  }
}

}  // namespace

Case find_case(const std::vector<Case>& cases, const std::string& id) {
  const std::string base(base_id(id));
  const SplitId wanted = split(base);
  std::vector<std::string> stems;
  for (const Case& candidate : cases) {
    stems.push_back(split(candidate.id).stem);
    if (stems.back() != wanted.stem) continue;
    Case found = candidate;
    found.seed = wanted.seed.value_or(candidate.seed);
    found.id = fmt::format("{}/s={}", wanted.stem, found.seed);
    if (!found.bits.empty())
      found.bits = fmt::format("{}/s={}", split(found.bits).stem, found.seed);
    if (base == id) return found;
    return with_fit_of(id, {found, entry_of(candidate)});
  }
  // Compared as far as the wanted id goes, so that the beginning of an id finds what begins so.
  const auto depth = std::count(wanted.stem.begin(), wanted.stem.end(), '/') + 1;
  std::vector<std::string> beginnings;
  for (const std::string& stem : stems) beginnings.push_back(first_elements(stem, depth));
  const auto nearest = nearest_names(wanted.stem, beginnings);
  std::vector<std::string> lines;
  for (const std::string& beginning : nearest) {
    const auto found = std::find(beginnings.begin(), beginnings.end(), beginning);
    lines.push_back(cases[static_cast<std::size_t>(found - beginnings.begin())].id);
  }
  throw InputError("",
                   fmt::format("no case \"{}\"; the nearest:\n  {}", id, fmt::join(lines, "\n  ")));
}

}  // namespace attest
