# A file as an array of bytes, and its SHA-256 in hexadecimal digits:
#   cmake -D SOURCE=... -D OUTPUT=... -D NAME=... -P embed.cmake
# Without a SOURCE it has no bytes.
set(bytes "")
set(digest "")
if(SOURCE)
  file(READ ${SOURCE} bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  file(SHA256 ${SOURCE} digest)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[
namespace attest {
extern const unsigned char @NAME@[] = {@bytes@0};
extern const unsigned long @NAME@_bytes = sizeof(@NAME@) - 1;
extern const char @NAME@_sha256[] = "@digest@";
}  // namespace attest
]])
