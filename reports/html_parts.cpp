#include "reports/html_parts.h"

#include <fmt/format.h>

#include <vector>

#include "reports/style.h"
#include "reports/text.h"

namespace attest::html {

const char* tone(Outcome outcome) {
  switch (outcome) {
    case Outcome::pass:
      return "good";
    case Outcome::warn:
      return "warn";
    case Outcome::unsupported:
      return "mute";
    case Outcome::not_run:
    case Outcome::inconclusive:
      return "warn";
    default:
      return "bad";
  }
}

const char* tone(const Digest& d) {
  if (d.conclusion == "not conformant") return "bad";
  return d.conclusion == "conformant" || d.conclusion == kNoFailure ? "good" : "warn";
}

Markup code(std::string_view text) { return element("code", {}, text); }

Markup badge(Outcome outcome) {
  return element("span", {{"class", fmt::format("badge {}", tone(outcome))}},
                 std::string(name(outcome)));
}

Markup number(const std::string& text) { return element("td", {{"class", "number"}}, text); }
Markup id_cell(std::string_view text) { return element("td", {{"class", "id"}}, code(text)); }
Markup title(std::string_view text) { return element("th", {}, text); }
Markup number_title(std::string_view text) { return element("th", {{"class", "number"}}, text); }

Markup table(const Markup& head, const Markup& rows) {
  return element("div", {{"class", "scroll"}},
                 element("table", {}, element("thead", {}, element("tr", {}, head)),
                         element("tbody", {}, rows)));
}

Markup quiet(std::string_view text) { return element("p", {{"class", "quiet"}}, text); }

Markup section(std::string_view id, std::string_view heading, const Markup& content) {
  return element("section", {{"id", std::string(id)}}, element("h2", {}, heading), content);
}

std::string anchor(std::size_t failure) { return fmt::format("failure-{}", failure + 1); }

Markup fact(std::string_view term, const Markup& value) {
  return element("dt", {}, term) + element("dd", {}, value);
}

std::string page(std::string_view title, const Markup& body) {
  return (Markup::raw("<!DOCTYPE html>\n<html lang=\"en\">\n") + Markup::raw(R"html(<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
)html") + element("title", {}, title) +
          Markup::raw("\n") + element("style", {}, style_sheet()) + Markup::raw("</head>\n") +
          body + Markup::raw("</html>\n"))
      .str();
}

std::string counts_text(const Counts& counts) {
  std::vector<std::string> parts;
  for (const auto& [outcome, count] : counts) {
    parts.push_back(fmt::format("{} {}", count, name(outcome)));
  }
  return list_text(parts, "no case");
}

}  // namespace attest::html
