#include "harness/fuzz/random_mask.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace attest {
namespace {

using nlohmann::json;

}  // namespace

json MaskDrawing::mask() const {
  return has("mask-and") && chance(12) ? diagonal_and_keys() : any(0);
}

json MaskDrawing::any(int depth) const {
  const Index kind = within(0, depth < 2 ? 10 : 7);
  switch (kind) {
    case 0:
    case 1:
      return has("causal") ? json("causal" + placed()) : json();
    case 2:
    case 3:
      return has("window") ? window() : json();
    case 4:
      return has("dense-mask") ? json{{"dense", table("bhqk", sizes_.key_len)}} : json();
    case 5:
      return blocks_or_lengths();
    case 6:
      return has("segments") ? segments() : json();
    case 7:
      return has("dilated") ? json(fmt::format("dilated {}{}", within(1, 5), placed())) : json();
    default:
      return several(depth);
  }
}

// The anchor and the offset.
std::string MaskDrawing::placed() const {
  std::string text = chance(50) ? " bottom_right" : "";
  if (chance(30)) {
    const Index far = chance(70) ? 4 : std::max(sizes_.query_len, sizes_.key_len);
    text += fmt::format(" offset={}", within(-far, far));
  }
  return text;
}

// Of few keys, mostly; or with an edge where all queries and keys end, or beyond.
json MaskDrawing::window() const {
  const auto reach = [&] {
    if (chance(12))
      return std::max(sizes_.query_len, sizes_.key_len) + one_of<Index>({-1, 0, 1, 64});
    return one_of<Index>({0, 1, 2, 3, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 64, 128, -1});
  };
  const Index left = reach();
  Index right = chance(60) ? 0 : reach();
  if (left < 0 && right == 0) right = 1;  // else it is causal
  const auto text = [](const char* sign, Index width) {
    return width < 0 ? std::string("*") : fmt::format("{}{}", width == 0 ? "" : sign, width);
  };
  return fmt::format("window {}..{}{}", text("-", left), text("", right), placed());
}

json MaskDrawing::blocks_or_lengths() const {
  if (has("prefix") && chance(50)) {
    if (sizes_.batch > 1 && chance(50)) return {{"prefix", any_lens(sizes_.key_len, sizes_.batch)}};
    return fmt::format("prefix {}", within(0, sizes_.key_len));
  }
  if (!has("block-sparse")) return {};
  const std::vector<Index> sizes = {1, 2, 3, 5, 8, 16, 17, 32, 64};
  const Index block_key = one_of(sizes);
  json blocks = table("bh", (sizes_.key_len + block_key - 1) / block_key);
  blocks["block"] = {one_of(sizes), block_key};
  return {{"block_sparse", blocks}};
}

json MaskDrawing::segments() const {
  return {{"segments",
           {{"pattern",
             one_of<std::string>({"documents", "falling", "padded", "interleaved", "resumed"})},
            {"length", within(1, std::max<Index>(std::max(sizes_.query_len, sizes_.key_len), 1))},
            {"axes", chance(50) ? "b" : ""}}}};
}

json MaskDrawing::several(int depth) const {
  const bool all = chance(60);
  if (!has(all ? "mask-and" : "mask-or")) return {};
  json parts = json::array();
  for (Index n = within(2, 3); n > 0; --n) {
    if (json part = any(depth + 1); !part.is_null()) parts.push_back(std::move(part));
  }
  if (parts.empty()) return {};
  return {{all ? "all_of" : "any_of", parts}};
}

// As systems put them together: a diagonal beside what tells keys apart for all queries alike.
json MaskDrawing::diagonal_and_keys() const {
  const json diagonal = has("window") && chance(40) ? window()
                        : has("causal")             ? json("causal" + placed())
                                                    : json();
  json keys;
  if (has("dense-mask") && chance(60)) {
    keys = table("bh", sizes_.key_len);
    keys["axes"] = keys["axes"].get<std::string>() + "k";
    keys = {{"dense", keys}};
  } else if (has("segments") && chance(50)) {
    keys = segments();
  } else if (has("prefix")) {
    keys = fmt::format("prefix {}", within(0, sizes_.key_len));
  }
  if (diagonal.is_null() || keys.is_null()) return diagonal;
  return {{"all_of", {diagonal, keys}}};
}

std::string MaskDrawing::some_of(std::string_view axes) const {
  std::string chosen;
  for (const char axis : axes) {
    if (chance(60)) chosen += axis;
  }
  return chosen;
}

json MaskDrawing::table(std::string_view axes, Index columns) const {
  json result = {{"axes", some_of(axes)}};
  if (chance(60)) {
    result["pattern"] = "random";
    result["percent"] = one_of<Index>({3, 20, 50, 80, 97});
  } else if (chance(50)) {
    result["pattern"] = one_of<std::string>(
        {"checkerboard", "one_key", "all_but_one_key", "odd_rows_empty", "nothing"});
  } else {
    result["pattern"] = one_of<std::string>(
        {"hide_first_tile", "hide_middle_tile", "hide_last_tile", "keep_first_tile",
         "keep_middle_tile", "keep_last_tile", "first_rows_empty", "last_rows_empty"});
    result["tile"] = chance(50) ? within(1, std::max<Index>(columns, 1)) : one_of<Index>({8, 16});
  }
  return result;
}

}  // namespace attest
