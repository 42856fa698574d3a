#include "harness/process/arena.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "spec/assert.h"

namespace attest {
namespace {

const std::size_t kPage = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
// Canaries on the side of a tensor that is not flush: enough to see a stray vector store.
constexpr std::size_t kMargin = 512;

// What fills the slack. All ones is NaN in every format; 0x7b7b is a huge finite number; 0x0101 is
// subnormal in f16, so that even adding zero changes it on hardware that flushes.
constexpr int kNanByte = 0xff, kHugeByte = 0x7b, kSubnormalByte = 0x01;

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

template <class Visit>
void for_each_element(const Shape& shape, const Strides& strides, const Visit& visit) {
  std::size_t dense = 0;
  // The stride of an axis of size 1 is never used: its only position is 0.
  for (Index b = 0; b < shape[0]; ++b) {
    for (Index h = 0; h < shape[1]; ++h) {
      for (Index s = 0; s < shape[2]; ++s) {
        const Index row = b * strides[0] + h * strides[1] + s * strides[2];
        if (strides[3] == 1) {  // as most do
          const auto place = static_cast<std::size_t>(row),
                     count = static_cast<std::size_t>(shape[3]);
          for (std::size_t d = 0; d < count; ++d) visit(dense + d, place + d);
          dense += count;
          continue;
        }
        for (Index d = 0; d < shape[3]; ++d) {
          visit(dense++, static_cast<std::size_t>(row + d * strides[3]));
        }
      }
    }
  }
}

// Bit patterns in memory, little-endian as everywhere in Attest.
template <class T>
void put(std::byte* address, std::uint64_t bits) {
  const auto value = static_cast<T>(bits);
  std::memcpy(address, &value, sizeof(T));
}

template <class T>
T get(const std::byte* address) {
  T value;
  std::memcpy(&value, address, sizeof(T));
  return value;
}

// Calls `visit` with a number of so many bytes: its type alone counts.
template <class Visit>
void with_width(std::size_t bytes, const Visit& visit) {
  switch (bytes) {
    case 8:
      return visit(std::uint64_t());
    case 4:
      return visit(std::uint32_t());
    case 2:
      return visit(std::uint16_t());
    default:
      return visit(std::uint8_t());
  }
}

// In units of `unit` elements, of which each row but the innermost axis begins a new one.
Strides table_strides(const Shape& shape, Index unit, Spacing spacing) {
  constexpr Index kSenseless = Index(1) << 40;  // far beyond any mapping: using it faults
  const bool roomy = spacing == Spacing::roomy;
  Strides strides = {0, 0, 0, 1};
  Index stride = (std::max<Index>(shape[3], 1) + unit - 1) / unit * unit;
  for (std::size_t axis = 3; axis-- > 0;) {
    if (roomy) stride += unit;
    strides[axis] = stride;
    stride *= std::max<Index>(shape[axis], 1);
  }
  // The innermost axis of bits is always said to have the stride 1.
  for (std::size_t axis = 0; roomy && axis < (unit == 1 ? 4u : 3u); ++axis) {
    if (shape[axis] == 1) strides[axis] = kSenseless;
  }
  return strides;
}

// Whether a tensor is nearly all gaps, and too much to touch.
bool is_sparse(std::size_t data_bytes, std::size_t element_bytes, const Shape& shape) {
  constexpr std::size_t kLarge = std::size_t(1) << 30;
  const auto elements = static_cast<std::size_t>(element_count(shape));
  return data_bytes > kLarge &&
         data_bytes / kPage > elements * std::max<std::size_t>(element_bytes, 1);
}

Index span_of(const Shape& shape, const Strides& strides) {
  if (element_count(shape) == 0) return 0;
  Index last = 0;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (shape[axis] > 1) last += (shape[axis] - 1) * strides[axis];
  }
  return last + 1;
}

}  // namespace

Arena::Arena(std::size_t capacity)
    : capacity_(round_up(std::max<std::size_t>(capacity, 1), kPage)),
      input_("attest-inputs", capacity_, SharedMemory::Access::written_here),
      output_("attest-outputs", capacity_, SharedMemory::Access::written_by_all) {}

