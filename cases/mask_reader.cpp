#include "cases/mask_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "cases/philox.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

std::optional<Index> integer(std::string_view text) {
  Index value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// "-16..4": how far back and how far ahead; * is without limit.
bool read_reach(std::string_view text, Index& left, Index& right) {
  const auto dots = text.find("..");
  if (dots == text.npos) return false;
  const std::string_view back = text.substr(0, dots), ahead = text.substr(dots + 2);
  const auto first = integer(back), last = integer(ahead);
  if (back != "*" && (!first || *first > 0)) return false;
  if (ahead != "*" && (!last || *last < 0)) return false;
  left = first ? -*first : kUnbounded;
  right = last ? *last : kUnbounded;
  return true;
}

// What a pattern may look at: the position, the sizes, its own arguments, and a random number.
struct Spot {
  Position at;
  Index query_len, key_len;
  Index plane;  // counts the batch elements and heads that have a table of their own
  Index tile, percent;
  std::uint32_t random;

  // Tile number of this key, and the number of tiles; each further plane starts one tile later, so
  // that batch elements and heads differ.
  Index tiles() const { return (key_len + tile - 1) / tile; }
  bool in_tile(Index number) const { return at.key / tile == (number + plane) % tiles(); }
};

struct Pattern {
  std::string_view name;
  bool (*allows)(const Spot&);
  bool takes_tile = false;
  bool takes_percent = false;
};

constexpr Pattern kPatterns[] = {
    {"random",
     [](const Spot& s) { return Index((std::uint64_t(s.random) * 100) >> 32) < s.percent; }, false,
     true},
    {"checkerboard", [](const Spot& s) { return (s.at.query + s.at.key + s.plane) % 2 == 0; }},
    {"one_key",
     [](const Spot& s) { return (7 * s.at.query + 5 * s.plane + 3) % s.key_len == s.at.key; }},
    {"all_but_one_key",
     [](const Spot& s) { return (7 * s.at.query + 5 * s.plane + 3) % s.key_len != s.at.key; }},
    {"hide_first_tile", [](const Spot& s) { return !s.in_tile(0); }, true},
    {"hide_middle_tile", [](const Spot& s) { return !s.in_tile(s.tiles() / 2); }, true},
    {"hide_last_tile", [](const Spot& s) { return !s.in_tile(s.tiles() - 1); }, true},
    {"keep_first_tile", [](const Spot& s) { return s.in_tile(0); }, true},
    {"keep_middle_tile", [](const Spot& s) { return s.in_tile(s.tiles() / 2); }, true},
    {"keep_last_tile", [](const Spot& s) { return s.in_tile(s.tiles() - 1); }, true},
    {"first_rows_empty", [](const Spot& s) { return s.at.query >= s.tile; }, true},
    {"last_rows_empty", [](const Spot& s) { return s.at.query < s.query_len - s.tile; }, true},
    {"odd_rows_empty", [](const Spot& s) { return (s.at.query + s.plane) % 2 == 0; }},
    {"nothing", [](const Spot&) { return false; }},
};

const Pattern& pattern_named(const std::string& name, const std::string& pointer) {
  std::vector<std::string> names;
  for (const Pattern& pattern : kPatterns) {
    if (pattern.name == name) return pattern;
    names.emplace_back(pattern.name);
  }
  throw InputError(pointer, fmt::format("unknown pattern \"{}\"; similar: {}", name,
                                        fmt::join(nearest_names(name, names), ", ")));
}

Mask dense_rows(const nlohmann::json& rows, const std::string& pointer) {
  DenseMask table{.shape = {1, 1, static_cast<Index>(rows.size()), 0}, .allowed = {}};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto wrong = [&](const char* what) {
      return InputError(fmt::format("{}/{}", pointer, i), what);
    };
    if (!rows[i].is_string()) throw wrong("a row of a mask is a string of x and .");
    const auto row = rows[i].get<std::string>();
    if (row.find_first_not_of("x.") != row.npos)
      throw wrong("a row of a mask is a string of x and .");
    if (i > 0 && static_cast<Index>(row.size()) != table.shape[3]) {
      throw wrong("the rows of a mask differ in length");
    }
    table.shape[3] = static_cast<Index>(row.size());
    for (const char letter : row) table.allowed.push_back(letter == 'x');
  }
  return Mask::dense(std::move(table));
}

