#include "harness/process/tensors.h"

namespace attest {
namespace {

std::vector<Index> running_sums(const std::vector<Index>& lens) {
  std::vector<Index> sums = {0};
  for (const Index len : lens) sums.push_back(sums.back() + len);
  return sums;
}

void add_segments(Exchange& exchange, const std::string& name, const SegmentNumbers& segments) {
  exchange.add_input(name, {segments.batches, 1, segments.length, 1}, segments.number);
}

// In the order in which problem_to_json names them.
void add_tables(Exchange& exchange, const Mask& mask, int& tables) {
  const auto next_name = [&tables] { return "mask" + std::to_string(tables++); };
  if (mask.kind == Mask::Kind::dense || mask.kind == Mask::Kind::block_sparse) {
    exchange.add_input(next_name(), mask.table->shape, mask.table->allowed);
  } else if (mask.kind == Mask::Kind::prefix) {
    exchange.add_input(next_name(), mask.prefix_lens);
  } else if (mask.kind == Mask::Kind::segments) {
    add_segments(exchange, next_name(), mask.segments->query);
    add_segments(exchange, next_name(), mask.segments->key);
  }
  for (const Mask& part : mask.parts) add_tables(exchange, part, tables);
}

void add_page_table(Exchange& exchange, const Problem& p) {
  const Index entries = p.paging.entries();
  std::vector<std::int32_t> table;
  for (std::vector<Index> row : p.paging.table) {
    row.resize(static_cast<std::size_t>(entries), -1);
    for (const Index page : row) table.push_back(static_cast<std::int32_t>(page));
  }
  exchange.add_input("page_table", {p.batch, entries, 1, 1}, table);
}

// Bytes of the tables of a mask, and how many tables there are.
void count_tables(const Mask& mask, std::size_t& bytes, std::size_t& tables) {
  const auto add = [&](std::size_t element, const Shape& shape) {
    bytes += element * static_cast<std::size_t>(Exchange::roomy_span(shape));
    ++tables;
  };
  if (mask.table) add(1, mask.table->shape);
  if (!mask.prefix_lens.empty()) add(8, {static_cast<Index>(mask.prefix_lens.size()), 1, 1, 1});
  if (mask.segments) {
    for (const SegmentNumbers* numbers : {&mask.segments->query, &mask.segments->key}) {
      add(4, {numbers->batches, 1, numbers->length, 1});
    }
  }
  for (const Mask& part : mask.parts) count_tables(part, bytes, tables);
}

}  // namespace

void add_problem(Exchange& exchange, const Problem& p) {
  const bool paged = p.paging.page_size > 0;
  if (p.packed) {
    exchange.add_input("cu_query_lens", running_sums(p.query_lens));
    if (!paged) exchange.add_input("cu_key_lens", running_sums(p.key_lens));
  } else if (!p.query_lens.empty()) {
    exchange.add_input("query_lens", p.query_lens);
  }
  if (!p.key_lens.empty() && (paged || !p.packed)) exchange.add_input("key_lens", p.key_lens);
  if (paged) add_page_table(exchange, p);
  int tables = 0;
  add_tables(exchange, p.mask, tables);
}

void add_inputs(Exchange& exchange, const Problem& p, const Inputs& in, bool backward) {
  exchange.add_input("q", p.dtype, in.q, p.layouts.q);
  exchange.add_input("k", p.dtype, in.k, p.layouts.k);
  exchange.add_input("v", p.dtype, in.v, p.layouts.v);
  if (p.bias_shape) exchange.add_input("bias", p.dtype, in.bias, p.layouts.bias);
  if (p.slopes_shape) exchange.add_input("slopes", DType::f32, in.slopes);
  if (p.sink) exchange.add_input("sink", DType::f32, in.sink);
  if (p.dropout.mode == Dropout::Mode::given) exchange.add_input("keep", in.keep);
  if (!backward) return;
  exchange.add_input("d_o", p.dtype, in.d_o, p.layouts.d_o);
  if (p.d_lse) exchange.add_input("d_lse", p.lse_dtype(), in.d_lse);
}

std::vector<OutputTensor> outputs_of(const Problem& p, bool backward, bool with_lse) {
  if (!backward) {
    std::vector<OutputTensor> outputs = {{"O", "o", p.dtype, p.o_shape(), p.layouts.o}};
    if (with_lse) {
      outputs.push_back(
          {"LSE", "lse", p.lse_dtype(), p.lse_shape(), Layout()});  // dense (LAYOUT-1)
    }
    return outputs;
  }
  std::vector<OutputTensor> outputs = {{"dQ", "dq", p.dtype, p.q_shape(), p.layouts.dq},
                                       {"dK", "dk", p.dtype, p.k_shape(), p.layouts.dk},
                                       {"dV", "dv", p.dtype, p.v_shape(), p.layouts.dv}};
  if (p.bias_shape) outputs.push_back({"dBias", "dbias", p.dtype, *p.bias_shape});
  if (p.sink) outputs.push_back({"dSink", "dsink", DType::f32, p.sink_shape()});
  return outputs;
}

std::size_t arena_bytes(const Problem& p) {
  const Layouts& l = p.layouts;
  const Shape none = {0, 0, 0, 0};
  const Shape bias = p.bias_shape.value_or(none), slopes = p.slopes_shape.value_or(none);
  // Elements of at most 8 bytes: O and dO as inputs and outputs, LSE and dLSE likewise.
  const Index elements =
      2 * l.o.span(p.o_shape()) + l.d_o.span(p.o_shape()) + l.q.span(p.q_shape()) +
      l.k.span(p.k_shape()) + l.v.span(p.v_shape()) + l.dq.span(p.q_shape()) +
      l.dk.span(p.k_shape()) + l.dv.span(p.v_shape()) + 3 * Exchange::roomy_span(p.lse_shape()) +
      l.bias.span(bias) + Exchange::roomy_span(bias) + Exchange::roomy_span(slopes) +
      2 * Exchange::roomy_span(p.sink_shape()) + 4 * Exchange::roomy_span({p.batch + 1, 1, 1, 1});
  std::size_t bytes = 8 * static_cast<std::size_t>(elements);
  if (p.dropout.mode != Dropout::Mode::none) {
    bytes += static_cast<std::size_t>(Exchange::roomy_keep_bytes(p.keep_shape()));
  }
  bytes += 4 * static_cast<std::size_t>(Exchange::roomy_span({p.batch, p.paging.entries(), 1, 1}));
  std::size_t tensors = 24;
  count_tables(p.mask, bytes, tensors);
  return Exchange::bytes_needed(bytes, tensors);
}

}  // namespace attest
