// The memory that harness and worker share, and the tensors of one call in it.
//
// An Arena is two memories: one for inputs, sealed so that nobody but the harness can ever write to
// it, one for outputs. An Exchange lays the tensors of a call out in them. Each tensor has pages of
// its own, which the worker maps between guard pages; its data lies flush with the end of these
// pages, or with their start:
//
//   end_flush     guard | canaries ... canaries DATA [< alignment] | guard
//   start_flush   guard | DATA canaries ... canaries               | guard
//
// Elements of outputs, and the gaps between their rows, start as a poison that is NaN; after the
// call the canaries, gaps and inputs must be as they were (SAFE-1, SAFE-2), and no element may
// still hold the poison (SAFE-3). Slack around inputs is NaN in one placement and huge in the
// other.
//
// A tensor whose rows lie so far apart that nearly all of it is gaps is sparse: only the pages of
// its elements are ever touched. What lies between is 0, as memory is that nobody has touched, and
// is looked at only where some page has come into being.
//
// Where a problem gives a tensor no layout (lengths, tables, slopes, sinks, keep-masks and so on),
// the exchange may put slack between its rows too (LAYOUT-1).
#pragma once

#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/process/shared_memory.h"
#include "spec/dtype.h"
#include "spec/inputs.h"
#include "spec/tensor.h"

namespace attest {

class Arena {
 public:
  // Two memories of that many bytes each; nothing is used until it is touched. Throws
  // std::system_error if the system refuses.
  explicit Arena(std::size_t capacity);

  std::size_t capacity() const { return capacity_; }
  std::size_t used() const { return input_.used() + output_.used(); }
  int input_fd() const { return input_.fd(); }
  int output_fd() const { return output_.fd(); }
  std::byte* inputs() const { return input_.base(); }
  std::byte* outputs() const { return output_.base(); }

 private:
  std::size_t capacity_;
  SharedMemory input_, output_;
};

enum class Placement { end_flush, start_flush };

// How tensors without a layout of their own lie: dense, or with slack between all rows and a
// senseless stride for each axis of size 1.
enum class Spacing { dense, roomy };

// The element types that cross: the formats, integers for lengths and tables, and the bits of a
// keep-mask.
struct ElementType {
  std::string name;   // "bf16", "i64", "u8", "bits"
  std::size_t bytes;  // 0 of bits, whose rows alone fill whole bytes
};
ElementType element_type(DType dtype);
inline const ElementType kI64 = {"i64", 8};
inline const ElementType kI32 = {"i32", 4};
inline const ElementType kU8 = {"u8", 1};
inline const ElementType kBits = {"bits", 0};

// What was found damaged after a call.
struct Damage {
  std::string reason;  // "guard" or "input_mutated"
  std::string message;
};

class Exchange {
 public:
  Exchange(Arena& arena, Placement placement, Index alignment, Spacing spacing = Spacing::dense);

  // How many bytes of either memory the tensors of a call need, with room to spare.
  static std::size_t bytes_needed(std::size_t data_bytes, std::size_t tensors);
  // How many elements a tensor without a layout spans at most; of bits, how many bytes.
  static Index roomy_span(const Shape& shape);
  static Index roomy_keep_bytes(const Shape& shape);

  // `values` in dense order.
  void add_input(const std::string& name, DType dtype, const Values& values,
                 const std::optional<Layout>& layout = {});
  // Bit patterns in dense order, as read() returns them.
  void add_input_bits(const std::string& name, DType dtype, const Shape& shape,
                      const std::vector<std::uint64_t>& bits, const std::optional<Layout>& layout);
  void add_input(const std::string& name, const std::vector<Index>& list);  // i64 [n,1,1,1]
  void add_input(const std::string& name, const Shape& shape, const std::vector<Index>& numbers);
  void add_input(const std::string& name, const Shape& shape,
                 const std::vector<std::int32_t>& numbers);
  void add_input(const std::string& name, const Shape& shape,
                 const std::vector<std::uint8_t>& flags);
  // One bit an element, the lowest of a byte first; rows begin with a byte (DROP-1).
  void add_input(const std::string& name, const Keep& keep);
  void add_output(const std::string& name, DType dtype, const Shape& shape,
                  const std::optional<Layout>& layout);
  void add_keep_output(const std::string& name, const Shape& shape);

  // Where everything is, for a request.
  nlohmann::json to_json() const;

  // Call when all tensors are added and before the call: remembers the inputs as they are.
  void seal();

  // What the call broke outside the elements of its outputs; empty if nothing.
  std::optional<Damage> damage() const;

  // The elements of an output as bit patterns, in dense order.
  std::vector<std::uint64_t> read(const std::string& name) const;

  Keep read_keep(const std::string& name) const;

  // The bit pattern that unwritten elements of `dtype` hold.
  std::uint64_t poison(DType dtype) const;
  // Bits have no NaN: those of an unwritten keep-mask alternate, and the other placement has the
  // opposite of each.
  static bool keep_poison(Placement placement, Index key) {
    return (key % 2 == 0) == (placement == Placement::end_flush);
  }

 private:
  struct Tensor {
    bool output;
    ElementType type;
    std::optional<DType> dtype;
    Shape shape;
    Strides strides;
    std::size_t region_begin, region_bytes;  // whole pages
    std::size_t data_begin, data_bytes;
    bool sparse;
  };
  // Calls `visit` with where each stretch of the tensor's pages begins and ends that are in memory.
  template <class Visit>
  void for_each_stretch(const Tensor& tensor, const Visit& visit) const;
  // The first byte of a sparse tensor that is neither an element's nor 0; its end if there is none.
  std::size_t first_stray_byte(const Tensor& tensor) const;
  std::byte* memory(const Tensor& tensor) const;
  Tensor& place(const std::string& name, bool output, const ElementType& type, const Shape& shape,
                const Strides& strides, std::size_t data_bytes);
  Tensor& place(const std::string& name, bool output, const ElementType& type, const Shape& shape,
                const std::optional<Layout>& layout);
  // Element number n of the dense order has the bits bits_of(n).
  template <class BitsOf>
  void copy_in(const std::string& name, const ElementType& type, const Shape& shape,
               const std::optional<Layout>& layout, const BitsOf& bits_of);
  std::byte keep_pattern() const;
  std::uint64_t input_checksum() const;

  Arena& arena_;
  Placement placement_;
  std::size_t alignment_;
  Spacing spacing_;
  std::size_t input_end_ = 0, output_end_ = 0;
  std::map<std::string, Tensor> tensors_;
  std::uint64_t checksum_ = 0;
};

}  // namespace attest
