# A file as an array of bytes: cmake -D SOURCE=... -D OUTPUT=... -D NAME=... -P embed.cmake
file(READ ${SOURCE} bytes HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[
namespace attest {
extern const unsigned char @NAME@[] = {@bytes@};
extern const unsigned long @NAME@_bytes = sizeof(@NAME@);
}  // namespace attest
]])