ElementType element_type(DType dtype) {
  return {std::string(name(dtype)), static_cast<std::size_t>(format_of(dtype).bytes)};
}

Exchange::Exchange(Arena& arena, Placement placement, Index alignment, Spacing spacing)
    : arena_(arena),
      placement_(placement),
      alignment_(static_cast<std::size_t>(alignment)),
      spacing_(spacing) {}

std::size_t Exchange::bytes_needed(std::size_t data_bytes, std::size_t tensors) {
  return data_bytes + tensors * (kMargin + 2 * kPage);
}

Index Exchange::roomy_span(const Shape& shape) {
  return span_of(shape, table_strides(shape, 1, Spacing::roomy));
}

Index Exchange::roomy_keep_bytes(const Shape& shape) {
  return (span_of(shape, table_strides(shape, 8, Spacing::roomy)) + 7) / 8;
}

std::byte* Exchange::memory(const Tensor& tensor) const {
  return tensor.output ? arena_.outputs() : arena_.inputs();
}

template <class Visit>
void Exchange::for_each_stretch(const Tensor& tensor, const Visit& visit) const {
  const int fd = tensor.output ? arena_.output_fd() : arena_.input_fd();
  const auto end = static_cast<off_t>(tensor.region_begin + tensor.region_bytes);
  off_t at = static_cast<off_t>(tensor.region_begin);
  while (at < end) {
    const off_t begin = lseek(fd, at, SEEK_DATA);
    if (begin < 0 && errno != ENXIO) fail("lseek");
    if (begin < 0 || begin >= end) return;  // holes alone
    at = lseek(fd, begin, SEEK_HOLE);
    if (at < 0) fail("lseek");
    visit(static_cast<std::size_t>(begin), static_cast<std::size_t>(std::min(at, end)));
  }
}

std::size_t Exchange::first_stray_byte(const Tensor& tensor) const {
  std::vector<std::size_t> elements;  // where they begin
  for_each_element(tensor.shape, tensor.strides, [&](std::size_t, std::size_t place) {
    elements.push_back(tensor.data_begin + place * tensor.type.bytes);
  });
  std::sort(elements.begin(), elements.end());
  const std::byte* const base = memory(tensor);
  const std::size_t none = tensor.region_begin + tensor.region_bytes;
  std::size_t stray = none;
  for_each_stretch(tensor, [&](std::size_t at, std::size_t end) {
    auto element = std::lower_bound(elements.begin(), elements.end(), at);
    while (at < end && stray == none) {
      const bool more = element != elements.end() && *element < end;
      const std::byte* const to = base + (more ? *element : end);
      const std::byte* const found =
          std::find_if(base + at, to, [](std::byte byte) { return byte != std::byte(0); });
      if (found != to) stray = static_cast<std::size_t>(found - base);
      at = more ? *element++ + tensor.type.bytes : end;
    }
  });
  return stray;
}

Exchange::Tensor& Exchange::place(const std::string& name, bool output, const ElementType& type,
                                  const Shape& shape, const Strides& strides,
                                  std::size_t data_bytes) {
  std::size_t& end = output ? output_end_ : input_end_;
  Tensor tensor{.output = output,
                .type = type,
                .dtype = dtype_named(type.name),
                .shape = shape,
                .strides = strides,
                .region_begin = end,
                .region_bytes = 0,
                .data_begin = 0,
                .data_bytes = data_bytes,
                .sparse = is_sparse(data_bytes, type.bytes, shape)};
  tensor.region_bytes = round_up(tensor.data_bytes + kMargin, kPage);
  end += tensor.region_bytes;
  ATTEST_ASSERT(end <= arena_.capacity());
  const std::size_t alignment = std::max(alignment_, type.bytes);
  tensor.data_begin = placement_ == Placement::start_flush
                          ? tensor.region_begin
                          : (end - tensor.data_bytes) / alignment * alignment;
  const bool first = placement_ == Placement::end_flush;
  if (tensor.sparse) {  // what an earlier call left there
    for_each_stretch(tensor, [&](std::size_t from, std::size_t to) {
      std::memset(memory(tensor) + from, 0, to - from);
    });
  } else {
    // All but what is written anyway: an output, and the elements of an input without gaps.
    const bool expanded = std::find(strides.begin(), strides.end(), 0) != strides.end();
    const bool dense =
        !expanded && data_bytes == static_cast<std::size_t>(element_count(shape)) * type.bytes;
    const std::size_t skipped = output || dense ? data_bytes : 0;
    const auto fill = [&](std::size_t from, std::size_t to) {
      std::memset(memory(tensor) + from, first ? kNanByte : (output ? kSubnormalByte : kHugeByte),
                  to - from);
    };
    fill(tensor.region_begin, tensor.data_begin);
    fill(tensor.data_begin + skipped, tensor.region_begin + tensor.region_bytes);
  }
  const auto [at, fresh] = tensors_.emplace(name, tensor);
  ATTEST_ASSERT(fresh);
  return at->second;
}

