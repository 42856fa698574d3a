// Which cases a run takes: --tier, --cases, --seed and --shard, as a record's header keeps them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "cases/case.h"

namespace attest {

struct Selection {
  Tier tier = Tier::standard;
  std::vector<std::string> filters = {};  // patterns of ids; a case is taken that matches one
  std::uint64_t seed = 1;
  std::string shard = "1/1";
};

// "smoke", "standard" or "full". Throws InputError for another name.
Tier tier_named(const std::string& name);
bool is_tier(const std::string& name);
std::string_view name_of(Tier tier);

// "I/N": the I-th of N parts. Throws InputError unless 1 <= I <= N.
struct Shard {
  std::size_t index = 1;
  std::size_t count = 1;
};
Shard shard_named(const std::string& text);

// The places, among so many items, of a shard: every N-th, so that parts are alike. Throws
// InputError for no shard.
std::vector<std::size_t> shard_places(std::size_t items, const std::string& shard);

template <class Item>
std::vector<Item> shard_of(std::vector<Item> items, const std::string& shard) {
  std::vector<Item> kept;
  for (const std::size_t i : shard_places(items.size(), shard)) kept.push_back(std::move(items[i]));
  return kept;
}

// Whether a filter takes the case. Who names a fitted case wants what it is fitted from, which is
// fitted anew.
bool is_taken(const std::string& id, const std::string& filter);

// The cases of the tier that some filter matches, all if there is no filter; of these the shard.
// Throws InputError for a filter that matches no case of any tier.
std::vector<Case> select(const std::vector<Case>& all, const Selection& selection);

}  // namespace attest
