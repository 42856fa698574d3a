#include "harness/process/tensors.h"

#include <string>
#include <variant>

#include "harness/process/problem_tables.h"

namespace attest {
namespace {

// What tensors take, counted.
struct Room {
  std::size_t bytes = 0, tensors = 0;
  void add(Index elements, std::size_t element_bytes) {
    bytes += element_bytes * static_cast<std::size_t>(elements);
    ++tensors;
  }
};

}  // namespace

void add_problem(Exchange& exchange, const Problem& p) {
  for_each_table(p, [&](const std::string& name, const Shape& shape, const auto& numbers) {
    exchange.add_input(name, shape, numbers);
  });
}

std::vector<Crossing> inputs_of(const Problem& p, bool backward) {
  const Layouts& l = p.layouts;
  std::vector<Crossing> inputs, scales;
  const auto add = [&](TensorName tensor, TensorName scale, const Shape& shape,
                       const Layout& layout, const std::optional<Stored>& stored) {
    inputs.push_back({tensor, stored ? stored->dtype : p.dtype, shape, layout});
    if (stored) scales.push_back({scale, DType::f32, stored->scale_shape(shape)});
  };
  add(TensorName::q, TensorName::q_scale, p.q_shape(), l.q, p.stored.q);
  add(TensorName::k, TensorName::k_scale, p.k_shape(), l.k, p.stored.k);
  add(TensorName::v, TensorName::v_scale, p.v_shape(), l.v, p.stored.v);
  inputs.insert(inputs.end(), scales.begin(), scales.end());
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

Values stored_values(const Problem& p, const Inputs& in, TensorName tensor) {
  switch (tensor) {
    case TensorName::q:
      return p.stored.q ? unscaled(in.q, in.q_scale) : in.q;
    case TensorName::k:
      return p.stored.k ? unscaled(in.k, in.k_scale) : in.k;
    case TensorName::v:
      return p.stored.v ? unscaled(in.v, in.v_scale) : in.v;
    default:
      return in[tensor];
  }
}

void add_inputs(Exchange& exchange, const Problem& p, const Inputs& in, bool backward) {
  for (const Crossing& t : inputs_of(p, backward)) {
    if (p.stored.any()) {
      exchange.add_input(wire_name(t.name), t.dtype, stored_values(p, in, t.name), t.layout);
    } else {
      exchange.add_input(wire_name(t.name), t.dtype, in[t.name], t.layout);
    }
  }
  if (p.dropout.mode == Dropout::Mode::given) {
    exchange.add_input(wire_name(TensorName::keep), in.keep);
  }
}

std::size_t arena_bytes(const Problem& p) {
  constexpr std::size_t kWidest = 8;  // bytes of an element, at most
  Room room;
  const Index lengths = Exchange::roomy_span({p.batch + 1, 1, 1, 1});
  room.add(lengths, kWidest);  // of queries
  room.add(lengths, kWidest);  // of keys
  room.add(Exchange::roomy_span({p.batch, p.paging.entries(), 1, 1}), 4);
  for (const MaskTable& table : tables_of(p.mask)) {
    std::visit(
        [&](const auto* elements) {
          room.add(Exchange::roomy_span(table.shape), sizeof(elements->front()));
        },
        table.elements);
  }
  if (p.dropout.mode != Dropout::Mode::none) {
    room.add(Exchange::roomy_keep_bytes(p.keep_shape()), 1);
  }
  // What the passes read and return, O and LSE as both, or two tensors in its place.
  const auto returned = outputs_of(p, false, {TensorName::maximum, TensorName::sum});
  for (const auto& tensors : {inputs_of(p, true), returned, returned, outputs_of(p, true, {})}) {
    for (const Crossing& t : tensors) {
      room.add(t.layout ? t.layout->span(t.shape) : Exchange::roomy_span(t.shape), kWidest);
    }
  }
  return Exchange::bytes_needed(room.bytes, room.tensors);
}

}  // namespace attest
