#include "impl/vendor/ascend/sparse.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace attest::vendor::ascend {

namespace {

// More than any distance within a score matrix, and far from overflow.
constexpr int64_t kUnlimited = int64_t{1} << 40;

[[noreturn]] void refuse(const std::string& why) { throw std::invalid_argument(why); }

void check_tokens(const MaskArguments& a, const std::vector<Sequence>& sequences) {
  if (a.pre_tokens + a.next_tokens < 0) refuse("pre_tokens and next_tokens do not meet");
  if (a.sparse_mode != 0) return;
  for (const Sequence& s : sequences) {
    if (a.next_tokens < 0 && -a.next_tokens >= s.s2) refuse("next_tokens is at or below -S2");
    if (a.pre_tokens < 0 && -a.pre_tokens >= s.s1) refuse("pre_tokens is at or below -S1");
  }
}

void check_prefix(const MaskArguments& a, const std::vector<Sequence>& sequences) {
  if (a.prefix.size() != sequences.size()) refuse("prefix has no number for each batch element");
  for (std::size_t b = 0; b < sequences.size(); ++b) {
    const int64_t least = std::max<int64_t>(0, sequences[b].s2 - sequences[b].s1);
    if (a.prefix[b] < least || a.prefix[b] > sequences[b].s2)
      refuse("prefix is not between max(0, S2 - S1) and S2");
  }
}

int64_t unlimited(int64_t tokens) { return tokens >= kAllTokens ? kUnlimited : tokens; }

}  // namespace

Sparse::Sparse(const MaskArguments& arguments, const std::string& layout,
               const std::vector<Sequence>& sequences, int64_t heads)
    : mask_(arguments.mask), sequences_(sequences) {
  const bool packed = layout == "TND";
  if (arguments.sparse_mode < 0 || arguments.sparse_mode > (packed ? 8 : 6))
    refuse("there is no sparse_mode " + std::to_string(arguments.sparse_mode));
  if (packed && arguments.sparse_mode == 5) refuse("sparse_mode 5 is not for TND");
  bands_.assign(sequences.size(), {kUnlimited, kUnlimited, 0});
  if (!arguments.has_mask) return;
  mode_ = static_cast<SparseMode>(arguments.sparse_mode);
  check_shape(arguments, layout, sequences, heads);
  resolve(arguments, sequences);
}

void Sparse::check_shape(const MaskArguments& a, const std::string& layout,
                         const std::vector<Sequence>& sequences, int64_t heads) {
  const auto& shape = a.shape;
  const bool whole = mode_ == SparseMode::kDefaultMask || mode_ == SparseMode::kAllMask ||
                     mode_ == SparseMode::kPrefix;
  if (!whole) {
    const bool prefix = mode_ == SparseMode::kPrefixCompressed;
    table_ = prefix ? Table::kTriangleAndPrefix : Table::kTriangle;
    row_step_ = kCompressed;
    if (shape != std::vector<int64_t>{prefix ? kCompressedPrefixRows : kCompressed, kCompressed})
      refuse("the compressed atten_mask is not of its shape");
    return;
  }
  table_ = Table::kWhole;
  int64_t s1 = 0, s2 = 0;
  for (const Sequence& s : sequences) s1 = std::max(s1, s.s1), s2 = std::max(s2, s.s2);
  const auto batch = static_cast<int64_t>(sequences.size());
  const std::size_t axes = shape.size();
  if ((axes != 2 && axes != 4) || (axes == 4 && layout == "TND") ||
      (axes == 2 && mode_ == SparseMode::kPrefix))
    refuse("atten_mask has " + std::to_string(axes) + " axes");
  if (shape[axes - 2] != s1 || shape[axes - 1] != s2) refuse("atten_mask is not of S1 x S2");
  row_step_ = s2;
  if (axes == 2) return;
  if ((shape[0] != 1 && shape[0] != batch) ||
      (shape[1] != 1 && (shape[1] != heads || shape[0] != batch)) ||
      (mode_ == SparseMode::kPrefix && shape[0] != batch))
    refuse("atten_mask is none of BNSS, B1SS, 11SS");
  head_step_ = shape[1] == 1 ? 0 : s1 * s2;
  batch_step_ = shape[0] == 1 && batch > 1 ? 0 : shape[1] * s1 * s2;
}

Sparse::Band Sparse::band_of(SparseMode mode, const MaskArguments& a, const Sequence& s) const {
  const int64_t corner = s.s2 - s.s1;
  switch (mode) {
    case SparseMode::kDefaultMask:
      return {unlimited(a.pre_tokens), unlimited(a.next_tokens), 0};
    case SparseMode::kAllMask:
      return {kUnlimited, kUnlimited, 0};
    case SparseMode::kLeftUpCausal:
      return {kUnlimited, 0, 0};
    case SparseMode::kBand:
      return {a.pre_tokens >= kAllTokens ? kUnlimited : a.pre_tokens - corner,
              a.next_tokens >= kAllTokens ? kUnlimited : a.next_tokens + corner, 0};
    default:
      return {kUnlimited, corner, 0};
  }
}

