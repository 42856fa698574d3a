#include "harness/command/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace attest {
namespace {

constexpr std::string_view kPlain = "\x1b[0m", kRed = "\x1b[31m", kGreen = "\x1b[32m",
                           kYellow = "\x1b[33m", kBold = "\x1b[1m";

// How lines begin that are shown in colour.
constexpr std::array<std::pair<std::string_view, std::string_view>, 16> kBeginnings = {
    {{"PASS", kGreen},
     {"WARN", kYellow},
     {"FAIL", kRed},
     {"CRASH", kRed},
     {"TIMEOUT", kRed},
     {"PROTOCOL_ERROR", kRed},
     {"HARNESS_ERROR", kRed},
     {"INCONCLUSIVE", kYellow},
     {"NOT_RUN", kYellow},
     {"Conformant:", kGreen},
     {"No failure", kGreen},
     {"Not conformant", kRed},
     {"Incomplete", kYellow},
     {"Truncated", kYellow},
     {"Inconsistent", kRed},
     {"Did you mean", kBold}}};

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value && *value != '\0';
}

bool is_terminal(std::FILE* file) {
  const char* kind = std::getenv("TERM");
  return isatty(fileno(file)) != 0 && !(kind && std::strcmp(kind, "dumb") == 0);
}

std::string coloured_line(std::string_view line) {
  for (const auto& [beginning, colour] : kBeginnings) {
    if (!line.starts_with(beginning)) continue;
    const std::size_t end = std::min(line.find_first_of(" \n", beginning.size()), line.size());
    return std::string(colour).append(line.substr(0, end)).append(kPlain).append(line.substr(end));
  }
  return std::string(line);
}

}  // namespace

std::optional<Colour> colour_named(std::string_view name) {
  if (name == "auto") return Colour::automatic;
  if (name == "always") return Colour::always;
  if (name == "never") return Colour::never;
  return std::nullopt;
}

Terminal::Terminal(std::FILE* file, const TerminalOptions& options)
    : file_(file),
      interactive_(is_terminal(file)),
      coloured_(options.colour == Colour::always ||
                (options.colour == Colour::automatic && interactive_ && !is_set("NO_COLOR"))) {}

Terminal::Terminal(std::FILE* file, bool interactive, bool coloured, std::size_t columns)
    : file_(file), interactive_(interactive), coloured_(coloured), columns_(columns) {}

std::size_t Terminal::columns() const {
  constexpr std::size_t kUsual = 80;
  if (columns_ > 0) return columns_;
  if (const char* said = std::getenv("COLUMNS")) {
    const long columns = std::strtol(said, nullptr, 10);
    if (columns > 0) return static_cast<std::size_t>(columns);
  }
  winsize size{};
  if (ioctl(fileno(file_), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return kUsual;
}

void Terminal::write(std::string_view text) const {
  std::fwrite(text.data(), 1, text.size(), file_);
  std::fflush(file_);
}

void Terminal::write_coloured(std::string_view text) const {
  write(coloured_ ? in_colour(text) : std::string(text));
}

std::string in_colour(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n') + 1);
    out += coloured_line(line.empty() ? text : line);
    text.remove_prefix(line.empty() ? text.size() : line.size());
  }
  return out;
}

}  // namespace attest
