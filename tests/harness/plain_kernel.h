// Attention as a vendor might write it who has nothing but attest_plugin.h: in f32 tensors and
// doubles, element by element, for every kind of problem. What it reads is what crossed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "spec/attest_plugin.h"

namespace attest::plain {

inline std::int64_t offset(const attest_tensor& t, std::int64_t b, std::int64_t h, std::int64_t s,
                           std::int64_t d) {
  const std::int64_t at[4] = {b, h, s, d};
  std::int64_t sum = 0;
  for (int axis = 0; axis < 4; ++axis) sum += t.shape[axis] == 1 ? 0 : at[axis] * t.stride[axis];
  return sum;  // an axis of size 1 holds for all positions
}

template <class T>
T& element(const attest_tensor& t, std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t d) {
  return static_cast<T*>(t.data)[offset(t, b, h, s, d)];
}

inline bool bit(const attest_tensor& t, std::int64_t b, std::int64_t h, std::int64_t i,
                std::int64_t j) {
  const std::int64_t n = offset(t, b, h, i, j);
  return static_cast<const std::uint8_t*>(t.data)[n / 8] >> (n % 8) & 1;
}

inline void set_bit(const attest_tensor& t, std::int64_t b, std::int64_t h, std::int64_t i,
                    std::int64_t j, bool value) {
  const std::int64_t n = offset(t, b, h, i, j);
  auto& byte = static_cast<std::uint8_t*>(t.data)[n / 8];
  byte = static_cast<std::uint8_t>(byte & ~(1 << (n % 8)));
  byte = static_cast<std::uint8_t>(byte | (value ? 1 << (n % 8) : 0));
}

class Attention {
 public:
  // Scores go through `stored` if there is one.
  Attention(const attest_problem& problem, const attest_inputs& inputs,
            double (*stored)(double) = nullptr)
      : p_(problem), in_(inputs), stored_(stored) {}

  void forward(const attest_outputs& out) {
    if (p_.dropout == ATTEST_DROPOUT_GENERATED) draw(out.keep);
    for_each_row([&](std::int64_t b, std::int64_t h, std::int64_t i) {
      const Row row = row_of(b, h, i);
      std::vector<double> sums(at(p_.value_dim));
      for (std::int64_t j = 0; j < key_len(b); ++j) {
        const Lane v = value(in_.v, b, h, j);
        const double weight = row.p[at(j)] * row.z[at(j)];
        for (std::int64_t c = 0; c < p_.value_dim; ++c) sums[at(c)] += weight * v[c];
      }
      const Lane o = query(out.o, b, h, i);
      for (std::int64_t c = 0; c < p_.value_dim; ++c) o[c] = static_cast<float>(sums[at(c)]);
      if (out.lse.data) query(out.lse, b, h, i)[0] = static_cast<float>(row.lse);
    });
  }

  void backward(const attest_outputs& out) {
    for (const attest_tensor& t : {out.dq, out.dk, out.dv, out.dbias, out.dsink}) {
      if (!t.data) continue;
      for (std::int64_t b = 0; b < t.shape[0]; ++b) {
        for (std::int64_t h = 0; h < t.shape[1]; ++h) {
          for (std::int64_t s = 0; s < t.shape[2]; ++s) {
            for (std::int64_t d = 0; d < t.shape[3]; ++d) element<float>(t, b, h, s, d) = 0;
          }
        }
      }
    }
    for_each_row([&](std::int64_t b, std::int64_t h, std::int64_t i) {
      const Row row = row_of(b, h, i);
      const Lane q = query(in_.q, b, h, i), o = query(in_.o, b, h, i);
      const Lane d_o = query(in_.d_o, b, h, i), dq = query(out.dq, b, h, i);
      double mean = 0;
      for (std::int64_t c = 0; c < p_.value_dim; ++c) mean += d_o[c] * o[c];
      if (i >= query_len(b)) return;
      const double d_lse = p_.has_dlse ? query(in_.d_lse, b, h, i)[0] : 0;
      if (p_.has_sink) {
        const double share = std::exp(element<float>(in_.sink, 0, h, 0, 0) - row.lse);
        element<float>(out.dsink, 0, h, 0, 0) += static_cast<float>(share * (d_lse - mean));
      }
      for (std::int64_t j = 0; j < key_len(b); ++j) {
        if (!visible(b, h, i, j)) continue;
        const Lane k = value(in_.k, b, h, j), v = value(in_.v, b, h, j);
        const Lane dk = value(out.dk, b, h, j), dv = value(out.dv, b, h, j);
        double dp = 0;
        for (std::int64_t c = 0; c < p_.value_dim; ++c) {
          dp += double(d_o[c]) * v[c];
          dv[c] += static_cast<float>(row.p[at(j)] * row.z[at(j)] * d_o[c]);
        }
        const double ds = row.p[at(j)] * (row.z[at(j)] * dp - mean + d_lse);
        if (p_.has_bias) element<float>(out.dbias, b, h, i, j) += static_cast<float>(ds);
        const double slope = ds * p_.scale * row.cap_slope[at(j)];
        for (std::int64_t c = 0; c < p_.head_dim; ++c) {
          dq[c] += static_cast<float>(slope * k[c]);
          dk[c] += static_cast<float>(slope * q[c]);
        }
      }
    });
  }

