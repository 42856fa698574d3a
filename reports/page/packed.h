// Text that takes little room in a page, and cannot break out of it: letters and digits alone.
#pragma once

#include <string>
#include <string_view>

namespace attest::page {

std::string base64(std::string_view bytes);

// As `text` says them, two digits a byte.
std::string bytes_of_hex(std::string_view text);

// Compressed (RFC 1950, which browsers call "deflate"), in base64. Throws std::bad_alloc where
// there is no memory.
std::string packed(std::string_view text);

}  // namespace attest::page
