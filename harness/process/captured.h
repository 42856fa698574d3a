// What a testee printed, of which its beginning and its end are kept: the end tells why it died.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace attest {

inline constexpr std::size_t kCaptureBytes = std::size_t(64) << 10;  // that are kept of it

class Captured {
 public:
  void add(std::string_view printed);
  void clear() { *this = {}; }

  // At most kCaptureBytes; of more, a line in the place of what is left out.
  std::string text() const;

 private:
  std::string head_ = {}, tail_ = {};
  std::size_t left_out_ = 0;  // between them
};

// A text as if it had been captured.
std::string as_captured(std::string_view text);

}  // namespace attest
