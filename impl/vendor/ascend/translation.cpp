#include "impl/vendor/ascend/translation.h"

#include <algorithm>
#include <cstring>

namespace attest::vendor::ascend {

namespace {

DataType type_of(attest_dtype dtype) {
  return dtype == ATTEST_F16    ? DataType::kFloat16
         : dtype == ATTEST_BF16 ? DataType::kBf16
                                : DataType::kFloat;
}

std::byte* element(const attest::Tensor& t, Place at, int64_t head, int64_t size) {
  return static_cast<std::byte*>(t.data) +
         (at.batch * t.stride[0] + head * t.stride[1] + at.position * t.stride[2]) * size;
}

// A row of channels, whose elements lie `stride` apart there and side by side here.
void read_row(const std::byte* from, int64_t stride, int64_t count, int64_t size, std::byte* to) {
  for (int64_t n = 0; n < count; ++n)
    std::memcpy(to + n * size, from + n * stride * size, static_cast<std::size_t>(size));
}
void write_row(const std::byte* from, int64_t count, int64_t size, std::byte* to, int64_t stride) {
  for (int64_t n = 0; n < count; ++n)
    std::memcpy(to + n * stride * size, from + n * size, static_cast<std::size_t>(size));
}

// Zeros in all of a tensor.
void clear(const attest::Tensor& t, int64_t size) {
  if (!t) return;
  const std::vector<std::byte> zeros(static_cast<std::size_t>(t.shape[3] * size));
  for (int64_t b = 0; b < t.shape[0]; ++b)
    for (int64_t h = 0; h < t.shape[1]; ++h)
      for (int64_t s = 0; s < t.shape[2]; ++s)
        write_row(zeros.data(), t.shape[3], size, element(t, {b, s}, h, size), t.stride[3]);
}

}  // namespace

Translation::Translation(const Problem& problem, bool backward, const Call* contents)
    : p_(problem),
      packed_(problem.cu_query_lens.data || problem.query_lens.data || problem.key_lens.data ||
              problem.cu_key_lens.data),
      type_(type_of(problem.dtype)) {
  choose_sequences(packed_);
  if (empty()) return;
  choose_layout(contents ? contents->q : attest::Tensor());
  MaskForm form{packed_, 0, 0, contents != nullptr};
  for (const Kept& s : sequences_) {
    form.queries = std::max(form.queries, s.queries);
    form.keys = std::max(form.keys, s.keys);
  }
  mask_ = choose_mask(p_, form);
  const auto of = [&](attest::Tensor Call::*tensor) {
    return contents ? &(contents->*tensor) : nullptr;
  };
  q_ = new_copy(true, of(&Call::q)), k_ = new_copy(false, of(&Call::k));
  v_ = new_copy(false, of(&Call::v));
  out_ = new_copy(true, backward ? of(&Call::o) : nullptr);
  max_ = new_statistics(backward ? of(&Call::maximum) : nullptr);
  sum_ = new_statistics(backward ? of(&Call::sum) : nullptr);
  if (contents) copy_keep(*contents);
  if (!backward) return;
  dy_ = new_copy(true, of(&Call::d_o));
  dq_ = new_copy(true, nullptr), dk_ = new_copy(false, nullptr), dv_ = new_copy(false, nullptr);
}

void Translation::choose_sequences(bool of_lengths) {
  if (p_.query_heads == 0 || p_.head_dim == 0) return;
  for (int64_t b = 0; b < p_.batch; ++b) {
    const Kept s{b, of_lengths ? p_.query_len_of(b) : p_.query_len,
                 of_lengths ? p_.key_len_of(b) : p_.key_len};
    if (s.queries > 0 && s.keys > 0) sequences_.push_back(s);
  }
}

void Translation::choose_layout(const attest::Tensor& q) {
  query_.n = p_.query_heads, key_.n = p_.key_heads;
  query_.d = key_.d = p_.head_dim;
  if (packed_) {
    layout_ = "TND";
    query_.b = key_.b = 1;
    for (const Kept& s : sequences_) query_.s += s.queries, key_.s += s.keys;
    return;
  }
  query_.b = key_.b = p_.batch;
  query_.s = p_.query_len, key_.s = p_.key_len;
  const bool position_first = q.stride[2] > q.stride[1] && q.shape[1] > 1;
  layout_ = !position_first ? "BNSD" : q.stride[2] > q.stride[0] && q.shape[0] > 1 ? "SBH" : "BSH";
}

template <class Visit>
void Translation::for_rows(bool of_queries, const Steps& steps, const Visit& visit) const {
  int64_t start = 0;
  for (const Kept& s : sequences_) {
    const int64_t rows = of_queries ? s.queries : s.keys;
    for (int64_t n = 0; n < (of_queries ? query_.n : key_.n); ++n) {
      for (int64_t i = 0; i < rows; ++i) {
        const Place at = of_queries ? p_.query_place(s.b, i) : p_.key_place(s.b, i);
        visit(at, n, packed_ ? steps.row(0, n, start + i) : steps.row(s.b, n, i));
      }
    }
    start += rows;
  }
}

Translation::Copy Translation::new_copy(bool of_queries, const attest::Tensor* from) {
  const Sizes& of = of_queries ? query_ : key_;
  const int64_t size = bytes_of(type_), h = of.n * of.d;
  Copy copy;
  copy.tensor.type = type_;
  copy.tensor.shape = layout_ == "TND"   ? std::vector<int64_t>{of.s, of.n, of.d}
                      : layout_ == "BSH" ? std::vector<int64_t>{of.b, of.s, h}
                      : layout_ == "SBH" ? std::vector<int64_t>{of.s, of.b, h}
                                         : std::vector<int64_t>{of.b, of.n, of.s, of.d};
  copy.data.resize(static_cast<std::size_t>(of.b * of.s * h * size));
  if (!from) return copy;
  for_rows(of_queries, steps_of(layout_, of), [&](Place at, int64_t n, int64_t first) {
    read_row(element(*from, at, n, size), from->stride[3], of.d, size,
             copy.data.data() + first * size);
  });
  return copy;
}

Translation::Copy Translation::new_statistics(const attest::Tensor* from) {
  Copy copy;
  copy.tensor.type = DataType::kFloat;
  copy.tensor.shape = layout_ == "TND"
                          ? std::vector<int64_t>{query_.s, query_.n, kStatistics}
                          : std::vector<int64_t>{query_.b, query_.n, query_.s, kStatistics};
  constexpr auto kSize = static_cast<int64_t>(sizeof(float));
  copy.data.resize(static_cast<std::size_t>(query_.b * query_.n * query_.s * kStatistics * kSize));
  if (!from) return copy;
  for_rows(true, steps_of_statistics(layout_, query_), [&](Place at, int64_t n, int64_t first) {
    for (int64_t k = 0; k < kStatistics; ++k)
      read_row(element(*from, at, n, kSize), 0, 1, kSize, copy.data.data() + (first + k) * kSize);
  });
  return copy;
}

// The bits without the gaps between their rows.
void Translation::copy_keep(const Call& call) {
  if (p_.dropout == ATTEST_DROPOUT_NONE) return;
  std::size_t bit = 0;
  for (const Kept& s : sequences_) bit += static_cast<std::size_t>(query_.n * s.queries * s.keys);
  keep_.data.resize((bit + 7) / 8);
  keep_.tensor = {nullptr, DataType::kUint8, {static_cast<int64_t>(keep_.data.size())}};
  bit = 0;
  for (const Kept& s : sequences_) {
    for (int64_t n = 0; n < query_.n; ++n) {
      for (int64_t i = 0; i < s.queries; ++i) {
        for (int64_t j = 0; j < s.keys; ++j, ++bit) {
          if (call.keep.bit(s.b, n, i, j)) keep_.data[bit / 8] |= std::byte{1} << (bit % 8);
        }
      }
    }
  }
}

void Translation::fill_common(AttentionArguments& to) {
  const auto given = [](Copy& copy) {
    copy.tensor.data = copy.data.data();
    return copy.tensor;
  };
  to.query = given(q_), to.key = given(k_), to.value = given(v_);
  to.softmax_max = given(max_), to.softmax_sum = given(sum_);
  if (!keep_.data.empty()) to.drop_mask = given(keep_);
  if (!mask_.atten_mask.empty())
    to.atten_mask = {mask_.atten_mask.data(), DataType::kBool, mask_.shape};
  to.prefix = mask_.prefix, to.sparse_mode = mask_.sparse_mode;
  to.scale_value = p_.scale;
  to.keep_prob = p_.dropout == ATTEST_DROPOUT_NONE ? 1 : 1 - p_.dropout_probability;
  to.head_num = query_.n, to.input_layout = layout_;
  to.inner_precise = 2;
  if (!packed_) return;
  int64_t q = 0, kv = 0;
  for (const Kept& s : sequences_) {
    to.actual_seq_qlen.push_back(q += s.queries);
    to.actual_seq_kvlen.push_back(kv += s.keys);
  }
}

FlashAttentionScoreArguments Translation::forward_call() {
  FlashAttentionScoreArguments call;
  fill_common(call);
  call.pre_tokens = mask_.pre_tokens, call.next_tokens = mask_.next_tokens;
  out_.tensor.data = out_.data.data();
  call.attention_out = out_.tensor;
  return call;
}

FlashAttentionScoreGradArguments Translation::backward_call() {
  FlashAttentionScoreGradArguments call;
  fill_common(call);
  call.pre_tokens = mask_.pre_tokens, call.next_tokens = mask_.next_tokens;
  for (Copy* copy : {&out_, &dy_, &dq_, &dk_, &dv_}) copy->tensor.data = copy->data.data();
  call.attention_in = out_.tensor, call.dy = dy_.tensor;
  call.dq = dq_.tensor, call.dk = dk_.tensor, call.dv = dv_.tensor;
  return call;
}

void Translation::scatter(const Copy& from, bool of_queries, const attest::Tensor& to) const {
  const Sizes& of = of_queries ? query_ : key_;
  const int64_t size = bytes_of(type_);
  clear(to, size);
  if (!to || empty()) return;
  for_rows(of_queries, steps_of(layout_, of), [&](Place at, int64_t n, int64_t first) {
    write_row(from.data.data() + first * size, of.d, size, element(to, at, n, size), to.stride[3]);
  });
}

void Translation::scatter_statistics(const Copy& from, const attest::Tensor& to,
                                     float without) const {
  if (!to) return;
  const auto view = to.view<float>();
  for (int64_t b = 0; b < to.shape[0]; ++b)
    for (int64_t h = 0; h < to.shape[1]; ++h)
      for (int64_t i = 0; i < to.shape[2]; ++i) view(b, h, i, 0) = without;
  if (empty()) return;
  for_rows(true, steps_of_statistics(layout_, query_), [&](Place at, int64_t n, int64_t first) {
    std::memcpy(&view(at, n, 0), from.data.data() + first * 4, sizeof(float));
  });
}

void Translation::finish_forward(const Call& call) const {
  scatter(out_, true, call.o);
  scatter_statistics(max_, call.maximum, kHidden);
  scatter_statistics(sum_, call.sum, -kHidden);
}

void Translation::finish_backward(const Call& call) const {
  scatter(dq_, true, call.dq);
  scatter(dk_, false, call.dk);
  scatter(dv_, false, call.dv);
}

}  // namespace attest::vendor::ascend
