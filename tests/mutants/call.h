// What a call tells a kernel, as both kernels of the mutants read it: lengths, places, masks,
// dropout, scores, and where results go. The faults of these are here; those of an algorithm are in
// its own file.
#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <vector>

#include "spec/attest_plugin.h"
#include "spec/dtype.h"
#include "tests/mutants/catalogue.h"

namespace attest::mutants {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr Index kTile = 64;  // queries and keys
inline constexpr Index kFar = 96;   // from here on keys meet faults of two features

inline std::size_t at(Index i) { return static_cast<std::size_t>(i); }

inline Index round_up(Index n, Index multiple) { return (n + multiple - 1) / multiple * multiple; }

inline Index elements(const attest_tensor& t) {
  return t.shape[0] * t.shape[1] * t.shape[2] * t.shape[3];
}

// An element of a table, whose axes of size 1 hold for all positions.
template <class T>
T entry(const attest_tensor& table, const std::array<Index, 4>& place) {
  Index offset = 0;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (table.shape[axis] > 1) offset += place[axis] * table.stride[axis];
  }
  return static_cast<const T*>(table.data)[offset];
}

// Elements where the strides say.
struct View {
  static inline bool offsets_32_bits = false;  // a fault of all tensors
  const attest_tensor& t;
  std::byte* at(Index b, Index h, Index s, Index d) const;
  float load(Index b, Index h, Index s, Index d) const;
  void store(Index b, Index h, Index s, Index d, float value) const;
};

// The values of an input, decoded once: for sums over channels.
class Loaded {
 public:
  explicit Loaded(const attest_tensor& t);
  const float* row(Index b, Index h, Index s) const {
    return values_.data() + ((b * shape_[1] + h) * shape_[2] + s) * shape_[3];
  }
  // The row that begins where it would with so many channels; within the tensor, whatever they are.
  std::vector<float> row_of_pitch(Index b, Index h, Index s, Index pitch) const;

 private:
  std::array<Index, 4> shape_;
  std::vector<float> values_;
};

template <class T>
void store_all(const std::vector<T>& values, const attest_tensor& tensor) {
  const View view{tensor};
  const Index* shape = tensor.shape;
  std::size_t n = 0;
  for (Index b = 0; b < shape[0]; ++b) {
    for (Index h = 0; h < shape[1]; ++h) {
      for (Index s = 0; s < shape[2]; ++s) {
        for (Index d = 0; d < shape[3]; ++d) {
          view.store(b, h, s, d, static_cast<float>(values[n++]));
        }
      }
    }
  }
}

struct Place {
  Index batch, position;
};

// The score of a pair; -inf where the key is not seen.
struct Score {
  float value = -kInfinity;
  float cap_slope = 1;
  bool seen = false;
  // Not trivial, so that it is returned in memory: packed into registers, and out of them again, it
  // took longer than all that it is made of.
  ~Score() {}
};

class Call {
 public:
  Call(FaultId fault, const attest_problem& p, const attest_inputs& in, int threads, bool backward);

  bool has(FaultId fault) const { return fault_ == fault; }
  FaultId fault() const { return fault_; }
  const attest_problem& problem() const { return p_; }
  const attest_inputs& inputs() const { return in_; }
  int threads() const { return threads_; }
  bool backward() const { return backward_; }
  bool packed() const { return p_.cu_query_lens.data || p_.cu_key_lens.data; }
  bool paged() const { return p_.page_size > 0; }
  DType dtype() const { return static_cast<DType>(p_.dtype); }
  bool narrow_format() const { return format_of(dtype()).bytes == 2; }

  // x in the problem's format if that has 16 bits; in bf16 if not.
  float in_16_bits(float x) const;

  // ---- Lengths and places
  Index query_len(Index b) const { return query_lens_[at(b)]; }
  Index key_len(Index b) const { return key_lens_[at(b)]; }
  Index corner(Index b) const;  // klen_b - qlen_b, of masks
  // What a kernel for decoding is for.
  bool few_queries(Index b) const { return query_len(b) <= 8 && key_len(b) > 256; }
  Place query_place(Index b, Index i) const;
  Place key_place(Index b, Index j) const;
  Place value_place(Index b, Index j) const;
  Index key_head(Index b, Index h) const;
  Index group() const { return p_.query_heads / p_.key_heads; }
  // Rows of an element that have a place: of packed ones no others than are real.
  Index rows(Index b) const { return p_.cu_query_lens.data ? query_len(b) : p_.query_len; }
  template <class Visit>
  void for_each_row(const Visit& visit) const {
    for (Index b = 0; b < p_.batch; ++b) {
      for (Index h = 0; h < p_.query_heads; ++h) {
        for (Index i = 0, end = rows(b); i < end; ++i) visit(b, h, i);
      }
    }
  }
  Index packed_start(Index b) const;  // of the queries; 0 unless packed

