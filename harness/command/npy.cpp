#include "harness/command/npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <string_view>

#include "reports/files.h"

namespace attest {
namespace {

template <class T>
void write_array(const std::filesystem::path& file, const Shape& shape, const char* type,
                 const std::vector<T>& values) {
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                   type, fmt::join(shape, ", "));
  // Magic, version, length and header together fill a multiple of 64 bytes.
  constexpr std::size_t kPreamble = 10;
  header.append(63 - (kPreamble + header.size()) % 64, ' ');
  header += '\n';
  std::string preamble("\x93NUMPY\x01\x00", 8);
  preamble += static_cast<char>(header.size() & 0xff);
  preamble += static_cast<char>(header.size() >> 8);
  write_file(file, {preamble, header,
                    std::string_view(reinterpret_cast<const char*>(values.data()),
                                     values.size() * sizeof(T))});
}

}  // namespace

void write_npy(const std::filesystem::path& file, const Shape& shape,
               const std::vector<double>& values) {
  write_array(file, shape, "<f8", values);
}

void write_npy(const std::filesystem::path& file, const Shape& shape,
               const std::vector<std::int64_t>& values) {
  write_array(file, shape, "<i8", values);
}

void write_npy(const std::filesystem::path& file, const Shape& shape,
               const std::vector<std::uint8_t>& values) {
  write_array(file, shape, "|u1", values);
}

}  // namespace attest