void Sparse::resolve(const MaskArguments& a, const std::vector<Sequence>& sequences) {
  using enum SparseMode;
  if (mode_ == kDefaultMask || mode_ == kBand || mode_ == kRightDownCausalBand ||
      mode_ == kBandLeftUpCausal)
    check_tokens(a, sequences);
  if (mode_ == kPrefix || mode_ == kPrefixCompressed) check_prefix(a, sequences);
  // Modes 7 and 8: the last, or the first, sequence that has queries is the one that was cut.
  std::size_t cut = sequences.size();
  for (std::size_t b = 0; b < sequences.size(); ++b) {
    if (sequences[b].s1 == 0) continue;
    if (mode_ == kRightDownCausalBand) cut = b;
    if (mode_ == kBandLeftUpCausal) cut = std::min(cut, b);
  }
  for (std::size_t b = 0; b < sequences.size(); ++b) {
    SparseMode mode = mode_;
    if (mode_ == kRightDownCausalBand) mode = b == cut ? kBand : kRightDownCausal;
    if (mode_ == kBandLeftUpCausal) mode = b == cut ? kBand : kLeftUpCausal;
    bands_[b] = band_of(mode, a, sequences[b]);
    if (mode_ == kPrefix || mode_ == kPrefixCompressed) bands_[b].prefix = a.prefix[b];
    const Sequence& s = sequences[b];
    has_empty_rows_ |= s.s1 > 0 && bands_[b].prefix == 0 &&
                       (bands_[b].next < 0 || s.s1 - 1 - bands_[b].pre >= s.s2);
  }
}

BlockMask Sparse::block_mask(int64_t sequence, const Block& block) const {
  if (table_ == Table::kNone) return BlockMask::kAllShown;
  const Band& band = bands_[static_cast<std::size_t>(sequence)];
  const int64_t least = block.j0 - (block.i0 + block.rows - 1);  // of j - i
  const int64_t most = block.j0 + block.columns - 1 - block.i0;
  const bool all_beyond = least > band.next && block.j0 >= band.prefix;
  if (most < -band.pre || all_beyond) return BlockMask::kAllHidden;
  const bool inside =
      least >= -band.pre && (most <= band.next || block.j0 + block.columns <= band.prefix);
  // A whole mask may hide anything.
  return inside && table_ != Table::kWhole ? BlockMask::kAllShown : BlockMask::kPartly;
}

void Sparse::load_mask(VectorCore& core, int64_t sequence, int64_t head, const Block& block,
                       std::uint8_t* hidden) const {
  if (table_ == Table::kWhole) {
    load_whole(core, sequence, head, block, hidden);
  } else {
    load_compressed(core, bands_[static_cast<std::size_t>(sequence)], block, hidden);
  }
}

void Sparse::load_whole(VectorCore& core, int64_t sequence, int64_t head, const Block& block,
                        std::uint8_t* hidden) const {
  const int64_t first =
      sequences_[static_cast<std::size_t>(sequence)].batch * batch_step_ + head * head_step_;
  core.load(mask_ + (first + block.i0 * row_step_ + block.j0), block.rows, block.columns, row_step_,
            reinterpret_cast<std::byte*>(hidden), block.columns);
}

// The triangle is read where its diagonal lies as the band's does in the block; what is farther off
// than it reaches is read at its rim, where all is alike.
void Sparse::load_compressed(VectorCore& core, const Band& band, const Block& block,
                             std::uint8_t* hidden) const {
  const auto count = static_cast<std::size_t>(block.rows * block.columns);
  const auto read = [&](int64_t row, int64_t column, std::uint8_t* to) {
    core.load(mask_ + (row * kCompressed + column), block.rows, block.columns, kCompressed,
              reinterpret_cast<std::byte*>(to), block.columns);
  };
  const auto read_triangle = [&](int64_t shift, std::uint8_t* to) {
    const int64_t ahead = block.j0 - (block.i0 + shift);
    read(std::clamp<int64_t>(-ahead, 0, kCompressed - block.rows),
         std::clamp<int64_t>(ahead, 0, kCompressed - block.columns), to);
  };
  std::vector<std::uint8_t> other(core.numbers() ? count : 0);
  const auto combine = [&](auto of_two) {
    core.op(static_cast<int64_t>(count) / 4);  // bytes, as a quarter of as many floats
    for (std::size_t n = 0; n < other.size(); ++n) hidden[n] = of_two(hidden[n], other[n]);
  };
  if (band.next >= kUnlimited) {
    if (core.numbers()) std::memset(hidden, 0, count);
  } else {
    read_triangle(band.next, hidden);
  }
  if (band.pre < kUnlimited) {  // the same triangle, one row up, says which keys are not before
    read_triangle(-band.pre - 1, other.data());
    combine([](std::uint8_t beyond, std::uint8_t not_before) {
      return static_cast<std::uint8_t>(beyond | (not_before ^ 1U));
    });
  }
  if (table_ == Table::kTriangleAndPrefix) {
    const int64_t column = kCompressed / 2 + block.j0 - band.prefix;
    read(kCompressed, std::clamp<int64_t>(column, 0, kCompressed - block.columns), other.data());
    combine([](std::uint8_t beyond, std::uint8_t no_prefix) {
      return static_cast<std::uint8_t>(beyond & no_prefix);
    });
  }
}

}  // namespace attest::vendor::ascend