Exchange::Tensor& Exchange::place(const std::string& name, bool output, const ElementType& type,
                                  const Shape& shape, const std::optional<Layout>& layout) {
  const bool bits = type.bytes == 0;
  const Strides strides =
      layout ? layout->strides(shape) : table_strides(shape, bits ? 8 : 1, spacing_);
  const auto span = static_cast<std::size_t>(span_of(shape, strides));
  return place(name, output, type, shape, strides, bits ? (span + 7) / 8 : span * type.bytes);
}

template <class BitsOf>
void Exchange::copy_in(const std::string& name, const ElementType& type, const Shape& shape,
                       const std::optional<Layout>& layout, const BitsOf& bits_of) {
  const Tensor& tensor = place(name, false, type, shape, layout);
  std::byte* data = memory(tensor) + tensor.data_begin;
  with_width(type.bytes, [&](auto width) {
    for_each_element(shape, tensor.strides, [&](std::size_t dense, std::size_t place) {
      put<decltype(width)>(data + place * sizeof(width), bits_of(dense));
    });
  });
}

void Exchange::add_input(const std::string& name, DType dtype, const Values& values,
                         const std::optional<Layout>& layout) {
  with_constant(dtype, [&](auto format) {  // for every element asks for it
    copy_in(name, element_type(dtype), values.shape, layout,
            [numbers = values.data.data(), format](std::size_t n) {
              return encode(format(), numbers[n]);
            });
  });
}

void Exchange::add_input_bits(const std::string& name, DType dtype, const Shape& shape,
                              const std::vector<std::uint64_t>& bits,
                              const std::optional<Layout>& layout) {
  copy_in(name, element_type(dtype), shape, layout, [&](std::size_t n) { return bits[n]; });
}

void Exchange::add_input(const std::string& name, const std::vector<Index>& list) {
  add_input(name, {static_cast<Index>(list.size()), 1, 1, 1}, list);
}

void Exchange::add_input(const std::string& name, const Shape& shape,
                         const std::vector<Index>& numbers) {
  copy_in(name, kI64, shape, {},
          [&](std::size_t n) { return static_cast<std::uint64_t>(numbers[n]); });
}

void Exchange::add_input(const std::string& name, const Shape& shape,
                         const std::vector<std::int32_t>& numbers) {
  copy_in(name, kI32, shape, {},
          [&](std::size_t n) { return static_cast<std::uint32_t>(numbers[n]); });
}

void Exchange::add_input(const std::string& name, const Shape& shape,
                         const std::vector<std::uint8_t>& flags) {
  copy_in(name, kU8, shape, {}, [&](std::size_t n) { return std::uint64_t(flags[n]); });
}

void Exchange::add_input(const std::string& name, const Keep& keep) {
  const Tensor& tensor = place(name, false, kBits, keep.shape, {});
  std::byte* data = memory(tensor) + tensor.data_begin;
  for_each_element(keep.shape, tensor.strides, [&](std::size_t dense, std::size_t bit) {
    if (bit % 8 == 0) data[bit / 8] = std::byte(0);
    if (keep.kept[dense] != 0) data[bit / 8] |= std::byte(1u << (bit % 8));
  });
}

