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

std::vector<Crossing> inputs_of(const Problem& p, bool backward) {
  const Layouts& l = p.layouts;
  std::vector<Crossing> inputs = {{TensorName::q, p.dtype, p.q_shape(), l.q},
                                  {TensorName::k, p.dtype, p.k_shape(), l.k},
                                  {TensorName::v, p.dtype, p.v_shape(), l.v}};
  if (p.bias_shape) inputs.push_back({TensorName::bias, p.dtype, *p.bias_shape, l.bias});
  if (p.slopes_shape) inputs.push_back({TensorName::slopes, DType::f32, *p.slopes_shape});
  if (p.sink) inputs.push_back({TensorName::sink, DType::f32, p.sink_shape()});
  if (!backward) return inputs;
  inputs.push_back({TensorName::d_o, p.dtype, p.o_shape(), l.d_o});
  if (p.d_lse) inputs.push_back({TensorName::d_lse, p.lse_dtype(), p.lse_shape()});
  return inputs;
}

std::vector<Crossing> outputs_of(const Problem& p, bool backward,
                                 const std::vector<TensorName>& statistics) {
  const Layouts& l = p.layouts;
  if (!backward) {
    std::vector<Crossing> outputs = {{TensorName::o, p.dtype, p.o_shape(), l.o}};
    for (const TensorName statistic : statistics) {  // dense (LAYOUT-1)
      outputs.push_back({statistic, p.lse_dtype(), p.lse_shape(), Layout()});
    }
    return outputs;
  }
  std::vector<Crossing> outputs = {{TensorName::dq, p.dtype, p.q_shape(), l.dq},
                                   {TensorName::dk, p.dtype, p.k_shape(), l.dk},
                                   {TensorName::dv, p.dtype, p.v_shape(), l.dv}};
  if (p.bias_shape) outputs.push_back({TensorName::dbias, p.dtype, *p.bias_shape});
  if (p.sink) outputs.push_back({TensorName::dsink, DType::f32, p.sink_shape()});
  return outputs;
}

void add_inputs(Exchange& exchange, const Problem& p, const Inputs& in, bool backward) {
  for (const Crossing& t : inputs_of(p, backward)) {
    exchange.add_input(wire_name(t.name), t.dtype, in[t.name], t.layout);
  }
  if (p.dropout.mode == Dropout::Mode::given) {
    exchange.add_input(wire_name(TensorName::keep), in.keep);
  }
}

std::size_t arena_bytes(const Problem& p) {
  // Lengths; then what the passes read and return, O and LSE as both, or two tensors in its place.
  Index elements = 4 * Exchange::roomy_span({p.batch + 1, 1, 1, 1});
  const auto returned = outputs_of(p, false, {TensorName::maximum, TensorName::sum});
  for (const auto& tensors : {inputs_of(p, true), returned, returned, outputs_of(p, true, {})}) {
    for (const Crossing& t : tensors) {
      elements += t.layout ? t.layout->span(t.shape) : Exchange::roomy_span(t.shape);
    }
  }
  std::size_t bytes = 8 * static_cast<std::size_t>(elements);  // of an element, at most
  if (p.dropout.mode != Dropout::Mode::none) {
    bytes += static_cast<std::size_t>(Exchange::roomy_keep_bytes(p.keep_shape()));
  }
  bytes += 4 * static_cast<std::size_t>(Exchange::roomy_span({p.batch, p.paging.entries(), 1, 1}));
  std::size_t tensors = 26;
  count_tables(p.mask, bytes, tensors);
  return Exchange::bytes_needed(bytes, tensors);
}

}  // namespace attest
