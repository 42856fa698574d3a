#include "reports/html_parts.h"

#include <fmt/format.h>

#include <cctype>
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
Markup title(std::string_view text) { return element("th", {{"scope", "col"}}, text); }
Markup number_title(std::string_view text) {
  return element("th", {{"class", "number"}, {"scope", "col"}}, text);
}

Markup scrolling(const char* style, std::string_view label, const Markup& content) {
  return element(
      "div",
      {{"class", style}, {"role", "group"}, {"aria-label", std::string(label)}, {"tabindex", "0"}},
      content);
}

Markup table(std::string_view label, const Markup& head, const Markup& rows) {
  return scrolling("scroll", label,
                   element("table", {}, element("thead", {}, element("tr", {}, head)),
                           element("tbody", {}, rows)));
}

Markup quiet(std::string_view text) { return element("p", {{"class", "quiet"}}, text); }

Markup block(const Markup& text) { return element("pre", {{"tabindex", "0"}}, text); }

Markup section(std::string_view id, std::string_view heading, const Markup& content) {
  return element("section", {{"id", std::string(id)}}, element("h2", {}, heading), content);
}

std::string anchor(std::size_t failure) { return fmt::format("failure-{}", failure + 1); }

Markup fact(std::string_view term, const Markup& value) {
  return element("dt", {}, term) + element("dd", {}, value);
}

std::string cases_link(std::initializer_list<std::pair<std::string_view, std::string>> filters) {
  std::string link = "#cases";
  char before = '?';
  for (const auto& [key, value] : filters) {
    link += fmt::format("{}{}=", before, key);
    before = '&';
    for (const char c : one_line(value)) {
      const auto byte = static_cast<unsigned char>(c);
      const bool plain = byte < 0x80 && (std::isalnum(byte) || c == '-' || c == '_' || c == '.');
      link += plain ? std::string(1, c) : fmt::format("%{:02X}", byte);
    }
  }
  return link;
}

Markup cases_anchor(std::initializer_list<std::pair<std::string_view, std::string>> filters,
                    const std::string& label, const std::string& text) {
  return element("a", {{"href", cases_link(filters)}, {"aria-label", label}}, text);
}

std::string page(std::string_view title, const Markup& body, const page::Scripts& scripts) {
  const std::string policy =
      fmt::format("default-src 'none'; style-src 'unsafe-inline'{}{}",
                  scripts.sources.empty() ? "" : "; script-src ", scripts.sources);
  return (Markup::raw("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                      "<meta http-equiv=\"Content-Security-Policy\" content=\"") +
          Markup::raw(Embedded{policy, ""}) +
          Markup::raw("\">\n<meta name=\"viewport\" content=\"width=device-width, "
                      "initial-scale=1\">\n") +
          element("title", {}, title) + Markup::raw("\n") + element("style", {}, style_sheet()) +
          Markup::raw("</head>\n") + body + Markup::raw("</html>\n"))
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
