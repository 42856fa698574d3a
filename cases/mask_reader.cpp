#include "cases/mask_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>

#include "cases/philox.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"
#include "spec/spelling.h"

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
  if (back != "*" && (!first || *first > 0 || *first <= -kUnbounded)) return false;
  if (ahead != "*" && (!last || *last < 0 || *last >= kUnbounded)) return false;
  left = first ? -*first : kUnbounded;
  right = last ? *last : kUnbounded;
  return true;
}

// What a pattern may look at: the position, the sizes, its own arguments, and a random number.
struct Spot {
  Position at = {};
  Index query_len = 0, key_len = 0;
  Index plane = 0;  // counts the batch elements and heads that have a table of their own
  Index tile = 1, percent = 0;
  std::array<std::uint32_t, 2> seed = {};
  std::uint64_t element = 0;  // of the table

  std::uint32_t random() const {
    return philox({std::uint32_t(element), std::uint32_t(element >> 32), 0, 0}, seed)[0];
  }

  // Tile number of this key, and the number of tiles; each further plane starts one tile later, so
  // that batch elements and heads differ.
  Index tiles() const { return ceil_div(key_len, tile); }
  bool in_tile(Index number) const { return at.key / tile == (number + plane) % tiles(); }
};

struct Pattern {
  std::string_view name;
  void (*fill)(DenseMask& table, Spot spot);
  bool takes_tile = false;
  bool takes_percent = false;
};

// Of what it allows in each spot. Every start of the command fills the tables of all cases: the
// compiler is to see what it does for each element.
template <class Allows>
constexpr Pattern pattern(std::string_view name, Allows, bool takes_tile = false,
                          bool takes_percent = false) {
  return {.name = name,
          .fill =
              [](DenseMask& table, Spot s) {
                const auto& [batch, heads, queries, keys] = table.shape;
                for (s.plane = 0; s.plane < batch * heads; ++s.plane) {
                  s.at = {.batch = s.plane / heads, .head = s.plane % heads};
                  for (s.at.query = 0; s.at.query < queries; ++s.at.query) {
                    for (s.at.key = 0; s.at.key < keys; ++s.at.key) {
                      table.allowed[s.element++] = Allows()(s);
                    }
                  }
                }
              },
          .takes_tile = takes_tile,
          .takes_percent = takes_percent};
}

constexpr Pattern kPatterns[] = {
    pattern(
        "random",
        [](const Spot& s) { return Index((std::uint64_t(s.random()) * 100) >> 32) < s.percent; },
        false, true),
    pattern("checkerboard",
            [](const Spot& s) { return (s.at.query + s.at.key + s.plane) % 2 == 0; }),
    pattern(
        "one_key",
        [](const Spot& s) { return (7 * s.at.query + 5 * s.plane + 3) % s.key_len == s.at.key; }),
    pattern(
        "all_but_one_key",
        [](const Spot& s) { return (7 * s.at.query + 5 * s.plane + 3) % s.key_len != s.at.key; }),
    pattern(
        "hide_first_tile", [](const Spot& s) { return !s.in_tile(0); }, true),
    pattern(
        "hide_middle_tile", [](const Spot& s) { return !s.in_tile(s.tiles() / 2); }, true),
    pattern(
        "hide_last_tile", [](const Spot& s) { return !s.in_tile(s.tiles() - 1); }, true),
    pattern(
        "keep_first_tile", [](const Spot& s) { return s.in_tile(0); }, true),
    pattern(
        "keep_middle_tile", [](const Spot& s) { return s.in_tile(s.tiles() / 2); }, true),
    pattern(
        "keep_last_tile", [](const Spot& s) { return s.in_tile(s.tiles() - 1); }, true),
    pattern(
        "first_rows_empty", [](const Spot& s) { return s.at.query >= s.tile; }, true),
    pattern(
        "last_rows_empty", [](const Spot& s) { return s.at.query < s.query_len - s.tile; }, true),
    pattern("odd_rows_empty", [](const Spot& s) { return (s.at.query + s.plane) % 2 == 0; }),
    pattern("nothing", [](const Spot&) { return false; }),
};

const Pattern& pattern_named(const std::string& name, const std::string& pointer) {
  std::vector<std::string> names;
  for (const Pattern& pattern : kPatterns) {
    if (pattern.name == name) return pattern;
    names.emplace_back(pattern.name);
  }
  throw InputError(pointer,
                   fmt::format("unknown pattern \"{}\"; {}", name, did_you_mean(name, names)));
}