 private:
  struct Row {
    std::vector<double> p, z, cap_slope;
    double lse;
  };

  static std::size_t at(std::int64_t j) { return static_cast<std::size_t>(j); }
  static std::int64_t length(const attest_tensor& cu, const attest_tensor& lens, std::int64_t b,
                             std::int64_t whole) {
    if (cu.data)
      return element<std::int64_t>(cu, b + 1, 0, 0, 0) - element<std::int64_t>(cu, b, 0, 0, 0);
    return lens.data ? element<std::int64_t>(lens, b, 0, 0, 0) : whole;
  }
  std::int64_t query_len(std::int64_t b) const {
    return length(p_.cu_query_lens, p_.query_lens, b, p_.query_len);
  }
  std::int64_t key_len(std::int64_t b) const {
    return length(p_.cu_key_lens, p_.key_lens, b, p_.key_len);
  }

  template <class Visit>
  void for_each_row(const Visit& visit) const {
    for (std::int64_t b = 0; b < p_.batch; ++b) {
      const std::int64_t rows = p_.cu_query_lens.data ? query_len(b) : p_.query_len;
      for (std::int64_t h = 0; h < p_.query_heads; ++h) {
        for (std::int64_t i = 0; i < rows; ++i) visit(b, h, i);
      }
    }
  }

  // The channels of one row of a tensor.
  struct Lane {
    float* data;
    std::int64_t start, step;
    float& operator[](std::int64_t c) const { return data[start + c * step]; }
  };
  static Lane lane(const attest_tensor& t, std::int64_t b, std::int64_t h, std::int64_t s) {
    return {static_cast<float*>(t.data), offset(t, b, h, s, 0), t.shape[3] == 1 ? 0 : t.stride[3]};
  }
  // Rows of what has one for each query, and of what has one for each key.
  Lane query(const attest_tensor& t, std::int64_t b, std::int64_t h, std::int64_t i) const {
    if (!p_.cu_query_lens.data) return lane(t, b, h, i);
    return lane(t, 0, h, element<std::int64_t>(p_.cu_query_lens, b, 0, 0, 0) + i);
  }
  Lane value(const attest_tensor& t, std::int64_t b, std::int64_t h, std::int64_t j) const {
    const std::int64_t g = h / (p_.query_heads / p_.key_heads);
    if (p_.page_size > 0) {
      const std::int64_t page = element<std::int32_t>(p_.page_table, b, j / p_.page_size, 0, 0);
      return lane(t, page, g, j % p_.page_size);
    }
    if (!p_.cu_key_lens.data) return lane(t, b, g, j);
    return lane(t, 0, g, element<std::int64_t>(p_.cu_key_lens, b, 0, 0, 0) + j);
  }

  bool allows(std::int64_t node, std::int64_t b, std::int64_t h, std::int64_t i,
              std::int64_t j) const {
    const attest_mask& m = *attest_mask_node(&p_, node);
    const std::int64_t corner = m.anchored_bottom_right ? key_len(b) - query_len(b) : 0;
    const std::int64_t ahead = j - (i + m.offset + corner);
    switch (m.kind) {
      case ATTEST_MASK_FULL:
        return true;
      case ATTEST_MASK_BAND:
        return (m.left == ATTEST_UNBOUNDED || ahead >= -m.left) &&
               (m.right == ATTEST_UNBOUNDED || ahead <= m.right);
      case ATTEST_MASK_DENSE:
        return element<std::uint8_t>(m.table, b, h, i, j) != 0;
      case ATTEST_MASK_PREFIX:
        return j < element<std::int64_t>(m.table, b, 0, 0, 0);
      case ATTEST_MASK_SEGMENTS: {
        const std::int32_t mine = element<std::int32_t>(m.table, b, 0, i, 0);
        return mine >= 0 && mine == element<std::int32_t>(m.table2, b, 0, j, 0);
      }
      case ATTEST_MASK_BLOCK_SPARSE:
        return element<std::uint8_t>(m.table, b, h, i / m.block_query, j / m.block_key) != 0;
      case ATTEST_MASK_DILATED:
        return ahead % m.dilation == 0;
      case ATTEST_MASK_ALL_OF:
        return allows(m.first, b, h, i, j) && allows(m.second, b, h, i, j);
      default:
        return allows(m.first, b, h, i, j) || allows(m.second, b, h, i, j);
    }
  }
  bool visible(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return i < query_len(b) && j < key_len(b) && allows(p_.mask_count - 1, b, h, i, j) &&
           !(p_.has_bias && std::isinf(element<float>(in_.bias, b, h, i, j)));
  }

