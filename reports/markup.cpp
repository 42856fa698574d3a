#include "reports/markup.h"

#include <array>

#include "reports/text.h"

namespace attest {
namespace {

std::string escape(std::string_view clean_text) {
  std::string out;
  out.reserve(clean_text.size());
  for (const char c : clean_text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// Elements that end a line of the source, so that a page can be read and compared as text.
bool ends_line(std::string_view tag) {
  constexpr std::array<std::string_view, 16> kInline = {
      "a", "b",     "code", "dd", "dt", "i",   "li",      "pre",
      "q", "small", "span", "td", "th", "sub", "summary", "strong"};
  for (const std::string_view other : kInline) {
    if (tag == other) return false;
  }
  return true;
}

}  // namespace

Markup::Markup(std::string_view text) : text_(escape(clean(text))) {}

Markup attributes_of(std::initializer_list<Attribute> attributes) {
  Markup out;
  for (const Attribute& attribute : attributes) {
    out += Markup::raw(" ");
    out += Markup(attribute.name);
    out += Markup::raw("=\"");
    out += Markup(one_line(attribute.value));
    out += Markup::raw("\"");
  }
  return out;
}

Markup element_of(std::string_view tag, const Markup& attributes, const Markup& content) {
  Markup out;
  out.text_ += '<';
  out.text_ += tag;
  out.text_ += attributes.str();
  out.text_ += '>';
  out.text_ += content.str();
  out.text_ += "</";
  out.text_ += tag;
  out.text_ += '>';
  if (ends_line(tag)) out.text_ += '\n';
  return out;
}

}  // namespace attest
