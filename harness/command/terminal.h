// Where text for a person goes: whether that is a terminal, how wide, and whether in colour.
#pragma once

#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

namespace attest {

enum class Colour { automatic, always, never };
enum class Loudness { quiet, usual, verbose };

struct TerminalOptions {
  Colour colour = Colour::automatic;  // on a terminal, unless NO_COLOR is set
  Loudness loudness = Loudness::usual;
};

// "auto", "always" or "never"; nothing for another text.
std::optional<Colour> colour_named(std::string_view name);

class Terminal {
 public:
  Terminal(std::FILE* file, const TerminalOptions& options);
  // One of that width, for tests; 0: as wide as the file's.
  Terminal(std::FILE* file, bool interactive, bool coloured, std::size_t columns);

  std::FILE* file() const { return file_; }
  bool is_interactive() const { return interactive_; }  // a line on it can be written anew
  // By now: what COLUMNS says, else the window; 80 if neither is known.
  std::size_t columns() const;

  // What it writes, at once. Whether anybody still reads it is no matter of the run.
  void write(std::string_view text) const;
  // The same with its outcomes and its conclusion in colour, if it is coloured.
  void write_coloured(std::string_view text) const;

 private:
  std::FILE* file_;
  bool interactive_, coloured_;
  std::size_t columns_ = 0;
};

// Each line that begins with an outcome or a conclusion has that in its colour.
std::string in_colour(std::string_view text);

}  // namespace attest
