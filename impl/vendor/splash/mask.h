// The masks of splash attention: objects that say, of any block of queries and keys, which pairs
// are visible. FullMask, CausalMask and LocalMask make a block when they are asked for it; a
// NumpyMask holds all of it, which is O(T^2) memory of the host. A CausalMask can be computed by
// the kernel too; a LocalMask can since later versions than the seed's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "impl/vendor/splash/host_count.h"

namespace attest::vendor::splash {

struct Shape {
  std::int64_t q_seq_len, kv_seq_len;
  friend bool operator==(const Shape&, const Shape&) = default;
};
struct Slice {
  std::int64_t start, stop;
  std::int64_t size() const { return stop - start; }
};

// What Python raises under these names.
struct ValueError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};
struct NotImplementedError : std::logic_error {
  using std::logic_error::logic_error;
};

// A rule that the kernel itself can follow: of queries with these ids, and keys from `kv_start` on,
// which see each other? Row by row; 1 is visible.
using MaskFunction =
    std::function<void(const std::int32_t* q_ids, std::int64_t rows, std::int64_t kv_start,
                       std::int64_t columns, std::uint8_t* seen)>;

class Mask {
 public:
  virtual ~Mask() = default;
  virtual Shape shape() const = 0;
  // mask[q, kv], row by row.
  virtual void get(Slice q, Slice kv, std::uint8_t* to, HostCount& count) const = 0;
  virtual bool equals(const Mask& other) const = 0;
  // To find it in a dictionary: of all that `equals` compares, copied first.
  virtual std::size_t hash(HostCount& count) const = 0;
  virtual std::int64_t held_bytes() const = 0;

  // Of a mask that the kernel computes: both, or neither.
  virtual const std::vector<std::int32_t>* q_sequence() const { return nullptr; }
  virtual MaskFunction mask_function() const { return {}; }
};
using MaskPtr = std::shared_ptr<const Mask>;

// A dense array of booleans, a byte each.
struct BoolArray {
  Shape shape;
  std::vector<std::uint8_t> data;  // row by row
};
// All of a causal mask, or of a window, at once.
BoolArray make_causal_mask(Shape shape, std::int64_t offset, HostCount& count);
using WindowSize = std::pair<std::optional<std::int64_t>, std::optional<std::int64_t>>;
BoolArray make_local_attention_mask(Shape shape, WindowSize window_size, std::int64_t offset,
                                    HostCount& count);
// All of any mask.
BoolArray dense(const Mask& mask, HostCount& count);

MaskPtr full_mask(Shape shape);
// q_id + offset >= kv_id.
MaskPtr causal_mask(Shape shape, std::int64_t offset = 0);
// q_id - left + offset <= kv_id <= q_id + right + offset; nullopt: no limit on that side.
MaskPtr local_mask(Shape shape, WindowSize window_size, std::int64_t offset);
MaskPtr numpy_mask(BoolArray array);
// `&` and `|` of two masks of one shape.
MaskPtr logical_and(MaskPtr left, MaskPtr right);
MaskPtr logical_or(MaskPtr left, MaskPtr right);

// One mask for each query head, all of one shape.
class MultiHeadMask {
 public:
  explicit MultiHeadMask(std::vector<MaskPtr> masks);
  Shape shape() const { return masks_[0]->shape(); }
  std::int64_t heads() const { return static_cast<std::int64_t>(masks_.size()); }
  const std::vector<MaskPtr>& masks() const { return masks_; }

 private:
  std::vector<MaskPtr> masks_;
};

}  // namespace attest::vendor::splash
