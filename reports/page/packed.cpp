#include "reports/page/packed.h"

#include <zlib.h>

#include <new>

namespace attest::page {
namespace {

int value_of(char digit) { return digit <= '9' ? digit - '0' : digit - 'a' + 10; }

}  // namespace

std::string base64(std::string_view bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    unsigned three = 0;
    for (std::size_t n = 0; n < 3; ++n) {
      three = three << 8 | (i + n < bytes.size() ? static_cast<unsigned char>(bytes[i + n]) : 0u);
    }
    for (std::size_t n = 0; n < 4; ++n) {
      const bool is_there = i + n <= bytes.size();  // n digits tell n - 1 bytes and more
      out += is_there ? kDigits[three >> (18 - 6 * n) & 63] : '=';
    }
  }
  return out;
}

std::string bytes_of_hex(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes += static_cast<char>(value_of(text[i]) * 16 + value_of(text[i + 1]));
  }
  return bytes;
}

std::string packed(std::string_view text) {
  uLongf room = compressBound(text.size());
  std::string bytes(room, '\0');
  const int result = compress2(reinterpret_cast<Bytef*>(bytes.data()), &room,
                               reinterpret_cast<const Bytef*>(text.data()), text.size(), 9);
  if (result != Z_OK) throw std::bad_alloc();  // the room suffices
  bytes.resize(room);
  return base64(bytes);
}

}  // namespace attest::page
