#include "harness/npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <string>

#include "spec/json_reader.h"

namespace attest {
namespace {

void write_array(const std::filesystem::path& file, const Shape& shape, const std::string& type,
                 const std::string& data) {
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                   type, fmt::join(shape, ", "));
  // Magic, version, length and header together fill a multiple of 64 bytes.
  constexpr std::size_t kPreamble = 10;
  header.append(63 - (kPreamble + header.size()) % 64, ' ');
  header += '\n';
  std::string preamble("\x93NUMPY\x01\x00", 8);
  preamble += static_cast<char>(header.size() & 0xff);
  preamble += static_cast<char>(header.size() >> 8);
  std::ofstream out(file, std::ios::binary);
  out << preamble << header << data;
  if (!out.flush()) throw InputError("", fmt::format("cannot write {}", file.string()));
}

}  // namespace

void write_npy(const std::filesystem::path& file, const Shape& shape,
               const std::vector<double>& values) {
  write_array(
      file, shape, "<f8",
      std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)));
}

void write_npy_bits(const std::filesystem::path& file, const Shape& shape, int bytes,
                    const std::vector<std::uint64_t>& bits) {
  std::string data;
  for (const std::uint64_t value : bits) {
    data.append(reinterpret_cast<const char*>(&value), static_cast<std::size_t>(bytes));
  }
  write_array(file, shape, fmt::format("{}u{}", bytes == 1 ? "|" : "<", bytes), data);
}

}  // namespace attest