  Row row_of(std::int64_t b, std::int64_t h, std::int64_t i) const {
    constexpr double kNothing = -std::numeric_limits<double>::infinity();
    const auto keys = at(key_len(b));
    Row row = {std::vector<double>(keys, kNothing), std::vector<double>(keys, 1),
               std::vector<double>(keys, 1), kNothing};
    const Lane q = query(in_.q, b, h, i);
    double most = kNothing;
    for (std::int64_t j = 0; j < key_len(b); ++j) {
      if (!visible(b, h, i, j)) continue;
      const Lane k = value(in_.k, b, h, j);
      double s = 0;
      for (std::int64_t c = 0; c < p_.head_dim; ++c) s += double(q[c]) * k[c];
      s *= p_.scale;
      if (stored_) s = stored_(s);
      if (p_.softcap > 0) {
        const double tanh = std::tanh(s / p_.softcap);
        row.cap_slope[at(j)] = 1 - tanh * tanh;
        s = p_.softcap * tanh;
      }
      if (p_.has_bias) s += element<float>(in_.bias, b, h, i, j);
      if (p_.has_alibi) {
        s -= element<float>(in_.alibi_slopes, b, h, 0, 0) *
             std::abs(static_cast<double>(i + key_len(b) - query_len(b) - j));
      }
      if (p_.dropout != ATTEST_DROPOUT_NONE) {
        row.z[at(j)] = keeps(b, h, i, j) ? 1 / (1 - p_.dropout_probability) : 0;
      }
      row.p[at(j)] = s;
      most = std::max(most, s);
    }
    const bool sink = p_.has_sink && i < query_len(b);
    const double z = sink ? element<float>(in_.sink, 0, h, 0, 0) : kNothing;
    most = std::max(most, z);
    if (most > kNothing) {
      double sum = std::exp(z - most);
      for (const double s : row.p) sum += std::exp(s - most);
      row.lse = most + std::log(sum);
    }
    for (double& s : row.p) s = s == kNothing ? 0 : std::exp(s - row.lse);
    return row;
  }

  // Generated dropout: a hash of seed and position, so that no state is needed.
  bool keeps(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    if (p_.dropout == ATTEST_DROPOUT_GIVEN) return bit(in_.keep, b, h, i, j);
    std::uint64_t x = p_.dropout_seed * 0x9e3779b97f4a7c15u + p_.dropout_offset;
    for (const std::int64_t n : {b, h, i, j}) {
      x = (x ^ static_cast<std::uint64_t>(n)) * 0xff51afd7ed558ccdu;
      x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;  // or neighbours would hardly differ
      x ^= x >> 33;
    }
    return static_cast<double>(x >> 11) * 0x1p-53 >= p_.dropout_probability;
  }
  void draw(const attest_tensor& keep) const {
    for (std::int64_t b = 0; b < p_.batch; ++b) {
      for (std::int64_t h = 0; h < p_.query_heads; ++h) {
        for (std::int64_t i = 0; i < p_.query_len; ++i) {
          for (std::int64_t j = 0; j < p_.key_len; ++j) {
            set_bit(keep, b, h, i, j, keeps(b, h, i, j));
          }
        }
      }
    }
  }

  const attest_problem& p_;
  const attest_inputs& in_;
  double (*stored_)(double);
};

inline attest_status forward(const attest_problem& p, const attest_inputs& in,
                             const attest_outputs& out, const attest_context&) {
  Attention(p, in).forward(out);
  return ATTEST_OK;
}

inline attest_status backward(const attest_problem& p, const attest_inputs& in,
                              const attest_outputs& out, const attest_context&) {
  Attention(p, in).backward(out);
  return ATTEST_OK;
}

}  // namespace attest::plain
