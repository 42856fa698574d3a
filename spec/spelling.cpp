#include "spec/spelling.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace attest {
namespace {

constexpr std::size_t kFew = 3;

std::string in_small_letters(std::string_view text) {
  std::string small(text);
  for (char& c : small) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return small;
}

// Whoever writes mask-3 misspells nothing of MASK-3.
std::size_t distance(std::string_view wanted, std::string_view name) {
  return edit_distance(in_small_letters(wanted), in_small_letters(name));
}

// A letter, and one more for every four.
bool is_near(std::string_view wanted, std::string_view name) {
  return distance(wanted, name) <= 1 + std::min(wanted.size(), name.size()) / 4;
}

// Those that are spelt nearly so, the best alone; else those that begin so.
std::vector<std::string> meant(std::string_view wanted, const std::vector<std::string>& names) {
  const std::vector<std::string> nearest = nearest_names(wanted, names, kFew);
  std::vector<std::string> near, begun;
  for (const std::string& name : nearest) {
    const bool best = distance(wanted, name) == distance(wanted, nearest.front());
    if (best && is_near(wanted, name)) near.push_back(name);
  }
  if (!near.empty() || wanted.size() < kFew) return near;
  for (const std::string& name : names) {
    if (in_small_letters(name).starts_with(in_small_letters(wanted))) begun.push_back(name);
  }
  return nearest_names(wanted, begun, kFew);
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the table of distances between beginnings of both.
  std::vector<std::size_t> last(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t(0));
  for (std::size_t i = 1; i <= a.size(); ++i) {
    next[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      next[j] = std::min({row[j - 1] + (a[i - 1] != b[j - 1]), row[j] + 1, next[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) next[j] = std::min(next[j], last[j - 2] + 1);
    }
    last.swap(row);
    row.swap(next);
  }
  return row[b.size()];
}

std::vector<std::string> nearest_names(std::string_view wanted,
                                       const std::vector<std::string>& names, std::size_t most) {
  std::vector<std::pair<std::size_t, std::string>> ranked;
  for (const std::string& name : names) ranked.emplace_back(distance(wanted, name), name);
  std::sort(ranked.begin(), ranked.end());
  ranked.erase(std::unique(ranked.begin(), ranked.end()), ranked.end());
  std::vector<std::string> nearest;
  for (const auto& [distance, name] : ranked) {
    if (nearest.size() == most) break;
    nearest.push_back(name);
  }
  return nearest;
}

std::string did_you_mean(std::string_view wanted, const std::vector<std::string>& names) {
  constexpr std::size_t kAll = 30;
  const auto near = meant(wanted, names);
  if (!near.empty()) return fmt::format("did you mean {}?", fmt::join(near, " or "));
  if (names.size() <= kAll) return fmt::format("there are {}", fmt::join(names, ", "));
  return fmt::format("of {}, the nearest are {}", names.size(),
                     fmt::join(nearest_names(wanted, names, kFew), ", "));
}

}  // namespace attest