Mask read_dense(const nlohmann::json& value, const std::string& pointer, const Problem& sizes,
                std::string_view seed) {
  ObjectReader reader(value, pointer);
  if (const nlohmann::json* rows = reader.find("rows")) {
    reader.finish();
    if (!rows->is_array() || rows->empty()) {
      throw InputError(reader.pointer("rows"), "\"rows\" takes a list of strings");
    }
    return dense_rows(*rows, reader.pointer("rows"));
  }
  const Pattern& pattern =
      pattern_named(reader.get<std::string>("pattern"), reader.pointer("pattern"));
  const auto axes = reader.get_or<std::string>("axes", "bhqk");
  const Index tile = pattern.takes_tile ? reader.get<Index>("tile") : 1;
  const Index percent = pattern.takes_percent ? reader.get<Index>("percent") : 0;
  reader.finish();
  if (tile < 1) throw InputError(reader.pointer("tile"), "\"tile\" must be at least 1");
  if (percent < 0 || percent > 100) {
    throw InputError(reader.pointer("percent"), "\"percent\" must be within 0..100");
  }
  constexpr std::string_view kLetters = "bhqk";
  Shape shape = {1, 1, 1, 1};
  const Shape whole = {sizes.batch, sizes.query_heads, sizes.query_len, sizes.key_len};
  for (const char letter : axes) {
    const auto axis = kLetters.find(letter);
    if (axis == kLetters.npos) {
      throw InputError(reader.pointer("axes"),
                       fmt::format("'{}' is no axis of a mask; axes are b, h, q, k", letter));
    }
    shape[axis] = whole[axis];
  }
  DenseMask table{.shape = shape, .allowed = {}};
  const auto key = philox_key(seed);
  for (Index i = 0; i < element_count(shape); ++i) {
    const auto [b, h, q, k] = coordinates(shape, i);
    const auto low = static_cast<std::uint32_t>(i);
    table.allowed.push_back(pattern.allows(
        {.at = {.batch = b, .head = h, .query = q, .key = k},
         .query_len = shape[2],
         .key_len = shape[3],
         .plane = b * shape[1] + h,
         .tile = tile,
         .percent = percent,
         .random = philox({low, static_cast<std::uint32_t>(i >> 32), 0, 0}, key)[0]}));
  }
  return Mask::dense(std::move(table));
}

}  // namespace

Mask parse_mask(std::string_view text) {
  const auto wrong = [&](std::string_view what) {
    return InputError("", fmt::format("mask \"{}\": {}", text, what));
  };
  std::istringstream words{std::string(text)};
  std::string word;
  words >> word;
  if (word == "full") {
    if (words >> word) throw wrong("nothing may follow \"full\"");
    return Mask::full();
  }
  Mask mask = Mask::causal(Anchor::top_left);
  if (word == "window") {
    if (!(words >> word) || !read_reach(word, mask.left, mask.right)) {
      throw wrong("a window reaches from -N (or *) to M (or *), such as window -16..4");
    }
  } else if (word != "causal") {
    throw wrong("it starts with full, causal or window");
  }
  while (words >> word) {
    if (word == "bottom_right") {
      mask.anchor = Anchor::bottom_right;
    } else if (word == "top_left") {
      mask.anchor = Anchor::top_left;
    } else if (const auto offset = integer(std::string_view(word).substr(0, 7) == "offset="
                                               ? std::string_view(word).substr(7)
                                               : std::string_view())) {
      mask.offset = *offset;
    } else {
      throw wrong(fmt::format("\"{}\" is not one of top_left, bottom_right, offset=N", word));
    }
  }
  return mask;
}

Mask read_mask(const nlohmann::json& value, const std::string& pointer, const Problem& sizes,
               std::string_view seed) {
  if (value.is_string()) {
    try {
      return parse_mask(value.get<std::string>());
    } catch (const InputError& error) {
      throw InputError(pointer, error.what());
    }
  }
  ObjectReader reader(value, pointer);
  const nlohmann::json* dense = reader.find("dense");
  const nlohmann::json* all_of = reader.find("all_of");
  const nlohmann::json* any_of = reader.find("any_of");
  reader.finish();
  if ((dense != nullptr) + (all_of != nullptr) + (any_of != nullptr) != 1) {
    throw InputError(pointer, "a mask is a text or one of {\"dense\"}, {\"all_of\"}, {\"any_of\"}");
  }
  if (dense) return read_dense(*dense, reader.pointer("dense"), sizes, seed);
  const std::string place = reader.pointer(all_of ? "all_of" : "any_of");
  const nlohmann::json& list = all_of ? *all_of : *any_of;
  if (!list.is_array() || list.empty()) {
    throw InputError(place, "a combination of masks takes a list of at least one");
  }
  std::vector<Mask> parts;
  for (std::size_t i = 0; i < list.size(); ++i) {
    // Each part has a seed of its own: two random tables of one mask must differ.
    parts.push_back(
        read_mask(list[i], fmt::format("{}/{}", place, i), sizes, fmt::format("{}/{}", seed, i)));
  }
  return all_of ? Mask::all_of(std::move(parts)) : Mask::any_of(std::move(parts));
}

}  // namespace attest
