#include "harness/vectors/npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "spec/json_reader.h"

namespace attest {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

template <class Element>
std::string file_of(const Shape& shape, std::string_view type,
                    const std::vector<Element>& elements) {
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                   type, fmt::join(shape, ", "));
  // Magic, version, length and header together fill a multiple of 64 bytes.
  constexpr std::size_t kPreamble = 10;
  header.append(63 - (kPreamble + header.size()) % 64, ' ');
  header += '\n';
  std::string file(kMagic);
  file += {1, 0, static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  file += header;
  return file.append(reinterpret_cast<const char*>(elements.data()),
                     elements.size() * sizeof(Element));
}

template <class Bits>
std::string encoded(const Shape& shape, std::string_view type, const std::vector<double>& values,
                    DType dtype) {
  std::vector<Bits> bits(values.size());
  std::transform(values.begin(), values.end(), bits.begin(),
                 [dtype](double value) { return static_cast<Bits>(encode(dtype, value)); });
  return file_of(shape, type, bits);
}

[[noreturn]] void wrong(const std::string& what) { throw InputError("", what); }

// Reads the header, which is a dictionary of Python as NumPy writes it.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : text_(text) {}

  struct Header {
    std::string type;
    bool fortran = false;
    std::vector<Index> shape;
  };

  Header read() {
    std::optional<std::string> type;
    std::optional<bool> fortran;
    std::optional<std::vector<Index>> shape;
    expect('{');
    while (!take('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr" && !type) {
        if (peek() != '\'' && peek() != '"') wrong("has records for elements, not numbers");
        type = string();
      } else if (key == "fortran_order" && !fortran) {
        fortran = boolean();
      } else if (key == "shape" && !shape) {
        shape = sizes();
      } else {
        malformed();
      }
      if (!take(',') && peek() != '}') malformed();
    }
    if (peek() != '\0' || !type || !fortran || !shape) malformed();
    return {*type, *fortran, *shape};
  }

 private:
  [[noreturn]] static void malformed() { wrong("is no .npy file: its header is malformed"); }

  char peek() {
    text_.remove_prefix(std::min(text_.find_first_not_of(" \t\n"), text_.size()));
    return text_.empty() ? '\0' : text_.front();
  }
  bool take(char wanted) {
    if (peek() != wanted || text_.empty()) return false;
    text_.remove_prefix(1);
    return true;
  }
  void expect(char wanted) {
    if (!take(wanted)) malformed();
  }
  bool take_word(std::string_view word) {
    peek();
    if (!text_.starts_with(word)) return false;
    text_.remove_prefix(word.size());
    return true;
  }
  std::string string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') malformed();
    const std::size_t end = text_.find(quote, 1);
    if (end == text_.npos) malformed();
    std::string result(text_.substr(1, end - 1));
    text_.remove_prefix(end + 1);
    return result;
  }
  bool boolean() {
    if (take_word("True")) return true;
    if (!take_word("False")) malformed();
    return false;
  }
  std::vector<Index> sizes() {
    std::vector<Index> all;
    expect('(');
    while (!take(')')) {
      peek();
      Index size = -1;
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), size);
      if (error != std::errc() || size < 0) malformed();
      text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
      all.push_back(size);
      if (!take(',') && peek() != ')') malformed();
    }
    return all;
  }

  std::string_view text_;
};

// "<f4": byte order, kind, width.
struct ElementFormat {
  bool swapped;
  char kind;
  std::size_t width;
};

ElementFormat element_format(const std::string& type) {
  const bool known = type.size() == 3 && std::strchr("<>|=", type[0]) != nullptr &&
                     std::strchr("fiubV", type[1]) != nullptr &&
                     std::strchr("1248", type[2]) != nullptr;
  if (!known) wrong(fmt::format("has elements of type {}, which are no numbers", type));
  return {type[0] == '>', type[1], static_cast<std::size_t>(type[2] - '0')};
}