// Numbers of which sums are made; larger ones help nobody.
constexpr Index kLargest = Index(1) << 32;

// A count of at least 1.
Index read_count(ObjectReader& reader, const char* key) {
  const auto count = reader.get<Index>(key);
  if (count < 1 || count > kLargest) {
    throw InputError(reader.pointer(key),
                     fmt::format("\"{}\" must be at least 1 and at most 2^32", key));
  }
  return count;
}

// Throws for a table that nothing could hold.
void check_size(const Shape& shape, const std::string& pointer) {
  double elements = 1;
  for (const Index size : shape) elements *= static_cast<double>(size);
  if (elements > double(1 << 28)) {
    throw InputError(pointer, fmt::format("a table of [{}] is too large", fmt::join(shape, ",")));
  }
}

DenseMask read_rows(const nlohmann::json& rows, const std::string& pointer) {
  if (!rows.is_array() || rows.empty()) {
    throw InputError(pointer, "\"rows\" takes a list of strings");
  }
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
  return table;
}

DenseMask read_pattern(ObjectReader& reader, const Shape& shape, std::string_view seed) {
  const Pattern& pattern =
      pattern_named(reader.get<std::string>("pattern"), reader.pointer("pattern"));
  const Index tile = pattern.takes_tile ? read_count(reader, "tile") : 1;
  const Index percent = pattern.takes_percent ? reader.get<Index>("percent") : 0;
  if (percent < 0 || percent > 100) {
    throw InputError(reader.pointer("percent"), "\"percent\" must be within 0..100");
  }
  check_size(shape, reader.pointer("pattern"));
  DenseMask table{.shape = shape, .allowed = {}};
  table.allowed.resize(static_cast<std::size_t>(element_count(shape)));
  pattern.fill(table, {.query_len = shape[2],
                       .key_len = shape[3],
                       .tile = tile,
                       .percent = percent,
                       .seed = philox_key(seed)});
  return table;
}

Mask read_dense(const nlohmann::json& value, const std::string& pointer, const Problem& sizes,
                std::string_view seed) {
  ObjectReader reader(value, pointer);
  if (const nlohmann::json* rows = reader.find("rows")) {
    reader.finish();
    return Mask::dense(read_rows(*rows, reader.pointer("rows")));
  }
  const Shape shape = read_axes(reader, "bhqk", sizes.keep_shape());
  DenseMask table = read_pattern(reader, shape, seed);
  reader.finish();
  return Mask::dense(std::move(table));
}

Mask read_block_sparse(const nlohmann::json& value, const std::string& pointer,
                       const Problem& sizes, std::string_view seed) {
  ObjectReader reader(value, pointer);
  const auto block = read_integers(reader.at("block"), reader.pointer("block"));
  const auto fits = [](Index size) { return size >= 1 && size <= kLargest; };
  if (block.size() != 2 || !fits(block[0]) || !fits(block[1])) {
    throw InputError(reader.pointer("block"),
                     "\"block\" takes two sizes of at least 1 and at most 2^32");
  }
  const Shape whole = {sizes.batch, sizes.query_heads, ceil_div(sizes.query_len, block[0]),
                       ceil_div(sizes.key_len, block[1])};
  DenseMask table;
  if (const nlohmann::json* rows = reader.find("rows")) {
    table = read_rows(*rows, reader.pointer("rows"));
  } else {
    Shape shape = read_axes(reader, "bh", whole);
    shape[2] = whole[2];
    shape[3] = whole[3];
    table = read_pattern(reader, shape, seed);
  }
  reader.finish();
  return Mask::block_sparse(block[0], block[1], std::move(table));
}

// What a pattern of segments says of one position: documents of about `length` positions each.
struct SegmentPattern {
  std::string_view name;
  Index (*number)(Index position, Index length, Index whole, Index batch);
};
constexpr SegmentPattern kSegmentPatterns[] = {
    // One after the other; each further batch element begins a third of a document later.
    {"documents", [](Index position, Index length, Index,
                     Index batch) { return (position + batch * (length / 3 + 1)) / length; }},
    // The same, with numbers that fall from the largest of 32 bits.
    {"falling",
     [](Index position, Index length, Index, Index batch) {
       return 0x7fffffff - (position + batch * (length / 3 + 1)) / length;
     }},
    // Documents, and padding where the last one would be.
    {"padded",
     [](Index position, Index length, Index whole, Index batch) {
       return position >= whole - length ? -1 - batch : position / length;
     }},
    // Dealt like cards: no document is contiguous.
    {"interleaved",
     [](Index position, Index length, Index, Index batch) { return (position + batch) % length; }},
    // A document that goes on after another one.
    {"resumed", [](Index position, Index length, Index,
                   Index batch) { return (position / length + batch) % 2; }},
    // Counted from the last position, so that the last queries belong to the last keys.
    {"from_the_end",
     [](Index position, Index length, Index whole, Index batch) {
       return (whole - 1 - position + batch * (length / 3 + 1)) / length;
     }},
    // The same in no order: 0, 3, 1, 4, 2 and again.
    {"shuffled",
     [](Index position, Index length, Index whole, Index batch) {
       return (whole - 1 - position + batch * (length / 3 + 1)) / length * 3 % 5;
     }},
    {"nothing", [](Index, Index, Index, Index) { return Index(-1); }},
};

