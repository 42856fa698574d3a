// Covering arrays: one entry that is many cases, each of them a meeting of features in a situation
// in which kernels have an instance of their own.
//
//   "cover": {"strength": 3,
//             "features":   [{"of": "mask", "values": [{}, {"mask": "causal"}]},
//                            {"of": "softcap", "values": [{}, {"softcap": 30}]}],
//             "situations": [{"of": "format", "values": [{"dtypes": ["bf16"]}, {"dtypes":
//             ["f16"]}]},
//                            {"of": "keys", "values": [{"key_len": [3, 17, 60]}, {"key_len": 64}]},
//                            {"of": "storage", "values": [{}, {"packed": true, "lengths":
//                            "both"}]}],
//             "rows": ["00.000", "10.110"]}
//
// A row has a letter for each axis, 0 to 9 and a to z: which of its values it takes. Values are
// fields of a problem, "dtypes", "data" and "hidden" with one word each, and "clauses", which the
// case cites beside those of its entry. Of a size that is given
// as a list each row takes one; "lengths" makes lengths of each batch element for the "keys" or for
// "both", one of them whole. What a row means follows from its letters, and its id from them alone:
//
//   cover/dispatch/all/r=10.110/dtype=f16/data=normal/s=1
//
// So ids stay when values are added at the end of an axis, axes at the end of their list, and rows
// anywhere: axes that a row has no letter for take their first value. Which combinations the rows
// have, and whether those are all of `strength`, tests/cases/cover_test.cpp counts; the rows are
// chosen by tests/cases/cover_rows.cpp.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace attest {

struct CoverAxis {
  std::string of;  // "mask"
  std::vector<nlohmann::json> values;
};

// Which value each axis takes, the features' first.
using CoverPlaces = std::vector<std::size_t>;

struct Cover {
  std::size_t strength = 2;
  std::vector<CoverAxis> features, situations;
  std::vector<std::string> rows;

  // Those of a row, or its letters. Throws InputError for what is no row.
  CoverPlaces places_of(std::string_view row) const;
  std::string row_of(const CoverPlaces& places) const;

  const CoverAxis& axis(std::size_t n) const {
    return n < features.size() ? features[n] : situations[n - features.size()];
  }
  std::size_t axis_count() const { return features.size() + situations.size(); }

  // What its values say together over `fields`, sizes and lengths chosen by `seed` where they leave
  // a choice: the fields of a problem and of an entry.
  nlohmann::json fields_of(std::string_view row, const std::string& seed,
                           nlohmann::json fields) const;
};

// Throws InputError for whatever is not as above, and for a row that stands twice.
Cover read_cover(const nlohmann::json& value, const std::string& pointer);

}  // namespace attest
