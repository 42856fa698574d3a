// The sparse modes: which scores the operators hide, and which blocks of them they leave out.
//
//   0  defaultMask      the whole atten_mask; nothing beyond pre_tokens before the diagonal and
//                       next_tokens after it, counted from the upper left corner, is computed
//   1  allMask          the whole atten_mask, all of it computed
//   2  leftUpCausal     3  rightDownCausal     4  band, from the lower right corner
//   5  prefix           rightDownCausal and the first prefix[b] keys; the whole atten_mask
//   6  the same from a compressed mask
//   7  TND: rightDownCausal, the last sequence a band     8  TND: leftUpCausal, the first one a
//   band
//
// 2, 3, 4, 7 and 8 read one compressed mask of 2048 x 2048, 1 above the diagonal, at the offset of
// each block; 6 has 1024 rows more below it, 0 in the left half and 1 in the right. A 1 hides, 0
// shows. Without an atten_mask nothing is hidden, whatever the mode.
#pragma once

#include <string>
#include <vector>

#include "impl/vendor/ascend/layout.h"
#include "impl/vendor/ascend/vector.h"

namespace attest::vendor::ascend {

enum class SparseMode {
  kDefaultMask,
  kAllMask,
  kLeftUpCausal,
  kRightDownCausal,
  kBand,
  kPrefix,
  kPrefixCompressed,
  kRightDownCausalBand,
  kBandLeftUpCausal
};

inline constexpr int64_t kCompressed = 2048, kCompressedPrefixRows = 3072;
inline constexpr int64_t kAllTokens = 2147483647;  // the default of pre_tokens and next_tokens

struct MaskArguments {
  bool has_mask = false;
  Gm mask;
  std::vector<int64_t> shape;  // of the mask
  std::vector<int64_t> prefix;
  int64_t pre_tokens = kAllTokens, next_tokens = kAllTokens, sparse_mode = 0;
};

enum class BlockMask { kAllHidden, kPartly, kAllShown };

// What the operators may be told of a block, rows i0.. and columns j0..
struct Block {
  int64_t i0, rows, j0, columns;
};

// The masks of a call.
class Sparse {
 public:
  // Throws std::invalid_argument with the reason, where the arguments are not as the mode wants
  // them.
  Sparse(const MaskArguments& arguments, const std::string& layout,
         const std::vector<Sequence>& sequences, int64_t heads);

  BlockMask block_mask(int64_t sequence, const Block& block) const;
  // Loads what hides of a block, one byte each, in rows of `block.columns`.
  void load_mask(VectorCore& core, int64_t sequence, int64_t head, const Block& block,
                 std::uint8_t* hidden) const;
  // Whether the geometry alone has rows that see nothing, as a causal mask with more queries than
  // keys: then the operators compute such rows by themselves.
  bool has_empty_rows() const { return has_empty_rows_; }

 private:
  // A key j is before the band if j - i < -pre, beyond it if j - i > next; the first `prefix` keys
  // are never beyond it. From the upper left corner, whatever the mode's own corner is.
  struct Band {
    int64_t pre, next, prefix;
  };
  enum class Table { kNone, kWhole, kTriangle, kTriangleAndPrefix };

  void resolve(const MaskArguments& arguments, const std::vector<Sequence>& sequences);
  Band band_of(SparseMode mode, const MaskArguments& arguments, const Sequence& s) const;
  void check_shape(const MaskArguments& arguments, const std::string& layout,
                   const std::vector<Sequence>& sequences, int64_t heads);
  void load_whole(VectorCore& core, int64_t sequence, int64_t head, const Block& block,
                  std::uint8_t* hidden) const;
  void load_compressed(VectorCore& core, const Band& band, const Block& block,
                       std::uint8_t* hidden) const;

  SparseMode mode_ = SparseMode::kDefaultMask;
  Table table_ = Table::kNone;
  Gm mask_;
  int64_t batch_step_ = 0, head_step_ = 0, row_step_ = 0;  // of a whole mask, in bytes
  std::vector<Sequence> sequences_;
  std::vector<Band> bands_;  // of each sequence
  bool has_empty_rows_ = false;
};

}  // namespace attest::vendor::ascend
