#include "impl/vendor/splash/mask.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <numeric>
#include <string_view>

namespace attest::vendor::splash {
namespace {

// hash(x.tobytes()).
std::size_t hash_of_bytes(const void* data, std::size_t bytes, HostCount& count) {
  count.hashed += static_cast<std::int64_t>(bytes);
  count.hold_for_a_while(static_cast<std::int64_t>(bytes));
  return std::hash<std::string_view>()({static_cast<const char*>(data), bytes});
}
std::size_t combined(std::size_t a, std::size_t b) { return a * 31 + b; }

std::vector<std::int32_t> ids_from_zero(std::int64_t size) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(size));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

class FullMask final : public Mask {
 public:
  explicit FullMask(Shape shape) : shape_(shape) {}
  Shape shape() const override { return shape_; }
  void get(Slice q, Slice kv, std::uint8_t* to, HostCount& count) const override {
    std::fill(to, to + q.size() * kv.size(), std::uint8_t{1});
    count.computed += q.size() * kv.size();
    count.hold_for_a_while(q.size() * kv.size());
  }
  bool equals(const Mask& other) const override {
    const auto* same = dynamic_cast<const FullMask*>(&other);
    return same && shape_ == same->shape_;
  }
  std::size_t hash(HostCount& count) const override {
    return hash_of_bytes(&shape_, sizeof(shape_), count);
  }
  std::int64_t held_bytes() const override { return sizeof(Shape); }

 private:
  Shape shape_;
};

// -left <= kv_id - (q_id + offset) <= right.
struct Band {
  std::optional<std::int64_t> left, right;  // nullopt: unlimited
  std::int64_t offset;
  friend bool operator==(const Band&, const Band&) = default;

  void operator()(const std::int32_t* q_ids, std::int64_t rows, std::int64_t kv_start,
                  std::int64_t columns, std::uint8_t* seen) const {
    constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max() / 4;
    for (std::int64_t r = 0; r < rows; ++r, seen += columns) {
      const std::int64_t diagonal = q_ids[r] + offset - kv_start;
      const std::int64_t begin =
          std::clamp<std::int64_t>(diagonal - left.value_or(kFar), 0, columns);
      const std::int64_t end =
          std::clamp<std::int64_t>(diagonal + right.value_or(kFar) + 1, begin, columns);
      std::fill(seen, seen + columns, std::uint8_t{0});
      std::fill(seen + begin, seen + end, std::uint8_t{1});
    }
  }
};

// The kernel can compute it too, from `q_sequence`, which is made once.
class CausalMask final : public Mask {
 public:
  CausalMask(Shape shape, std::int64_t offset)
      : shape_(shape),
        band_{.left = std::nullopt, .right = 0, .offset = offset},
        q_sequence_(ids_from_zero(shape.q_seq_len)) {}
  Shape shape() const override { return shape_; }
  void get(Slice q, Slice kv, std::uint8_t* to, HostCount& count) const override {
    band_(q_sequence_.data() + q.start, q.size(), kv.start, kv.size(), to);
    count.computed += q.size() * kv.size();
    count.hold_for_a_while(q.size() * kv.size());
  }
  bool equals(const Mask& other) const override {
    const auto* same = dynamic_cast<const CausalMask*>(&other);
    return same && shape_ == same->shape_ && band_ == same->band_;
  }
  std::size_t hash(HostCount& count) const override {
    return combined(
        hash_of_bytes(q_sequence_.data(), static_cast<std::size_t>(held_bytes()), count),
        static_cast<std::size_t>(band_.offset));
  }
  std::int64_t held_bytes() const override {
    return static_cast<std::int64_t>(q_sequence_.size() * sizeof(std::int32_t));
  }
  const std::vector<std::int32_t>* q_sequence() const override { return &q_sequence_; }
  MaskFunction mask_function() const override { return band_; }

 private:
  Shape shape_;
  Band band_;
  std::vector<std::int32_t> q_sequence_;
};

// Lazy on the host alone: the kernel is given the blocks that are visible in part.
class LocalMask final : public Mask {
 public:
  LocalMask(Shape shape, Band band) : shape_(shape), band_(band) {}
  Shape shape() const override { return shape_; }
  void get(Slice q, Slice kv, std::uint8_t* to, HostCount& count) const override {
    std::vector<std::int32_t> rows = ids_from_zero(q.size());
    for (std::int32_t& row : rows) row += static_cast<std::int32_t>(q.start);
    band_(rows.data(), q.size(), kv.start, kv.size(), to);
    count.computed += q.size() * kv.size();
    count.hold_for_a_while(q.size() * kv.size());
  }
  bool equals(const Mask& other) const override {
    const auto* same = dynamic_cast<const LocalMask*>(&other);
    return same && shape_ == same->shape_ && band_ == same->band_;
  }
  std::size_t hash(HostCount& count) const override {
    const std::array<std::int64_t, 5> all{shape_.q_seq_len, shape_.kv_seq_len,
                                          band_.left.value_or(-1), band_.right.value_or(-1),
                                          band_.offset};
    return hash_of_bytes(all.data(), sizeof(all), count);
  }
  std::int64_t held_bytes() const override { return sizeof(LocalMask); }

