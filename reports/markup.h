// HTML and XML that cannot be injected into: strings become markup by being escaped, and in no
// other way but `Markup::raw`, which takes our own literals and files.
//
//   element("td", {{"class", "worst"}}, case_id, element("b", {}, ratio))
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace attest {

// A file of ours, or of a library, that was put into the program when it was built.
struct Embedded {
  std::string_view text;
  std::string_view sha256;  // hexadecimal digits
};

class Markup {
 public:
  Markup() = default;
  Markup(std::string_view text);                                       // escaped
  Markup(const std::string& text) : Markup(std::string_view(text)) {}  // escaped
  Markup(const char* text) : Markup(std::string_view(text)) {}         // escaped
  template <std::size_t N>
  static Markup raw(const char (&literal)[N]) {
    Markup markup;
    markup.text_ = literal;
    return markup;
  }
  static Markup raw(const Embedded& file) {
    Markup markup;
    markup.text_ = file.text;
    return markup;
  }

  Markup& operator+=(const Markup& other) {
    text_ += other.text_;
    return *this;
  }
  bool empty() const { return text_.empty(); }
  const std::string& str() const { return text_; }

 private:
  friend Markup element_of(std::string_view, const Markup&, const Markup&);
  std::string text_;
};

inline Markup operator+(Markup left, const Markup& right) { return left += right; }

struct Attribute {
  std::string_view name;
  std::string value;
};

// ` name="value"` for each attribute; values are escaped and put on one line.
Markup attributes_of(std::initializer_list<Attribute> attributes);

// <tag attributes>content</tag>
Markup element_of(std::string_view tag, const Markup& attributes, const Markup& content);

template <class... Content>
Markup element(std::string_view tag, std::initializer_list<Attribute> attributes,
               const Content&... content) {
  Markup inner;
  ((inner += Markup(content)), ...);
  return element_of(tag, attributes_of(attributes), inner);
}

}  // namespace attest
