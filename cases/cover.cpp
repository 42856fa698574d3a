#include "cases/cover.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "cases/expand.h"
#include "cases/philox.h"
#include "spec/index.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

constexpr std::string_view kPlaceLetters = "0123456789abcdefghijklmnopqrstuvwxyz";

std::vector<CoverAxis> read_axis_list(const nlohmann::json& list, const std::string& pointer,
                                      std::set<std::string>& names) {
  if (!list.is_array() || list.empty()) {
    throw InputError(pointer, "a list of at least one axis is due here");
  }
  std::vector<CoverAxis> axes;
  for (std::size_t n = 0; n < list.size(); ++n) {
    ObjectReader reader(list[n], fmt::format("{}/{}", pointer, n));
    CoverAxis axis{.of = reader.get<std::string>("of"), .values = {}};
    if (!is_name(axis.of) || !names.insert(axis.of).second) {
      throw InputError(reader.pointer("of"),
                       fmt::format("\"{}\" is no name of an axis, or stands twice", axis.of));
    }
    const nlohmann::json& values = reader.at("values");
    if (!values.is_array() || values.empty() || values.size() > kPlaceLetters.size()) {
      throw InputError(reader.pointer("values"),
                       fmt::format("\"values\" takes 1 to {} objects", kPlaceLetters.size()));
    }
    for (std::size_t v = 0; v < values.size(); ++v) {
      ObjectReader is_object(values[v], fmt::format("{}/{}", reader.pointer("values"), v));
      axis.values.push_back(values[v]);
    }
    reader.finish();
    axes.push_back(std::move(axis));
  }
  return axes;
}

// Of `count` things, the one that falls to `what` of a row.
Index chosen(const std::string& seed, std::string_view what, Index count) {
  const std::uint64_t random =
      philox({0, 0, 0, 0}, philox_key(fmt::format("{}#{}", seed, what)))[0];
  return static_cast<Index>((random * static_cast<std::uint64_t>(count)) >> 32);
}

// One of them the whole, one in ten empty, the others anything between.
nlohmann::json lengths_up_to(Index whole, Index batch, const std::string& seed, const char* what) {
  const Index longest = chosen(seed, fmt::format("{}/longest", what), batch);
  nlohmann::json lengths = nlohmann::json::array();
  for (Index b = 0; b < batch; ++b) {
    const auto one = [&](const char* part, Index count) {
      return chosen(seed, fmt::format("{}/{}/{}", what, b, part), count);
    };
    const bool empty = one("empty", 10) == 0;
    lengths.push_back(b == longest ? whole : empty ? 0 : one("length", whole) + 1);
  }
  return lengths;
}

}  // namespace

CoverPlaces Cover::places_of(std::string_view row) const {
  const std::size_t dot = row.find('.');
  CoverPlaces places(axis_count(), 0);
  const auto read = [&](std::string_view letters, std::size_t first, std::size_t count) {
    if (letters.size() > count) return false;
    for (std::size_t n = 0; n < letters.size(); ++n) {
      places[first + n] = kPlaceLetters.find(letters[n]);
      if (places[first + n] >= axis(first + n).values.size()) return false;
    }
    return true;
  };
  if (dot == row.npos || !read(row.substr(0, dot), 0, features.size()) ||
      !read(row.substr(dot + 1), features.size(), situations.size())) {
    throw InputError("", fmt::format("\"{}\" is no row: a letter for each feature, a dot, a letter "
                                     "for each situation, each of a value that there is",
                                     row));
  }
  return places;
}

std::string Cover::row_of(const CoverPlaces& places) const {
  std::string row;
  for (std::size_t n = 0; n < places.size(); ++n) {
    if (n == features.size()) row += '.';
    row += kPlaceLetters[places[n]];
  }
  return row;
}

nlohmann::json Cover::fields_of(std::string_view row, const std::string& seed,
                                nlohmann::json fields) const {
  const CoverPlaces places = places_of(row);
  nlohmann::json clauses = nlohmann::json::array();
  for (std::size_t n = 0; n < places.size(); ++n) {
    const nlohmann::json& value = axis(n).values[places[n]];
    fields.update(value);
    const nlohmann::json own = value.value("clauses", nlohmann::json::array());
    clauses.insert(clauses.end(), own.begin(), own.end());
  }
  fields["clauses"] = clauses;
  for (const char* size : {"batch", "query_len", "key_len", "head_dim", "value_dim"}) {
    const auto found = fields.find(size);
    if (found == fields.end() || !found->is_array() || found->empty()) continue;
    const nlohmann::json one =
        (*found)[static_cast<std::size_t>(chosen(seed, size, std::ssize(*found)))];
    *found = one;
  }
  const auto lengths = fields.find("lengths");
  if (lengths == fields.end()) return fields;
  const std::string of = lengths->is_string() ? lengths->get<std::string>() : "";
  if (of != "keys" && of != "both") throw InputError("", "\"lengths\" is \"keys\" or \"both\"");
  fields.erase(lengths);
  const auto size = [&](const char* name) { return fields.value<Index>(name, 1); };
  const Index batch = size("batch");
  if (of == "both") {
    fields["query_lens"] = lengths_up_to(size("query_len"), batch, seed, "query_lens");
  }
  fields["key_lens"] = lengths_up_to(size("key_len"), batch, seed, "key_lens");
  if (fields.value("packed", false)) fields.erase("query_len");
  if (fields.value("packed", false) || fields.contains("paging")) fields.erase("key_len");
  return fields;
}

Cover read_cover(const nlohmann::json& value, const std::string& pointer) {
  ObjectReader reader(value, pointer);
  Cover cover;
  cover.strength = reader.get<std::size_t>("strength");
  std::set<std::string> names;
  cover.features = read_axis_list(reader.at("features"), reader.pointer("features"), names);
  cover.situations = read_axis_list(reader.at("situations"), reader.pointer("situations"), names);
  cover.rows = reader.get<std::vector<std::string>>("rows");
  reader.finish();
  if (cover.strength < 1 || cover.strength > cover.axis_count()) {
    throw InputError(reader.pointer("strength"), "\"strength\" is 1 to the number of axes");
  }
  std::set<std::string> rows;
  for (std::size_t n = 0; n < cover.rows.size(); ++n) {
    const std::string place = fmt::format("{}/{}", reader.pointer("rows"), n);
    try {
      cover.places_of(cover.rows[n]);
    } catch (const InputError& error) {
      throw InputError(place, error.what());
    }
    if (!rows.insert(cover.rows[n]).second) {
      throw InputError(place, fmt::format("the row \"{}\" stands twice", cover.rows[n]));
    }
  }
  return cover;
}

}  // namespace attest
