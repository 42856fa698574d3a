#include "cases/resize.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace attest {

using nlohmann::json;

void set_count(json& list, Index count) {
  const json given = list;
  if (given.empty()) return;
  list = json::array();
  for (Index n = 0; n < count; ++n) {
    list.push_back(given[static_cast<std::size_t>(n) % given.size()]);
  }
}

void cut_down(json& list, Index most) {
  for (json& each : list) each = std::min(each.get<Index>(), most);
}

void adapt_mask(json& mask, const Problem& sizes, std::optional<Anchor> anchor) {
  if (mask.is_string()) {
    auto text = mask.get<std::string>();
    if (text.starts_with("prefix ")) {
      Index length = 0;
      std::from_chars(text.data() + 7, text.data() + text.size(), length);
      mask = fmt::format("prefix {}", std::min(length, sizes.key_len));
    } else if (anchor && text != "full") {
      for (const std::string_view corner : {" top_left", " bottom_right"}) {
        if (const auto place = text.find(corner); place != text.npos) {
          text.erase(place, corner.size());
        }
      }
      mask = fmt::format("{} {}", text, name(*anchor));
    }
  } else if (mask.is_object()) {
    for (auto& [key, value] : mask.items()) {
      if (key == "prefix") {
        if (value.size() > 1) set_count(value, sizes.batch);
        cut_down(value, sizes.key_len);
      } else if (key == "all_of" || key == "any_of") {
        for (json& part : value) adapt_mask(part, sizes, anchor);
      }
    }
  }
}

void shorten(json& list, Index count, Index most) {
  while (list.size() > static_cast<std::size_t>(count)) list.erase(list.size() - 1);
  cut_down(list, most);
}

void shorten_mask(json& mask, Index batch, Index keys) {
  if (mask.is_object()) {
    for (auto& [key, value] : mask.items()) {
      if (key == "prefix") {
        shorten(value, std::max<Index>(batch, 1), keys);
      } else {
        shorten_mask(value, batch, keys);
      }
    }
  } else if (mask.is_array()) {
    for (json& part : mask) shorten_mask(part, batch, keys);
  }
}

}  // namespace attest