  // ---- Masks
  bool unmasked() const {
    return p_.mask_count == 0 || (p_.mask_count == 1 && p_.mask[0].kind == ATTEST_MASK_FULL);
  }
  bool sees(Index b, Index h, Index i, Index j) const;
  // The mask, if it is one band; else none.
  const attest_mask* band() const;
  bool causal() const { return band() && band()->right == 0 && band()->left == ATTEST_UNBOUNDED; }
  // Whether no row of any element sees a key of the band.
  bool sees_nothing(const attest_mask& band) const;
  // j - i of a band's diagonal.
  Index diagonal(const attest_mask& band, Index b) const;
  const attest_mask* node_of(attest_mask_kind kind) const;  // the first of that kind, or none

  // ---- Dropout
  void publish_keep(const attest_tensor& keep) const;
  bool keeps(Index b, Index h, Index i, Index j) const;
  float keep_factor() const;  // 1 / (1 - p)

  // ---- Scores
  float scale() const;
  Score score(Index b, Index h, Index i, Index j, const float* query, const float* key) const;
  float bias(Index b, Index h, Index i, Index j) const;
  // The dense index of the bias element that (b, h, i, j) reads.
  Index bias_index(Index b, Index h, Index i, Index j) const;
  bool has_sink(Index b, Index i) const;
  float sink(Index h) const;

  // ---- Gradients
  // D of a row: dO . O - dLSE.
  float delta(const Loaded& o, const Loaded& d_o, Index b, Index h, Index i) const;
  // Adds to the sums that become dBias and dSink.
  void add_bias_gradient(std::vector<double>& sums, Index b, Index h, Index i, Index j, float ds,
                         float cap_slope) const;
  void add_sink_gradient(std::vector<double>& sums, Index b, Index h, Index i, float share,
                         float delta) const;
  void store_bias_gradient(std::vector<double> sums, const attest_tensor& dbias) const;
  void store_sink_gradient(std::vector<double> sums, const attest_tensor& dsink) const;

  // ---- Results
  void store_o(const attest_outputs& out, Index b, Index h, Index i, const float* values) const;
  // `top`: the maximum, where that and a sum are returned instead; `last`: P of the last key.
  void store_lse(const attest_outputs& out, Index b, Index h, Index i, float lse, bool sees_a_key,
                 float top, float last) const;
  void store_lse(const attest_outputs& out, Index b, Index h, Index i, float lse,
                 bool sees_a_key) const {
    store_lse(out, b, h, i, lse, sees_a_key, lse - 1, 0);
  }
  bool is_second_tile_of_long_square(Index i, Index j) const;
  // Whether it returns a maximum and a sum; LSE of what it returned.
  bool apart() const;
  float returned_lse(Place place, Index h) const;

 private:
  Index find_query_len(Index b) const;
  Index find_key_len(Index b) const;
  bool overlooks(Index b, Index h, Index i, Index j) const;
  bool apart_by_their_ends(const attest_mask& m, Index b, Index i, Index j) const;
  bool past_sorted_segments(const attest_mask& segments, Index b, Index i, Index j) const;
  bool reveals(Index b, Index i, Index j) const;
  bool allows(Index node, Index b, Index h, Index i, Index j) const;
  bool allows_band(const attest_mask& m, Index b, Index h, Index i, Index j) const;
  bool allows_segments(const attest_mask& m, Index b, Index i, Index j) const;
  bool draws(Index b, Index h, Index i, Index j) const;
  bool beyond_the_grid(Index b, Index h) const;
  double hidden_drop_rate() const;
  bool errs_in_products() const;
  float product(const float* query, const float* key) const;
  bool ignores_cap(Index b, Index j) const;
  float alibi(Index b, Index h, Index i, Index j) const;
  float spread(Index b, Index h, Index i) const;
  bool minus_inf_is_finite() const;

  FaultId fault_;
  const attest_problem& p_;
  const attest_inputs& in_;
  int threads_;
  bool backward_;
  // Asked once, not for each pair: that no mask is misread, that no product of a row of Q and one
  // of K is amiss, and how long sequences are.
  bool regular_, plain_product_;
  std::vector<Index> query_lens_ = {}, key_lens_ = {};
  float scale_ = 0;
  double hidden_drop_rate_ = 0;  // where hidden elements alone are dropped
};

// What a call is about, with the tensors that a fault takes for dense.
struct Told {
  std::vector<attest_mask> nodes;
  attest_problem problem;
  attest_inputs inputs;
  attest_outputs outputs;
  std::array<std::vector<float>, 3> meant = {};  // Q, K and V that are stored in 8 bits

  Told(FaultId fault, const attest_problem& p, const attest_inputs& in, const attest_outputs& out);

 private:
  void unstore(FaultId fault);
};

// The kernels: textbook.cpp, tiled.cpp, tiled_backward.cpp.
void textbook_forward(const Call& call, const attest_outputs& out);
void textbook_backward(const Call& call, const attest_outputs& out);
void tiled_forward(const Call& call, const attest_outputs& out);
void tiled_backward(const Call& call, const attest_outputs& out);

// manners.cpp: what a kernel does to its surroundings, and the blocks that it reports.
void misbehave(const Call& call, const attest_outputs& out);
std::vector<char> scores_in_secret(const Call& call);  // a byte each, while the call lasts
void report_blocks(const Call& call, const attest_context& context);

}  // namespace attest::mutants