std::byte Exchange::keep_pattern() const {
  unsigned pattern = 0;
  for (Index bit = 0; bit < 8; ++bit) pattern |= unsigned(keep_poison(placement_, bit)) << bit;
  return std::byte(pattern);
}

void Exchange::add_keep_output(const std::string& name, const Shape& shape) {
  const Tensor& tensor = place(name, true, kBits, shape, {});
  std::fill_n(memory(tensor) + tensor.data_begin, tensor.data_bytes, keep_pattern());
}

void Exchange::add_output(const std::string& name, DType dtype, const Shape& shape,
                          const std::optional<Layout>& layout) {
  const Tensor& tensor = place(name, true, element_type(dtype), shape, layout);
  const std::uint64_t bits = poison(dtype);
  std::byte* data = memory(tensor) + tensor.data_begin;
  with_width(tensor.type.bytes, [&](auto width) {
    if (tensor.sparse) {
      for_each_element(shape, tensor.strides, [&](std::size_t, std::size_t place) {
        put<decltype(width)>(data + place * sizeof(width), bits);
      });
      return;
    }
    for (std::size_t at = 0; at < tensor.data_bytes; at += sizeof(width)) {
      put<decltype(width)>(data + at, bits);
    }
  });
}

std::uint64_t Exchange::poison(DType dtype) const {
  const bool first = placement_ == Placement::end_flush;
  switch (format_of(dtype).bytes) {
    case 8:
      return first ? 0x7ff7a5a5a5a5a5a5u : 0xfff6b6b6b6b6b6b6u;
    case 4:
      return first ? 0x7fa57fa5u : 0xffb6ffb6u;
    default:
      return first ? 0x7fa5u : 0xffb6u;
  }
}

nlohmann::json Exchange::to_json() const {
  nlohmann::json all = nlohmann::json::object();
  for (const auto& entry : tensors_) {
    const Tensor& tensor = entry.second;  // a binding, no lambda of Clang 14 takes
    nlohmann::json& json = all[entry.first];
    json["memory"] = tensor.output ? "output" : "input";
    json["dtype"] = tensor.type.name;
    json["shape"] = tensor.shape;
    json["stride"] = tensor.strides;
    json["offset"] = tensor.data_begin;
    json["bytes"] = tensor.data_bytes;
    json["region_offset"] = tensor.region_begin;
    json["region_bytes"] = tensor.region_bytes;
    if (!tensor.sparse) continue;
    nlohmann::json& there = json["there"] = nlohmann::json::array();
    for_each_stretch(tensor, [&](std::size_t begin, std::size_t end) {
      there.push_back({begin - tensor.region_begin, end - tensor.region_begin});
    });
  }
  return all;
}

std::uint64_t Exchange::input_checksum() const {
  constexpr std::uint64_t kFactor = 0xff51afd7ed558ccdu;
  std::array<std::uint64_t, 8> sums = {1, 2, 3, 4, 5, 6, 7, 8};  // that do not wait for each other
  const auto add = [&](std::size_t begin, std::size_t end) {
    for (std::size_t at = begin; at < end; at += sizeof(sums)) {  // which divides a page
      for (std::size_t lane = 0; lane < sums.size(); ++lane) {
        std::uint64_t& sum = sums[lane];
        sum = (sum ^ get<std::uint64_t>(arena_.inputs() + at + lane * sizeof(sum))) * kFactor;
        sum ^= sum >> 32;
      }
    }
  };
  std::uint64_t all = 0;
  for (const auto& entry : tensors_) {
    const Tensor& tensor = entry.second;  // a binding, no lambda of Clang 14 takes
    if (tensor.output) continue;
    if (!tensor.sparse) {
      add(tensor.region_begin, tensor.region_begin + tensor.region_bytes);
      continue;
    }
    // What it says of elements; a page that a read has made of a hole says nothing.
    for_each_element(tensor.shape, tensor.strides, [&](std::size_t, std::size_t place) {
      const std::byte* const at = arena_.inputs() + tensor.data_begin + place * tensor.type.bytes;
      with_width(tensor.type.bytes,
                 [&](auto width) { all = (all ^ get<decltype(width)>(at)) * kFactor; });
    });
    all ^= first_stray_byte(tensor);
  }
  for (const std::uint64_t sum : sums) all = (all ^ sum) * kFactor;
  return all;
}

