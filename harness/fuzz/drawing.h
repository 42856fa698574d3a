// What all that draw a part of a problem have: the dice, and what the testee declares; and lengths,
// which all of them draw.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "harness/fuzz/dice.h"
#include "spec/description.h"

namespace attest {

class Drawing {
 protected:
  Drawing(const Description& testee, Dice& dice) : testee_(testee), dice_(dice) {}

  bool has(std::string_view feature) const { return testee_.has(feature); }
  Index within(Index least, Index most) const { return dice_.within(least, most); }
  bool chance(int percent) const { return dice_.chance(percent); }
  template <class T>
  T one_of(const std::vector<T>& choices) const {
    return dice_.one_of(choices);
  }

  // Mostly a handful, often about the edge of a tile.
  Index length() const {
    const Index kind = within(0, 99);
    if (kind < 45) return within(1, 8);
    if (kind < 60) return within(9, 24);
    if (kind < 80) return one_of<Index>({15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65});
    return tail(128);
  }

  // A few tiles, and what may be left of one: nothing, a key, half of it, all but a key.
  Index tail(Index most) const {
    const Index tile = one_of<Index>({16, 32, 64, 64, 128});
    const Index whole = tile * within(1, std::max<Index>(most / tile, 1));
    return whole + one_of<Index>({-1, 0, 1, tile / 2});
  }

  // A length for each batch element: whole, empty, at the edge of a tile, or any.
  nlohmann::json any_lens(Index whole, Index batch) const {
    nlohmann::json lens = nlohmann::json::array();
    for (Index b = 0; b < batch; ++b) {
      const Index kind = within(0, 9);
      lens.push_back(kind < 4    ? whole
                     : kind < 6  ? 0
                     : kind == 6 ? std::min(tail(std::max<Index>(whole, 16)), whole)
                                 : within(0, whole));
    }
    return lens;
  }

  const Description& testee_;
  Dice& dice_;
};

}  // namespace attest
