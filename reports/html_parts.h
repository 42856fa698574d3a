// Pieces of which the HTML page is made, and which look alike wherever they stand on it.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "reports/digest.h"
#include "reports/markup.h"
#include "reports/page/files.h"

namespace attest::html {

// The class of style.cpp that an outcome, or the conclusion, is shown in.
const char* tone(Outcome outcome);
const char* tone(const Digest& d);

Markup code(std::string_view text);
Markup badge(Outcome outcome);
Markup quiet(std::string_view text);
Markup block(const Markup& text);  // as it is, line by line; a keyboard can scroll it

// Cells, of rows and of heads.
Markup number(const std::string& text);
Markup id_cell(std::string_view text);
Markup title(std::string_view text);
Markup number_title(std::string_view text);

// Of a label for who does not see it.
Markup table(std::string_view label, const Markup& head, const Markup& rows);
Markup section(std::string_view id, std::string_view heading, const Markup& content);

// Where a failure stands.
std::string anchor(std::size_t failure);

// In a list of class "facts".
Markup fact(std::string_view term, const Markup& value);

// "#cases?clause=MASK-3&testee=fa2": the table of cases, as the script of the page then shows it.
std::string cases_link(std::initializer_list<std::pair<std::string_view, std::string>> filters);

// A link to that, which a screen reader is told more of than stands there.
Markup cases_anchor(std::initializer_list<std::pair<std::string_view, std::string>> filters,
                    const std::string& label, const std::string& text);

// A region that scrolls by itself, which a keyboard can reach.
Markup scrolling(const char* style, std::string_view label, const Markup& content);

// The whole page of such a body: nothing is fetched and no script runs but those, even if something
// slipped through the escaping.
std::string page(std::string_view title, const Markup& body, const page::Scripts& scripts = {});

std::string counts_text(const Counts& counts);

}  // namespace attest::html