// How many elements there are; nothing if they would take more bytes than there are.
std::optional<std::size_t> count_of(const std::vector<Index>& shape, std::size_t width,
                                    std::size_t bytes) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  std::size_t count = 1;
  for (const Index size : shape) {
    if (static_cast<std::size_t>(size) > bytes / width / count) return std::nullopt;
    count *= static_cast<std::size_t>(size);
  }
  return count;
}

std::uint64_t element(std::string_view data, std::size_t place, const ElementFormat& format) {
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < format.width; ++i) {
    const auto byte = static_cast<unsigned char>(data[place * format.width + i]);
    const std::size_t at = format.swapped ? format.width - 1 - i : i;
    bits |= std::uint64_t(byte) << (8 * at);
  }
  return bits;
}

// Where the elements of an array lie whose first index runs fastest.
std::vector<std::size_t> fortran_places(const std::vector<Index>& shape, std::size_t count) {
  std::vector<std::size_t> places(count), index(shape.size(), 0);
  for (std::size_t& place : places) {
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      place = place * static_cast<std::size_t>(shape[axis]) + index[axis];
    }
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      if (++index[axis] < static_cast<std::size_t>(shape[axis])) break;
      index[axis] = 0;
    }
  }
  return places;
}

}  // namespace

char npy_kind(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::f32:
    case DType::f16:
      return 'f';
    case DType::bf16:
    case DType::e4m3:
    case DType::e5m2:
      break;
    case DType::int8:
      return 'i';
  }
  return 'u';
}

std::string npy_of(const Shape& shape, const std::vector<double>& values, DType dtype) {
  const int bytes = format_of(dtype).bytes;
  const std::string type = fmt::format("{}{}{}", bytes == 1 ? '|' : '<', npy_kind(dtype), bytes);
  if (dtype == DType::f64) return file_of(shape, type, values);
  if (bytes == 1) return encoded<std::uint8_t>(shape, type, values, dtype);
  return bytes == 4 ? encoded<std::uint32_t>(shape, type, values, dtype)
                    : encoded<std::uint16_t>(shape, type, values, dtype);
}

std::string npy_of(const Shape& shape, const std::vector<std::int64_t>& values) {
  return file_of(shape, "<i8", values);
}

std::string npy_of(const Shape& shape, const std::vector<std::int32_t>& values) {
  return file_of(shape, "<i4", values);
}

std::string npy_of(const Shape& shape, const std::vector<std::uint8_t>& values) {
  return file_of(shape, "|u1", values);
}

NpyArray parse_npy(std::string_view bytes) {
  if (!bytes.starts_with(kMagic) || bytes.size() < 10) wrong("is no .npy file");
  const auto byte = [&](std::size_t i) {
    return static_cast<std::size_t>(static_cast<unsigned char>(bytes[i]));
  };
  const std::size_t version = byte(6);
  if (version < 1 || version > 3) wrong(fmt::format("is a .npy file of version {}", version));
  const std::size_t preamble = version == 1 ? 10 : 12;
  if (bytes.size() < preamble) wrong("is cut off within its header");
  const std::size_t size =
      byte(8) | byte(9) << 8 | (version == 1 ? 0 : byte(10) << 16 | byte(11) << 24);
  if (bytes.size() - preamble < size) wrong("is cut off within its header");
  const auto header = HeaderReader(bytes.substr(preamble, size)).read();
  const ElementFormat format = element_format(header.type);
  const std::string_view data = bytes.substr(preamble + size);
  const auto count = count_of(header.shape, format.width, data.size());
  if (!count || *count * format.width != data.size()) {
    wrong(fmt::format("{}: it has {} bytes of elements, of shape [{}] and {} bytes each",
                      count ? "is longer than it says" : "is cut off", data.size(),
                      fmt::join(header.shape, ","), format.width));
  }
  NpyArray array{format.kind, format.width, header.shape, std::vector<std::uint64_t>(*count)};
  const bool fortran = header.fortran && header.shape.size() > 1;
  const auto places = fortran ? fortran_places(header.shape, *count) : std::vector<std::size_t>();
  for (std::size_t i = 0; i < *count; ++i) {
    array.bits[i] = element(data, fortran ? places[i] : i, format);
  }
  return array;
}

}  // namespace attest
