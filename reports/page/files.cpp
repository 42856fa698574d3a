#include "reports/page/files.h"

#include <fmt/format.h>

#include <array>

#include "reports/page/packed.h"

// Made by cmake/embed.cmake.
#define ATTEST_EMBEDDED(name)                  \
  extern const unsigned char g_##name[];       \
  extern const unsigned long g_##name##_bytes; \
  extern const char g_##name##_sha256[];

namespace attest {

ATTEST_EMBEDDED(page_style)
ATTEST_EMBEDDED(chart_library)
ATTEST_EMBEDDED(chart_licence)
ATTEST_EMBEDDED(page_data)
ATTEST_EMBEDDED(page_state)
ATTEST_EMBEDDED(page_table)
ATTEST_EMBEDDED(page_detail)
ATTEST_EMBEDDED(page_pictures)
ATTEST_EMBEDDED(page_charts)
ATTEST_EMBEDDED(page_catches)
ATTEST_EMBEDDED(page_main)

namespace page {
namespace {

Embedded file_of(const unsigned char* begin, unsigned long bytes, const char* digest) {
  return {{reinterpret_cast<const char*>(begin), bytes}, digest};
}

void add(Scripts& scripts, const Embedded& file) {
  if (file.text.empty()) return;
  scripts.elements += element("script", {}, Markup::raw(file));
  scripts.sources += (scripts.sources.empty() ? "" : " ") + source_of(file);
}

#define ATTEST_FILE(name) file_of(g_##name, g_##name##_bytes, g_##name##_sha256)

}  // namespace

const Embedded& style() {
  static const Embedded file = ATTEST_FILE(page_style);
  return file;
}

const Embedded& chart_library() {
  static const Embedded file = ATTEST_FILE(chart_library);
  return file;
}

const Embedded& chart_licence() {
  static const Embedded file = ATTEST_FILE(chart_licence);
  return file;
}

std::span<const Embedded> scripts() {
  static const std::array files = {ATTEST_FILE(page_data),     ATTEST_FILE(page_state),
                                   ATTEST_FILE(page_pictures), ATTEST_FILE(page_detail),
                                   ATTEST_FILE(page_table),    ATTEST_FILE(page_charts),
                                   ATTEST_FILE(page_main)};
  return files;
}

std::span<const Embedded> scripts_of_catches() {
  static const std::array files = {ATTEST_FILE(page_data), ATTEST_FILE(page_pictures),
                                   ATTEST_FILE(page_catches)};
  return files;
}

std::string source_of(const Embedded& script) {
  return fmt::format("'sha256-{}'", base64(bytes_of_hex(script.sha256)));
}

Scripts all_scripts() {
  Scripts all;
  add(all, chart_library());
  for (const Embedded& file : scripts()) add(all, file);
  return all;
}

Scripts catches_scripts() {
  Scripts all;
  for (const Embedded& file : scripts_of_catches()) add(all, file);
  return all;
}

}  // namespace page
}  // namespace attest
