#include "harness/judge/alone.h"

#include <algorithm>

#include "spec/assert.h"

namespace attest {
namespace {

Values cut(const Values& values, const Box& box) {
  return {box.size, cut(values.data, values.shape, box)};
}

// What goes with a part of a tensor: scales, whose axes of size 1 hold for all of it.
Values cut_along(const Values& scales, const Box& box) {
  Box own = {{}, {1, 1, 1, scales.shape[kChannel]}};
  for (const Axis axis : {kBatch, kHead, kPosition}) {
    if (scales.shape[axis] == 1) continue;
    own.begin[axis] = box.begin[axis];
    own.size[axis] = box.size[axis];
  }
  return cut(scales, own);
}

// The cuts that make one batch element of a whole problem.
class Knife {
 public:
  Knife(const Problem& problem, Index b) : p_(problem), b_(b), lengths_(problem.lengths(b)) {}

  bool paged() const { return p_.paging.page_size > 0; }
  Index query_len() const { return p_.packed ? lengths_.query : p_.query_len; }
  Index key_len() const { return p_.packed && !paged() ? lengths_.key : p_.key_len; }

  Box queries(const Shape& shape) const { return rows(shape, p_.query_lens, query_len()); }
  Box keys(const Shape& shape) const { return rows(shape, p_.key_lens, key_len()); }

  // Of a tensor over (b, h, i, j) whose axes of size 1 hold for all positions.
  Box scores(const Shape& shape) const {
    return {{batch_of(shape), 0, 0, 0},
            {1, shape[1], shape[2] == 1 ? 1 : query_len(), shape[3] == 1 ? 1 : key_len()}};
  }

  Keep keep(const Keep& whole) const {
    const Box box = {{b_, 0, 0, 0}, {1, whole.shape[1], query_len(), key_len()}};
    return {box.size, cut(whole.kept, whole.shape, box)};
  }

 private:
  Index batch_of(const Shape& shape) const { return broadcast(shape[kBatch], b_); }

  Box rows(const Shape& shape, const SequenceLengths& lens, Index length) const {
    const Index batch = p_.packed ? 0 : b_;
    const Index first = p_.packed ? lens.start(b_) : 0;
    return {{batch, 0, first, 0}, {1, shape[1], length, shape[3]}};
  }

  const Problem& p_;
  Index b_;
  Lengths lengths_;
};

}  // namespace

Alone alone(const Problem& whole, const Inputs& in, Index b) {
  ATTEST_ASSERT(whole.dropout.mode != Dropout::Mode::generated);
  const Knife knife(whole, b);
  const auto at = static_cast<std::size_t>(b);
  Alone result = {.problem = whole, .inputs = {}};
  Problem& p = result.problem;
  p.batch = 1;
  p.query_len = knife.query_len();
  p.key_len = knife.key_len();
  if (!whole.query_lens.empty()) p.query_lens = {whole.query_lens[at]};
  if (!whole.key_lens.empty()) p.key_lens = {whole.key_lens[at]};
  if (knife.paged()) p.paging.table = {whole.paging.table[at]};
  p.mask = of_batch(whole.mask, b, {.query = p.query_len, .key = p.key_len});

  Inputs& own = result.inputs;
  own.q = cut(in.q, knife.queries(in.q.shape));
  own.k = knife.paged() ? in.k : cut(in.k, knife.keys(in.k.shape));
  own.v = knife.paged() ? in.v : cut(in.v, knife.keys(in.v.shape));
  if (whole.stored.q) own.q_scale = cut_along(in.q_scale, knife.queries(in.q.shape));
  const auto cut_scales = [&](const Values& scales, const Values& of) {
    return knife.paged() ? scales : cut_along(scales, knife.keys(of.shape));
  };
  if (whole.stored.k) own.k_scale = cut_scales(in.k_scale, in.k);
  if (whole.stored.v) own.v_scale = cut_scales(in.v_scale, in.v);
  if (whole.bias_shape) {
    own.bias = cut(in.bias, knife.scores(*whole.bias_shape));
    p.bias_shape = own.bias.shape;
  }
  if (whole.slopes_shape) {
    own.slopes = cut(in.slopes, knife.scores(*whole.slopes_shape));
    p.slopes_shape = own.slopes.shape;
  }
  own.sink = in.sink;
  if (whole.dropout.mode == Dropout::Mode::given) own.keep = knife.keep(in.keep);
  if (whole.backward) own.d_o = cut(in.d_o, knife.queries(in.d_o.shape));
  if (whole.d_lse) own.d_lse = cut(in.d_lse, knife.queries(in.d_lse.shape));
  return result;
}

std::optional<Returned> share_of(const Problem& problem, const Returned& whole, Index b) {
  const Knife knife(problem, b);
  Box box;
  if (is_of_keys(whole.name)) {
    box = knife.keys(whole.shape);
  } else if (whole.name == TensorName::dbias) {
    if (whole.shape[0] == 1 && problem.batch > 1) return std::nullopt;
    box = knife.scores(whole.shape);
  } else if (whole.name == TensorName::dsink) {
    return std::nullopt;
  } else {
    box = knife.queries(whole.shape);
  }
  Returned share = whole;
  share.shape = box.size;
  share.bits = cut(whole.bits, whole.shape, box);
  return share;
}

}  // namespace attest
