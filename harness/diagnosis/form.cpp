#include "harness/diagnosis/form.h"

#include <fmt/format.h>

#include <cctype>

namespace attest {

std::string form_of(const Problem& p) {
  std::string mask = to_string(p.mask);
  std::erase_if(mask, [](unsigned char c) { return std::isdigit(c) != 0 || c == '-'; });
  const int longer = (p.query_len > p.key_len) - (p.query_len < p.key_len);
  return fmt::format("{} {} {} {} {} {}", mask, longer, p.query_len == 1, p.batch == 1,
                     p.query_heads == 1, p.query_heads == p.key_heads);
}

}  // namespace attest
