// Pieces of which the HTML page is made, and which look alike wherever they stand on it.
#pragma once

#include <string>
#include <string_view>

#include "reports/digest.h"
#include "reports/markup.h"

namespace attest::html {

// The class of style.cpp that an outcome, or the conclusion, is shown in.
const char* tone(Outcome outcome);
const char* tone(const Digest& d);

Markup code(std::string_view text);
Markup badge(Outcome outcome);
Markup quiet(std::string_view text);

// Cells, of rows and of heads.
Markup number(const std::string& text);
Markup id_cell(std::string_view text);
Markup title(std::string_view text);
Markup number_title(std::string_view text);

Markup table(const Markup& head, const Markup& rows);
Markup section(std::string_view id, std::string_view heading, const Markup& content);

// Where a failure stands.
std::string anchor(std::size_t failure);

// In a list of class "facts".
Markup fact(std::string_view term, const Markup& value);

// The whole page of such a body: nothing is fetched and no script runs, even if something slipped
// through the escaping.
std::string page(std::string_view title, const Markup& body);

std::string counts_text(const Counts& counts);

}  // namespace attest::html
