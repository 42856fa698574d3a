#include "harness/judge/alone.h"

#include <algorithm>

#include "spec/assert.h"

namespace attest {
namespace {

// A box of a tensor.
struct Part {
  Shape begin, size;
};

template <class T>
std::vector<T> cut(const std::vector<T>& data, const Shape& shape, const Part& part) {
  std::vector<T> result;
  result.reserve(static_cast<std::size_t>(element_count(part.size)));
  for (Index b = 0; b < part.size[0]; ++b) {
    for (Index h = 0; h < part.size[1]; ++h) {
      for (Index s = 0; s < part.size[2]; ++s) {
        if (part.size[3] == 0) continue;
        const auto row = data.begin() + dense_index(shape, part.begin[0] + b, part.begin[1] + h,
                                                    part.begin[2] + s, part.begin[3]);
        result.insert(result.end(), row, row + part.size[3]);
      }
    }
  }
  return result;
}

Values cut(const Values& values, const Part& part) {
  return {part.size, cut(values.data, values.shape, part)};
}

// The cuts that make one batch element of a whole problem.
class Knife {
 public:
  Knife(const Problem& problem, Index b) : p_(problem), b_(b), lengths_(problem.lengths(b)) {}

  bool paged() const { return p_.paging.page_size > 0; }
  Index query_len() const { return p_.packed ? lengths_.query : p_.query_len; }
  Index key_len() const { return p_.packed && !paged() ? lengths_.key : p_.key_len; }

  Part queries(const Shape& shape) const { return rows(shape, p_.query_lens, query_len()); }
  Part keys(const Shape& shape) const { return rows(shape, p_.key_lens, key_len()); }

  // Of a tensor over (b, h, i, j) whose axes of size 1 hold for all positions.
  Part scores(const Shape& shape) const {
    return {{batch_of(shape), 0, 0, 0},
            {1, shape[1], shape[2] == 1 ? 1 : query_len(), shape[3] == 1 ? 1 : key_len()}};
  }

  Keep keep(const Keep& whole) const {
    const Part part = {{b_, 0, 0, 0}, {1, whole.shape[1], query_len(), key_len()}};
    return {part.size, cut(whole.kept, whole.shape, part)};
  }

  Mask mask(Mask mask) const {
    switch (mask.kind) {
      case Mask::Kind::dense:
        mask.table = table(*mask.table, scores(mask.table->shape));
        break;
      case Mask::Kind::block_sparse: {
        const Shape& shape = mask.table->shape;
        mask.table = table(*mask.table, {{batch_of(shape), 0, 0, 0},
                                         {1, shape[1], ceil_div(query_len(), mask.block_query),
                                          ceil_div(key_len(), mask.block_key)}});
        break;
      }
      case Mask::Kind::prefix:
        mask.prefix_lens = {std::min(mask.prefix_of(b_), key_len())};
        break;
      case Mask::Kind::segments:
        mask.segments = std::make_shared<const Segments>(
            Segments{.query = numbers(mask.segments->query, query_len()),
                     .key = numbers(mask.segments->key, key_len())});
        break;
      case Mask::Kind::full:
      case Mask::Kind::band:
      case Mask::Kind::dilated:
      case Mask::Kind::all_of:
      case Mask::Kind::any_of:
        break;  // the same for every batch element, or by its parts
    }
    for (Mask& part : mask.parts) part = this->mask(std::move(part));
    return mask;
  }

 private:
  Index batch_of(const Shape& shape) const { return broadcast(shape[kBatch], b_); }

  Part rows(const Shape& shape, const SequenceLengths& lens, Index length) const {
    const Index batch = p_.packed ? 0 : b_;
    const Index first = p_.packed ? lens.start(b_) : 0;
    return {{batch, 0, first, 0}, {1, shape[1], length, shape[3]}};
  }

  static std::shared_ptr<const DenseMask> table(const DenseMask& whole, const Part& part) {
    return std::make_shared<const DenseMask>(
        DenseMask{.shape = part.size, .allowed = cut(whole.allowed, whole.shape, part)});
  }

  SegmentNumbers numbers(const SegmentNumbers& whole, Index length) const {
    const Part part = {{whole.batches == 1 ? 0 : b_, 0, 0, 0}, {1, 1, 1, length}};
    return {.batches = 1,
            .length = length,
            .number = cut(whole.number, {whole.batches, 1, 1, whole.length}, part)};
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
  p.mask = knife.mask(whole.mask);

  Inputs& own = result.inputs;
  own.q = cut(in.q, knife.queries(in.q.shape));
  own.k = knife.paged() ? in.k : cut(in.k, knife.keys(in.k.shape));
  own.v = knife.paged() ? in.v : cut(in.v, knife.keys(in.v.shape));
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
  Part part;
  if (is_of_keys(whole.name)) {
    part = knife.keys(whole.shape);
  } else if (whole.name == TensorName::dbias) {
    if (whole.shape[0] == 1 && problem.batch > 1) return std::nullopt;
    part = knife.scores(whole.shape);
  } else if (whole.name == TensorName::dsink) {
    return std::nullopt;
  } else {
    part = knife.queries(whole.shape);
  }
  Returned share = whole;
  share.shape = part.size;
  share.bits = cut(whole.bits, whole.shape, part);
  return share;
}

}  // namespace attest