void Exchange::seal() { checksum_ = input_checksum(); }

std::optional<Damage> Exchange::damage() const {
  if (input_checksum() != checksum_) {
    return Damage{"input_mutated", "an input was changed by the call"};
  }
  const auto canary =
      static_cast<std::byte>(placement_ == Placement::end_flush ? kNanByte : kSubnormalByte);
  for (const auto& [name, tensor] : tensors_) {
    if (!tensor.output) continue;
    if (tensor.sparse) {
      const std::size_t stray = first_stray_byte(tensor);
      if (stray == tensor.region_begin + tensor.region_bytes) continue;
      const auto distance = static_cast<std::ptrdiff_t>(stray - tensor.data_begin);
      return Damage{"guard", fmt::format("wrote between the rows of {}, {} bytes from its start",
                                         name, distance)};
    }
    const std::byte* base = memory(tensor);
    const std::size_t data_end = tensor.data_begin + tensor.data_bytes;
    const auto intact = [canary](std::byte byte) { return byte == canary; };
    const std::byte* first =
        std::find_if_not(base + tensor.region_begin, base + tensor.data_begin, intact);
    if (first != base + tensor.data_begin) {
      return Damage{"guard", fmt::format("wrote {} bytes before the start of {}",
                                         base + tensor.data_begin - first, name)};
    }
    const std::byte* region_end = base + tensor.region_begin + tensor.region_bytes;
    const std::byte* after = std::find_if_not(base + data_end, region_end, intact);
    if (after != region_end) {
      return Damage{"guard", fmt::format("wrote {} bytes behind the end of {}",
                                         after - (base + data_end) + 1, name)};
    }
    if (tensor.data_bytes ==
        static_cast<std::size_t>(element_count(tensor.shape)) * tensor.type.bytes) {
      continue;  // no gaps
    }
    // What pads the rows of bits belongs to their bytes, so there it is bytes that count.
    const bool bits = !tensor.dtype;
    const std::size_t unit = bits ? 1 : tensor.type.bytes;
    const std::uint64_t untouched =
        bits ? std::to_integer<std::uint64_t>(keep_pattern()) : poison(*tensor.dtype);
    std::vector<bool> element(tensor.data_bytes / unit);
    for_each_element(tensor.shape, tensor.strides,
                     [&](std::size_t, std::size_t at) { element[bits ? at / 8 : at] = true; });
    for (std::size_t at = 0; at < element.size(); ++at) {
      const std::byte* address = base + tensor.data_begin + at * unit;
      if (!element[at] && std::memcmp(address, &untouched, unit) != 0) {  // little-endian
        return Damage{"guard",
                      fmt::format("wrote into the gap between rows of {}, {} {} from its start",
                                  name, at, bits ? "bytes" : "elements")};
      }
    }
  }
  return std::nullopt;
}

std::vector<std::uint64_t> Exchange::read(const std::string& name) const {
  const Tensor& tensor = tensors_.at(name);
  const std::byte* data = memory(tensor) + tensor.data_begin;
  std::vector<std::uint64_t> bits(static_cast<std::size_t>(element_count(tensor.shape)));
  with_width(tensor.type.bytes, [&](auto width) {
    for_each_element(tensor.shape, tensor.strides, [&](std::size_t dense, std::size_t place) {
      bits[dense] = get<decltype(width)>(data + place * sizeof(width));
    });
  });
  return bits;
}

Keep Exchange::read_keep(const std::string& name) const {
  const Tensor& tensor = tensors_.at(name);
  const std::byte* data = memory(tensor) + tensor.data_begin;
  Keep keep = {.shape = tensor.shape, .kept = {}};
  keep.kept.resize(static_cast<std::size_t>(element_count(tensor.shape)));
  for_each_element(tensor.shape, tensor.strides, [&](std::size_t dense, std::size_t bit) {
    keep.kept[dense] = std::to_integer<unsigned>(data[bit / 8]) >> (bit % 8) & 1;
  });
  return keep;
}

}  // namespace attest