const SegmentPattern& segment_pattern_named(const std::string& name, const std::string& pointer) {
  std::vector<std::string> names;
  for (const SegmentPattern& pattern : kSegmentPatterns) {
    if (pattern.name == name) return pattern;
    names.emplace_back(pattern.name);
  }
  throw InputError(pointer,
                   fmt::format("unknown pattern \"{}\"; {}", name, did_you_mean(name, names)));
}

// [0, 0, 1] for all batch elements, or [[0, 0, 1], [0, 1, 1]], one list for each.
SegmentNumbers read_numbers(ObjectReader& reader, const char* key) {
  const nlohmann::json& value = reader.at(key);
  const bool nested = value.is_array() && !value.empty() && value[0].is_array();
  SegmentNumbers numbers{.batches = nested ? static_cast<Index>(value.size()) : 1};
  for (Index b = 0; b < numbers.batches; ++b) {
    const std::string pointer =
        nested ? fmt::format("{}/{}", reader.pointer(key), b) : reader.pointer(key);
    const auto row = read_integers(nested ? value[static_cast<std::size_t>(b)] : value, pointer);
    if (b > 0 && static_cast<Index>(row.size()) != numbers.length) {
      throw InputError(pointer, "the lists of segment numbers differ in length");
    }
    numbers.length = static_cast<Index>(row.size());
    for (const Index number : row) {
      if (!std::in_range<std::int32_t>(number)) {
        throw InputError(pointer, fmt::format("{} is no number of 32 bits", number));
      }
      numbers.number.push_back(static_cast<std::int32_t>(number));
    }
  }
  return numbers;
}

Mask read_segments(const nlohmann::json& value, const std::string& pointer, const Problem& sizes) {
  ObjectReader reader(value, pointer);
  Segments segments;
  if (const nlohmann::json* name = reader.find("pattern")) {
    if (!name->is_string()) {
      throw InputError(reader.pointer("pattern"), "\"pattern\" takes a name");
    }
    const SegmentPattern& pattern =
        segment_pattern_named(name->get<std::string>(), reader.pointer("pattern"));
    const Index length = read_count(reader, "length");
    const Shape shape = read_axes(reader, "b", {sizes.batch, 1, 1, 1});
    check_size({shape[0], 1, sizes.query_len, 1}, reader.pointer("pattern"));
    check_size({shape[0], 1, sizes.key_len, 1}, reader.pointer("pattern"));
    const auto numbered = [&](Index whole) {
      SegmentNumbers numbers{.batches = shape[0], .length = whole};
      for (Index b = 0; b < shape[0]; ++b) {
        for (Index position = 0; position < whole; ++position) {
          numbers.number.push_back(
              static_cast<std::int32_t>(pattern.number(position, length, whole, b)));
        }
      }
      return numbers;
    };
    segments = {.query = numbered(sizes.query_len), .key = numbered(sizes.key_len)};
  } else {
    segments = {.query = read_numbers(reader, "query"), .key = read_numbers(reader, "key")};
  }
  reader.finish();
  return Mask::documents(std::move(segments));
}

}  // namespace

