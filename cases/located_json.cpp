#include "cases/located_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "spec/json_text.h"

namespace attest {
namespace {

// Reads characters and leaves behind how far it has come.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* place, const char** reached) : place_(place), reached_(reached) {}
  reference operator*() const { return *place_; }
  CountingIterator& operator++() {
    *reached_ = ++place_;
    return *this;
  }
  CountingIterator operator++(int) {
    const CountingIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator!=(const CountingIterator& a, const CountingIterator& b) {
    return a.place_ != b.place_;
  }

 private:
  const char* place_;
  const char** reached_;
};

// Builds the document, and notes for each value the line on which its key stands (or, in an array,
// the line on which it starts).
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(std::string_view text, const std::string& file, nlohmann::json& root,
          std::map<std::string, int>& lines)
      : text_(text), reached_(text.data()), file_(file), root_(root), lines_(lines) {}

  const char** reached() { return &reached_; }

  bool null() override { return add(nullptr, 0); }
  bool boolean(bool value) override { return add(value, 0); }
  // To see the end of a number, the parser has read one character more.
  bool number_integer(number_integer_t value) override { return add(value, 1); }
  bool number_unsigned(number_unsigned_t value) override { return add(value, 1); }
  bool number_float(number_float_t value, const string_t&) override { return add(value, 1); }
  bool string(string_t& value) override { return add(value, 0); }
  bool binary(binary_t&) override { return false; }  // JSON text has none
  bool start_object(std::size_t) override { return open(nlohmann::json::object()); }
  bool start_array(std::size_t) override { return open(nlohmann::json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    Level& level = levels_.back();
    level.pointer = level.own_pointer + "/" + name;
    level.key = name;
    if (level.value->contains(name)) {
      throw InputError(level.pointer,
                       fmt::format("{}:{}: the key \"{}\" stands twice", file_, line(0), name));
    }
    lines_[level.pointer] = line(0);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    reached_ = text_.data() + std::min(position, text_.size());
    // nlohmann's text starts "[json.exception...] parse error at line 3, column 5: ".
    const std::string what = error.what();
    const auto start = what.find(": ");
    throw InputError("", fmt::format("{}:{}: {}", file_, line(1),
                                     start == what.npos ? what : what.substr(start + 2)));
  }

 private:
  struct Level {
    nlohmann::json* value;
    std::string own_pointer;
    std::string pointer = {};  // of the member that comes next
    std::string key = {};
  };

  int line(std::ptrdiff_t ahead) {
    const char* const here = std::max(text_.data(), reached_ - ahead);
    if (here < counted_) {  // by the one character that is ahead
      line_ -= static_cast<int>(std::count(here, counted_, '\n'));
    } else {
      line_ += static_cast<int>(std::count(counted_, here, '\n'));
    }
    counted_ = here;
    return line_;
  }

  nlohmann::json* place(nlohmann::json value, std::ptrdiff_t ahead, std::string& pointer) {
    if (levels_.empty()) {
      lines_[""] = line(ahead);
      root_ = std::move(value);
      return &root_;
    }
    Level& level = levels_.back();
    if (level.value->is_object()) {
      pointer = level.pointer;
      return &((*level.value)[level.key] = std::move(value));
    }
    pointer = fmt::format("{}/{}", level.own_pointer, level.value->size());
    lines_[pointer] = line(ahead);
    level.value->push_back(std::move(value));
    return &level.value->back();
  }

  bool add(nlohmann::json value, std::ptrdiff_t ahead) {
    std::string pointer;
    place(std::move(value), ahead, pointer);
    return true;
  }

  bool open(nlohmann::json empty) {
    std::string pointer;
    nlohmann::json* value = place(std::move(empty), 0, pointer);
    levels_.push_back({.value = value, .own_pointer = pointer});
    return true;
  }

  bool close() {
    levels_.pop_back();
    return true;
  }

  std::string_view text_;
  const char* reached_;
  const char* counted_ = text_.data();  // up to which line_ counts
  int line_ = 1;
  const std::string& file_;
  nlohmann::json& root_;
  std::map<std::string, int>& lines_;
  std::vector<Level> levels_;
};

}  // namespace

LocatedJson::LocatedJson(std::string_view text, std::string file) : file_(std::move(file)) {
  if (const auto place = too_deep_at(text, kDeepestJson)) {
    const auto line = 1 + std::count(text.begin(), text.begin() + std::ptrdiff_t(*place), '\n');
    throw InputError(
        "", fmt::format("{}:{}: lists and objects nest deeper than {}", file_, line, kDeepestJson));
  }
  Builder builder(text, file_, root_, lines_);
  const char* const end = text.data() + text.size();
  nlohmann::json::sax_parse(CountingIterator(text.data(), builder.reached()),
                            CountingIterator(end, builder.reached()), &builder);
}

int LocatedJson::line_of(std::string pointer) const {
  while (true) {
    if (const auto place = lines_.find(pointer); place != lines_.end()) return place->second;
    const auto slash = pointer.rfind('/');
    if (slash == pointer.npos) return 1;
    pointer.resize(slash);
  }
}

InputError LocatedJson::locate(const InputError& error) const {
  return InputError(error.pointer(),
                    fmt::format("{}:{}: {}", file_, line_of(error.pointer()), error.what()));
}

}  // namespace attest
