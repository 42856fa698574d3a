// What a seed's text says of a system, and where it is to be seen here: one row of the page that
// `vendor_figures` writes of all of them.
#pragma once

#include <string>
#include <vector>

namespace attest::vendor {

struct Figure {
  std::string seed;   // what the text says, in a few words: "8 block rows on 9 cores, causal"
  std::string said;   // its figure: "8 -> 4"; empty of a mechanism
  std::string here;   // what was counted when this was called, or "" where nothing can be
  std::string where;  // a file, clause, case or test; or why there is none
};

}  // namespace attest::vendor
