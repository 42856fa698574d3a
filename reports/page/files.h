// The files of the page, as they were when this was built: our style sheet and scripts, and the
// chart library of the package libjs-chart.js.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "reports/markup.h"

namespace attest::page {

const Embedded& style();
std::span<const Embedded> scripts();  // of index.html, in the order in which they are run
std::span<const Embedded> scripts_of_catches();  // of pages with those (reports/catches.h)

// Empty if this was built where the package was not installed: then pages draw no charts.
const Embedded& chart_library();
const Embedded& chart_licence();  // what the package says of copying it

// What a Content-Security-Policy calls a script of that text: 'sha256-...'.
std::string source_of(const Embedded& script);

// A page's scripts, and what its policy lets run.
struct Scripts {
  Markup elements;
  std::string sources;
};
Scripts all_scripts();  // with the library
Scripts catches_scripts();

}  // namespace attest::page