Mask parse_mask(std::string_view text) {
  const auto wrong = [&](std::string_view what) {
    return InputError("", fmt::format("mask \"{}\": {}", text, what));
  };
  std::istringstream words{std::string(text)};
  std::string word;
  words >> word;
  // The number after "prefix" and "dilated".
  const auto count = [&](Index least) {
    const std::string name = word;
    const auto number = words >> word ? integer(word) : std::nullopt;
    if (!number || *number < least) {
      throw wrong(fmt::format("\"{}\" is followed by a number of at least {}", name, least));
    }
    return *number;
  };
  const auto end = [&](const char* name) {
    if (words >> word) throw wrong(fmt::format("nothing may follow {}", name));
  };
  if (word == "full") {
    end("\"full\"");
    return Mask::full();
  }
  if (word == "prefix") {
    const Index length = count(0);
    end("the length of a prefix");
    return Mask::prefix({length});
  }
  Mask mask = Mask::causal(Anchor::top_left);
  if (word == "dilated") {
    mask = Mask::dilated(count(1), Anchor::top_left);
  } else if (word == "window") {
    if (!(words >> word) || !read_reach(word, mask.left, mask.right)) {
      throw wrong("a window reaches from -N (or *) to M (or *), such as window -16..4");
    }
  } else if (word != "causal") {
    throw wrong("it starts with full, causal, window, prefix or dilated");
  }
  bool anchored = false, moved = false;
  while (words >> word) {
    bool& given = word.starts_with("offset=") ? moved : anchored;
    if (std::exchange(given, true)) {
      throw wrong(fmt::format("\"{}\" is one anchor or one offset too many", word));
    }
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

DenseMask read_table(const nlohmann::json& value, const std::string& pointer, const Shape& shape,
                     std::string_view seed) {
  ObjectReader reader(value, pointer);
  DenseMask table;
  if (const nlohmann::json* rows = reader.find("rows")) {
    table = read_rows(*rows, reader.pointer("rows"));
    if (table.shape != shape) {
      throw InputError(reader.pointer("rows"),
                       fmt::format("a table of [{}] is needed, not of [{}]", fmt::join(shape, ","),
                                   fmt::join(table.shape, ",")));
    }
  } else {
    table = read_pattern(reader, shape, seed);
  }
  reader.finish();
  return table;
}

Shape read_axes(ObjectReader& reader, std::string_view all, const Shape& whole) {
  constexpr std::string_view kLetters = "bhqk";
  Shape shape = {1, 1, 1, 1};
  const auto axes = reader.get_or<std::string>("axes", std::string(all));
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto wrong = [&](std::string_view what) {
      return InputError(reader.pointer("axes"), fmt::format("\"axes\": '{}' {}", axes[i], what));
    };
    if (all.find(axes[i]) == all.npos) {
      throw wrong(fmt::format("is no axis here; axes are {}", fmt::join(all, ", ")));
    }
    if (axes.find(axes[i]) < i) throw wrong("stands twice");
    const auto axis = kLetters.find(axes[i]);
    shape[axis] = whole[axis];
  }
  return shape;
}

std::vector<Index> read_integers(const nlohmann::json& value, const std::string& pointer) {
  const auto wrong = [&] {
    return InputError(pointer,
                      fmt::format("\"{}\" takes a list of integers, not {}",
                                  pointer.substr(pointer.rfind('/') + 1), json_text(value)));
  };
  if (!value.is_array()) throw wrong();
  std::vector<Index> numbers;
  for (const nlohmann::json& number : value) {
    const bool fits = number.is_number_unsigned()
                          ? std::in_range<Index>(number.get<std::uint64_t>())
                          : number.is_number_integer();
    if (!fits) throw wrong();
    numbers.push_back(number.get<Index>());
  }
  return numbers;
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
  constexpr std::array kKinds = {"dense", "prefix", "segments", "block_sparse", "all_of", "any_of"};
  ObjectReader reader(value, pointer);
  std::string kind;
  for (const char* name : kKinds) {
    if (reader.find(name)) kind = name;
  }
  reader.finish();
  if (value.size() != 1) {
    throw InputError(pointer, fmt::format("a mask is a text or an object with one of {}",
                                          fmt::join(kKinds, ", ")));
  }
  const std::string place = reader.pointer(kind);
  const nlohmann::json& content = value[kind];
  if (kind == "dense") return read_dense(content, place, sizes, seed);
  if (kind == "prefix") return Mask::prefix(read_integers(content, place));
  if (kind == "segments") return read_segments(content, place, sizes);
  if (kind == "block_sparse") return read_block_sparse(content, place, sizes, seed);
  if (!content.is_array() || content.empty()) {
    throw InputError(place, "a combination of masks takes a list of at least one");
  }
  std::vector<Mask> parts;
  for (std::size_t i = 0; i < content.size(); ++i) {
    // Each part has a seed of its own: two random tables of one mask must differ.
    parts.push_back(read_mask(content[i], fmt::format("{}/{}", place, i), sizes,
                              fmt::format("{}/{}", seed, i)));
  }
  return kind == "all_of" ? Mask::all_of(std::move(parts)) : Mask::any_of(std::move(parts));
}

}  // namespace attest
