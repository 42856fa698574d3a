#include "reports/standard.h"

#include <fmt/format.h>

namespace attest {

extern const unsigned char g_standard[];  // made by cmake/embed.cmake
extern const unsigned long g_standard_bytes;

std::string_view standard_text() {
  return {reinterpret_cast<const char*>(g_standard), g_standard_bytes};
}

std::string_view text_of_clause(std::string_view id) {
  std::string_view text = standard_text();
  const std::size_t heading = text.find(fmt::format("\n### {} ", id));
  if (heading == text.npos) return "";
  const std::size_t begin = text.find("\n\n", heading) + 2;
  text = text.substr(begin, text.find("\n#", begin) - begin);
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

}  // namespace attest
