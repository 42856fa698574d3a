#include "spec/pattern.h"

#include <string_view>

namespace attest {
namespace {

bool glob(std::string_view text, std::string_view pattern) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] != '*') {
    return !text.empty() && text[0] == pattern[0] && glob(text.substr(1), pattern.substr(1));
  }
  const bool across = pattern.starts_with("**");
  const std::string_view rest = pattern.substr(across ? 2 : 1);
  for (std::size_t taken = 0;; ++taken) {
    if (glob(text.substr(taken), rest)) return true;
    if (taken == text.size() || (!across && text[taken] == '/')) return false;
  }
}

}  // namespace

bool matches(const std::string& id, const std::string& pattern) {
  if (pattern.find('*') != pattern.npos) return glob(id, pattern);
  return id == pattern ||
         (id.starts_with(pattern) && (pattern.ends_with('/') || id[pattern.size()] == '/'));
}

}  // namespace attest
