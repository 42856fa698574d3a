// Pictures of many rows and columns: which judge catches which kernel. A page with them is by
// itself, as index.html is: its script draws what lies compressed in it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "reports/markup.h"

namespace attest {

struct CatchTable {
  std::string title;
  std::vector<std::string> rows, columns;  // their names
  // A text a row, a letter a column: 'c' caught, 'm' missed, '.' neither.
  std::vector<std::string> letters;
};

// Where the page's script draws the table of that number; what it says without one.
Markup place_of_catches(std::size_t number);

std::string catches_page(std::string_view title, const Markup& content,
                         const std::vector<CatchTable>& tables);

}  // namespace attest
