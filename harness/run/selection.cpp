#include "harness/run/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "cases/fit.h"
#include "spec/json_reader.h"
#include "spec/pattern.h"

namespace attest {
namespace {

constexpr std::array<std::pair<std::string_view, Tier>, 3> kTiers = {
    {{"smoke", Tier::smoke}, {"standard", Tier::standard}, {"full", Tier::full}}};

bool read_number(std::string_view text, std::size_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

bool is_tier(const std::string& name) {
  return std::any_of(kTiers.begin(), kTiers.end(),
                     [&](const auto& each) { return each.first == name; });
}

Tier tier_named(const std::string& name) {
  for (const auto& [text, tier] : kTiers) {
    if (text == name) return tier;
  }
  throw InputError("", fmt::format("there is no tier {}", name));
}

std::string_view name_of(Tier tier) {
  for (const auto& [text, value] : kTiers) {
    if (value == tier) return text;
  }
  return "?";
}

Shard shard_named(const std::string& text) {
  const std::string_view all = text;
  const std::size_t slash = all.find('/');
  Shard shard;
  if (slash == all.npos || !read_number(all.substr(0, slash), shard.index) ||
      !read_number(all.substr(slash + 1), shard.count) || shard.index < 1 ||
      shard.index > shard.count) {
    throw InputError("", fmt::format("--shard {} is not I/N with 1 <= I <= N", text));
  }
  return shard;
}

std::vector<std::size_t> shard_places(std::size_t items, const std::string& shard) {
  const auto [index, count] = shard_named(shard);
  std::vector<std::size_t> places;
  // Written so that no sum overflows, however large N is.
  for (std::size_t i = index - 1; i < items; i += count) {
    places.push_back(i);
    if (count >= items - i) break;
  }
  return places;
}

bool is_taken(const std::string& id, const std::string& filter) {
  return matches(id, std::string(base_id(filter)));
}

std::vector<Case> select(const std::vector<Case>& all, const Selection& selection) {
  std::vector<Case> chosen;
  std::vector<bool> hit(selection.filters.size());
  for (const Case& c : all) {
    bool wanted = selection.filters.empty();
    for (std::size_t f = 0; f < selection.filters.size(); ++f) {
      if (!is_taken(c.id, selection.filters[f])) continue;
      hit[f] = true;
      wanted = true;
    }
    if (wanted && c.tier <= selection.tier) chosen.push_back(c);
  }
  for (std::size_t f = 0; f < hit.size(); ++f) {
    if (hit[f]) continue;
    // Say what there is, not only what there is not.
    try {
      find_case(all, selection.filters[f]);
    } catch (const InputError& error) {
      throw InputError(
          "", fmt::format("--cases {} matches nothing. {}", selection.filters[f], error.what()));
    }
  }
  return shard_of(std::move(chosen), selection.shard);
}

}  // namespace attest