 private:
  Shape shape_;
  Band band_;
};

class NumpyMask final : public Mask {
 public:
  explicit NumpyMask(BoolArray array) : array_(std::move(array)) {
    if (static_cast<std::int64_t>(array_.data.size()) !=
        array_.shape.q_seq_len * array_.shape.kv_seq_len) {
      throw ValueError("a NumpyMask takes a boolean array of 2 dimensions");
    }
  }
  Shape shape() const override { return array_.shape; }
  // In NumPy a view, which makes nothing.
  void get(Slice q, Slice kv, std::uint8_t* to, HostCount&) const override {
    for (std::int64_t i = q.start; i < q.stop; ++i, to += kv.size()) {
      std::copy_n(array_.data.data() + i * array_.shape.kv_seq_len + kv.start, kv.size(), to);
    }
  }
  bool equals(const Mask& other) const override {
    const auto* same = dynamic_cast<const NumpyMask*>(&other);
    return same && array_.shape == same->array_.shape && array_.data == same->array_.data;
  }
  std::size_t hash(HostCount& count) const override {
    return hash_of_bytes(array_.data.data(), array_.data.size(), count);
  }
  std::int64_t held_bytes() const override { return static_cast<std::int64_t>(array_.data.size()); }

 private:
  BoolArray array_;
};

class LogicalMask final : public Mask {
 public:
  enum class Kind { and_, or_ };
  LogicalMask(Kind kind, MaskPtr left, MaskPtr right)
      : kind_(kind), left_(std::move(left)), right_(std::move(right)) {
    if (left_->shape() != right_->shape()) throw ValueError("masks must have the same shape");
  }
  Shape shape() const override { return left_->shape(); }
  void get(Slice q, Slice kv, std::uint8_t* to, HostCount& count) const override {
    std::vector<std::uint8_t> other(static_cast<std::size_t>(q.size() * kv.size()));
    left_->get(q, kv, to, count);
    right_->get(q, kv, other.data(), count);
    for (const std::uint8_t seen : other) {
      *to = kind_ == Kind::and_ ? *to & seen : *to | seen;
      ++to;
    }
    count.computed += q.size() * kv.size();
    count.hold_for_a_while(3 * q.size() * kv.size());
  }
  bool equals(const Mask& other) const override {
    const auto* same = dynamic_cast<const LogicalMask*>(&other);
    return same && kind_ == same->kind_ && left_->equals(*same->left_) &&
           right_->equals(*same->right_);
  }
  std::size_t hash(HostCount& count) const override {
    return combined(left_->hash(count), right_->hash(count));
  }
  std::int64_t held_bytes() const override { return left_->held_bytes() + right_->held_bytes(); }

 private:
  Kind kind_;
  MaskPtr left_, right_;
};

}  // namespace

BoolArray dense(const Mask& mask, HostCount& count) {
  const Shape shape = mask.shape();
  BoolArray array{.shape = shape, .data = {}};
  array.data.resize(static_cast<std::size_t>(shape.q_seq_len * shape.kv_seq_len));
  HostCount computing;  // what is made here stays: it is no block that goes again
  mask.get({0, shape.q_seq_len}, {0, shape.kv_seq_len}, array.data.data(), computing);
  count.computed += computing.computed;
  return array;
}

BoolArray make_causal_mask(Shape shape, std::int64_t offset, HostCount& count) {
  return dense(*causal_mask(shape, offset), count);
}
BoolArray make_local_attention_mask(Shape shape, WindowSize window_size, std::int64_t offset,
                                    HostCount& count) {
  return dense(*local_mask(shape, window_size, offset), count);
}

MaskPtr full_mask(Shape shape) { return std::make_shared<FullMask>(shape); }
MaskPtr causal_mask(Shape shape, std::int64_t offset) {
  return std::make_shared<CausalMask>(shape, offset);
}
MaskPtr local_mask(Shape shape, WindowSize window_size, std::int64_t offset) {
  return std::make_shared<LocalMask>(
      shape, Band{.left = window_size.first, .right = window_size.second, .offset = offset});
}
MaskPtr numpy_mask(BoolArray array) { return std::make_shared<NumpyMask>(std::move(array)); }
MaskPtr logical_and(MaskPtr left, MaskPtr right) {
  return std::make_shared<LogicalMask>(LogicalMask::Kind::and_, std::move(left), std::move(right));
}
MaskPtr logical_or(MaskPtr left, MaskPtr right) {
  return std::make_shared<LogicalMask>(LogicalMask::Kind::or_, std::move(left), std::move(right));
}

MultiHeadMask::MultiHeadMask(std::vector<MaskPtr> masks) : masks_(std::move(masks)) {
  if (masks_.empty()) throw ValueError("a MultiHeadMask has a mask for each head, and no head");
  for (const MaskPtr& mask : masks_) {
    if (mask->shape() != shape()) throw ValueError("the masks of the heads differ in shape");
  }
}

}  // namespace attest::vendor::splash
