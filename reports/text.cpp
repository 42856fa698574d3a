#include "reports/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>
#include <vector>

namespace attest {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct CodePoint {
  char32_t value = 0;
  std::size_t bytes = 0;  // 0: no valid UTF-8 begins here
};

CodePoint decode(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return {};
  char32_t value = lead & (0x7Fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    value = (value << 6) | (byte(i) & 0x3Fu);
  }
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value < kSmallest[bytes] || value > 0x10FFFF || surrogate) return {};
  return {value, bytes};
}

bool is_direction_override(char32_t c) {
  return (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

// U+FFFE and U+FFFF are no characters, and XML forbids them.
bool is_noncharacter(char32_t c) { return c == 0xFFFE || c == 0xFFFF; }

std::string picture_of(char32_t control) {
  const char32_t low = control == 0x7F ? 0x21 : control;
  return {'\xE2', '\x90', static_cast<char>(0x80 + low)};  // U+2400 + low
}

}  // namespace

std::string clean(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint c = decode(text);
    const std::size_t taken = std::max<std::size_t>(c.bytes, 1);
    const bool c1_control = c.value >= 0x80 && c.value < 0xA0;
    if (c.bytes == 0 || c1_control || is_direction_override(c.value) || is_noncharacter(c.value)) {
      out += kReplacement;
    } else if ((c.value < 0x20 && c.value != '\n' && c.value != '\t') || c.value == 0x7F) {
      out += picture_of(c.value);
    } else {
      out += text.substr(0, taken);
    }
    text.remove_prefix(taken);
  }
  return out;
}

std::string one_line(std::string_view text) {
  std::string out = clean(text);
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return out;
}

std::string excerpt(std::string_view text, std::size_t kept, std::string_view where) {
  if (text.size() <= 2 * kept) return std::string(text);
  const auto continues = [&](std::size_t i) { return (text[i] & 0xC0) == 0x80; };
  std::size_t head = kept;
  std::size_t tail = text.size() - kept;
  for (int i = 0; i < 3 && continues(head); ++i) --head;  // not within a character
  for (int i = 0; i < 3 && continues(tail); ++i) ++tail;
  return fmt::format("{}\n[... {} bytes left out{} ...]\n{}", text.substr(0, head), tail - head,
                     where.empty() ? "" : fmt::format("; {} has them", where), text.substr(tail));
}

std::string_view last_lines(std::string_view text, std::size_t most) {
  text = text.substr(0, text.find_last_not_of('\n') + 1);
  std::size_t begin = text.size() + 1;  // behind the newline before the lines that are taken
  for (; most > 0 && begin > 0; --most) {
    begin = begin < 2 ? 0 : text.rfind('\n', begin - 2) + 1;  // none: npos + 1 is 0
  }
  return text.substr(std::min(begin, text.size()));
}

std::string quoted_lines(std::string_view printed, std::size_t first, std::size_t last,
                         std::string_view where) {
  constexpr std::size_t kLineBytes = 100;
  std::vector<std::string> lines;
  std::istringstream in{std::string(printed.substr(0, printed.find_last_not_of('\n') + 1))};
  for (std::string line; std::getline(in, line);) lines.push_back(std::move(line));
  std::string out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i == first && lines.size() > first + last) {
      i = lines.size() - last;
      const std::string count = count_text(static_cast<Index>(i - first), "line");
      if (first > 0) out += fmt::format("    [... {} left out ...]\n", count);
    }
    out += fmt::format("    | {}\n", one_line(excerpt(lines[i], kLineBytes, where)));
  }
  return out;
}

std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string pad_left(std::string_view text, std::size_t columns) {
  return std::string(columns - std::min(columns, width(text)), ' ').append(text);
}

std::string pad_right(std::string_view text, std::size_t columns) {
  return std::string(text).append(columns - std::min(columns, width(text)), ' ');
}

std::string number_text(double value) {
  return std::isnan(value) ? "nan" : fmt::format("{:.9g}", value);  // never "-nan"
}

std::string ratio_text(double value) {
  return std::isnan(value) ? "nan" : fmt::format("{:.3g}", value);
}

std::string duration_text(double seconds) {
  if (!(seconds >= 60)) return fmt::format("{} s", ratio_text(seconds));
  if (seconds >= 1e15) return fmt::format("{:.3g} s", seconds);
  const auto whole = static_cast<Index>(seconds);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

std::string count_text(Index count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string list_text(const std::vector<std::string>& items, std::string_view if_empty) {
  return items.empty() ? std::string(if_empty) : fmt::format("{}", fmt::join(items, ", "));
}

std::string element_text(TensorName tensor, const TensorEvidence& evidence) {
  if (evidence.worst.empty()) return std::string(name(tensor));
  return fmt::format("{}[{}]", name(tensor), fmt::join(evidence.worst, ","));
}

std::string outcome_text(const Verdict& verdict) {
  return verdict.reason.empty() ? std::string(name(verdict.outcome))
                                : fmt::format("{}({})", name(verdict.outcome), verdict.reason);
}

std::string evidence_text(TensorName tensor, const TensorEvidence& evidence) {
  if (evidence.compared == 0 && evidence.max_ratio == 0)
    return fmt::format("{}: nothing compared", name(tensor));
  return fmt::format("{} = {}, exact {}, bound {}, ratio {}", element_text(tensor, evidence),
                     number_text(evidence.actual), number_text(evidence.exact),
                     number_text(evidence.bound), ratio_text(evidence.max_ratio));
}

}  // namespace attest
