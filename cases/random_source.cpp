#include "cases/random_source.h"

#include <fmt/format.h>

namespace attest {
namespace {

constexpr std::array<TensorName, 4> kTensorNames = {TensorName::q, TensorName::k, TensorName::v,
                                                    TensorName::d_o};

// Where the rows of a stored tensor belong: for each batch element and position of it, the batch
// element and the position that a formula counts (LAYOUT-5, PAGE-1). A page that several share
// belongs to the first of them; one that nobody uses, to a batch element beyond the last.
std::vector<Place> owners_of_queries(const Problem& p) {
  const Shape shape = p.q_shape();
  std::vector<Place> owners(static_cast<std::size_t>(shape[kBatch] * shape[kPosition]));
  for (Index b = 0; b < p.batch; ++b) {
    for (Index i = 0; i < p.stored_queries(b); ++i) {
      const Place place = p.query_place(b, i);
      owners[static_cast<std::size_t>(place.batch * shape[kPosition] + place.position)] = {b, i};
    }
  }
  return owners;
}
std::vector<Place> owners_of_keys(const Problem& p) {
  const Shape shape = p.k_shape();
  std::vector<Place> owners;
  for (Index b = 0; b < shape[kBatch]; ++b) {
    for (Index s = 0; s < shape[kPosition]; ++s) owners.push_back({p.batch + b, s});
  }
  const auto own = [&](Place place, Place owner) {
    Place& known =
        owners[static_cast<std::size_t>(place.batch * shape[kPosition] + place.position)];
    if (known.batch >= p.batch) known = owner;
  };
  if (const Index size = p.paging.page_size; size > 0) {
    for (Index b = 0; b < p.batch; ++b) {
      const auto& row = p.paging.table[static_cast<std::size_t>(b)];
      for (std::size_t n = 0; n < row.size(); ++n) {
        for (Index slot = 0; slot < size && row[n] >= 0; ++slot) {
          own({row[n], slot}, {b, static_cast<Index>(n) * size + slot});
        }
      }
    }
  } else {
    for (Index b = 0; b < p.batch; ++b) {
      for (Index j = 0; j < p.stored_keys(b); ++j) own(p.key_place(b, j), {b, j});
    }
  }
  return owners;
}

}  // namespace

std::array<std::uint32_t, 2> key_of(const Case& test_case, TensorName tensor) {
  return philox_key(fmt::format("{}#{}", test_case.bits.empty() ? test_case.id : test_case.bits,
                                wire_name(tensor)));
}

RandomSource::RandomSource(const Case& test_case) : problem(test_case.problem) {
  const Problem& p = problem;
  stored_ = {p.q_shape(), p.k_shape(), p.v_shape(), p.o_shape()};
  shapes_ = {Shape{p.batch, p.query_heads, p.query_len, p.head_dim},
             Shape{p.batch, p.key_heads, p.key_len, p.head_dim},
             Shape{p.batch, p.key_heads, p.key_len, p.value_dim},
             Shape{p.batch, p.query_heads, p.query_len, p.value_dim}};
  for (std::size_t tensor = 0; tensor < 4; ++tensor) {
    layouts_[tensor] = p.layouts[kTensorNames[tensor]];
    keys_[tensor] = key_of(test_case, kTensorNames[tensor]);
  }
  owners_[0] = owners_of_queries(p);
  owners_[1] = owners_of_keys(p);
}

}  // namespace attest
