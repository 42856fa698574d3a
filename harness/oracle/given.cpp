#include "harness/oracle/given.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "cases/stored_inputs.h"
#include "harness/oracle/given_mask.h"
#include "harness/oracle/strided.h"
#include "spec/contains.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

// Up to where each struct went when version 1 of the ABI was published.
constexpr std::size_t kProblemBytes = offsetof(attest_problem, dropout_offset) + 8;
constexpr std::size_t kInputsBytes = offsetof(attest_inputs, d_lse) + sizeof(attest_tensor);
constexpr std::size_t kOutputsBytes = offsetof(attest_outputs, dsink) + sizeof(attest_tensor);

[[noreturn]] void wrong(const std::string& where, const std::string& what) {
  throw InputError(where, what);
}

void throw_if_defect(const Problem& problem) {
  if (const auto defect = defect_of(problem)) {
    wrong("problem", fmt::format("{}: {}", defect->clause, defect->what));
  }
}

void read_sizes(const attest_problem& given, Problem& p) {
  constexpr Index kMost = Index(1) << 40;
  const auto size = [&](const char* name, std::int64_t value) {
    if (value < 0 || value > kMost) {
      wrong(fmt::format("problem.{}", name), fmt::format("is {}, expected 0 to 2^40", value));
    }
    return value;
  };
  const auto dtype = dtype_numbered(given.dtype);
  if (!dtype) {
    std::vector<std::string> judged;
    for (const DType each : kDTypes) {
      judged.push_back(fmt::format("{} ({})", name(each), static_cast<int>(each)));
    }
    wrong("problem.dtype",
          fmt::format("is {}; judged are {}", given.dtype, fmt::join(judged, ", ")));
  }
  p.dtype = *dtype;
  p.batch = size("batch", given.batch);
  p.query_heads = size("query_heads", given.query_heads);
  p.key_heads = size("key_heads", given.key_heads);
  p.query_len = size("query_len", given.query_len);
  p.key_len = size("key_len", given.key_len);
  p.head_dim = size("head_dim", given.head_dim);
  p.value_dim = size("value_dim", given.value_dim);
  p.paging.page_size = size("page_size", given.page_size);
}

// A length for each batch element, of lengths or of where sequences begin; empty if neither is
// there.
std::vector<Index> lengths_of(const attest_tensor& lens, const attest_tensor& starts,
                              const std::string& name, Index batch) {
  const std::string lens_name = fmt::format("problem.{}_lens", name);
  const std::string starts_name = fmt::format("problem.cu_{}_lens", name);
  if (!is_given(starts)) {
    if (!is_given(lens)) return {};
    return read_integers(lens, {lens_name, ATTEST_I64, {batch, 1, 1, 1}});
  }
  if (is_given(lens)) wrong(starts_name, fmt::format("and {} are both given", lens_name));
  const auto at = read_integers(starts, {starts_name, ATTEST_I64, {batch + 1, 1, 1, 1}});
  std::vector<Index> lengths;
  for (std::size_t b = 0; b + 1 < at.size(); ++b) {
    if (at[0] != 0 || at[b + 1] < at[b] || at[b + 1] >> 40 != 0) {
      wrong(starts_name, fmt::format("does not ascend from 0: [{}] is {}, [{}] is {}", b, at[b],
                                     b + 1, at[b + 1]));
    }
    lengths.push_back(at[b + 1] - at[b]);
  }
  return lengths;
}

void read_lengths(const attest_problem& given, Problem& p) {
  p.packed = is_given(given.cu_query_lens);
  const bool paged = p.paging.page_size > 0;
  if (is_given(given.cu_key_lens) && (paged || !p.packed)) {
    wrong("problem.cu_key_lens", paged ? "and pages are both given" : "without cu_query_lens");
  }
  if (p.packed && !paged && !is_given(given.cu_key_lens)) {
    wrong("problem.cu_query_lens", "without cu_key_lens, or pages");
  }
  p.query_lens = lengths_of(given.query_lens, given.cu_query_lens, "query", p.batch);
  p.key_lens = lengths_of(given.key_lens, given.cu_key_lens, "key", p.batch);
}

void read_pages(const attest_problem& given, const attest_tensor& k, Problem& p) {
  if (p.paging.page_size == 0) {
    if (is_given(given.page_table)) wrong("problem.page_table", "without a page_size");
    return;
  }
  if (!is_given(given.page_table)) wrong("problem.page_table", "is missing");
  p.paging.pages = k.shape[kBatch];
  const Index entries = given.page_table.shape[1];
  const auto table =
      read_integers(given.page_table, {"problem.page_table", ATTEST_I32, {p.batch, entries, 1, 1}});
  for (Index b = 0; b < p.batch; ++b) {
    const auto begin = table.begin() + b * entries;
    p.paging.table.emplace_back(begin, begin + entries);
    // What lies beyond a row's keys is no page, whatever number stands there.
    const std::size_t at = static_cast<std::size_t>(b);
    if (at >= p.key_lens.size() || p.key_lens[at] < 0) continue;
    const Index whole = p.key_lens[at] / p.paging.page_size;
    const Index used = whole + (p.key_lens[at] % p.paging.page_size > 0);
    if (used < entries) p.paging.table.back().resize(static_cast<std::size_t>(used));
  }
}

void read_scores(const attest_problem& given, const attest_inputs& in, Problem& p) {
  p.scale = given.scale;
  p.softcap = given.softcap;
  p.sink = given.has_sink;
  p.backward = given.backward;
  p.d_lse = given.has_dlse;
  if (given.dropout < ATTEST_DROPOUT_NONE || given.dropout > ATTEST_DROPOUT_GENERATED) {
    wrong("problem.dropout", fmt::format("is {}, which is no mode", given.dropout));
  }
  if (given.dropout != ATTEST_DROPOUT_NONE) {
    p.dropout = {.mode = Dropout::Mode::given, .probability = given.dropout_probability};
  }
  if (given.has_bias) p.bias_shape = broadcast_shape(in.bias, p.keep_shape(), "inputs.bias");
  if (given.has_alibi) {
    p.slopes_shape =
        broadcast_shape(in.alibi_slopes, {p.batch, p.query_heads, 1, 1}, "inputs.alibi_slopes");
  }
}

// Of a tensor that has more than one scale a row.
Stored in_blocks(DType dtype, const attest_tensor& tensor, const attest_tensor& scales,
                 const std::string& name) {
  const Stored stored = Stored::in_blocks(dtype);
  Shape whole, found;
  std::copy_n(tensor.shape, whole.size(), whole.begin());
  std::copy_n(scales.shape, found.size(), found.begin());
  if (found != stored.scale_shape(whole)) {
    wrong(name + "_scale", fmt::format("has shape [{}], where blocks of {} channels have [{}]",
                                       fmt::join(found, ", "), stored.block(),
                                       fmt::join(stored.scale_shape(whole), ", ")));
  }
  return stored;
}

// Rows of one block have one scale, as those have that are in no blocks: others tell which it is.
void read_single_blocks(const attest_inputs& in, StoredInputs& stored) {
  const auto all = {std::tuple{&stored.q, &in.q, &in.q_scale},
                    std::tuple{&stored.k, &in.k, &in.k_scale},
                    std::tuple{&stored.v, &in.v, &in.v_scale}};
  const auto is_in_blocks = [](const auto& of) {
    const auto& how = *std::get<0>(of);
    return how && how->by_channels;
  };
  if (std::none_of(all.begin(), all.end(), is_in_blocks)) return;
  for (const auto& [how, tensor, scales] : all) {
    if (*how && tensor->shape[kChannel] <= (*how)->block()) {
      *how = in_blocks((*how)->dtype, *tensor, *scales, "inputs");
    }
  }
}

// How a tensor is stored, by itself and by its scales.
std::optional<Stored> stored_of(const attest_tensor& tensor, const attest_tensor& scales,
                                const std::string& name) {
  const auto dtype = static_cast<DType>(tensor.dtype);
  if (std::find(kStoredDTypes.begin(), kStoredDTypes.end(), dtype) == kStoredDTypes.end()) {
    if (is_given(scales)) wrong(name + "_scale", "is given, but " + name + " is not of 8 bits");
    return std::nullopt;
  }
  if (!is_given(scales)) wrong(name + "_scale", "is missing");
  const auto has_own = [&](Axis axis) {
    return scales.shape[axis] != 1 && scales.shape[axis] == tensor.shape[axis];
  };
  if (scales.shape[kChannel] != 1) return in_blocks(dtype, tensor, scales, name);
  return Stored{.dtype = dtype,
                .by_batch = has_own(kBatch),
                .by_head = has_own(kHead),
                .by_position = has_own(kPosition)};
}

Problem problem_of(const attest_problem& given, const attest_inputs& in) {
  Problem p;
  read_sizes(given, p);
  read_lengths(given, p);
  read_pages(given, in.k, p);
  read_scores(given, in, p);
  p.stored = {.q = stored_of(in.q, in.q_scale, "inputs.q"),
              .k = stored_of(in.k, in.k_scale, "inputs.k"),
              .v = stored_of(in.v, in.v_scale, "inputs.v")};
  read_single_blocks(in, p.stored);
  throw_if_defect(p);  // before a table is read whose size follows from it
  p.mask = given_mask(given, p);
  throw_if_defect(p);
  return p;
}

// Of what no kernel can take otherwise: biases of NaN or +inf, slopes and sinks that are not
// finite.
void check_numbers(const Values& values, const std::string& where, bool may_hide) {
  for (std::size_t i = 0; i < values.data.size(); ++i) {
    const double value = values.data[i];
    if (std::isfinite(value) || (may_hide && value < 0)) continue;
    const auto at = coordinates(values.shape, static_cast<Index>(i));
    wrong(where, fmt::format("[{},{},{},{}] is {}, expected a finite number{}", at[0], at[1], at[2],
                             at[3], value, may_hide ? " or -inf" : ""));
  }
}

// Q, K or V as it is meant, and its scales.
void read_operand(const attest_tensor& tensor, const attest_tensor& scale_tensor,
                  const std::string& name, const Problem& p, const std::optional<Stored>& stored,
                  const Shape& shape, Values& values, Values& scales) {
  const auto dtype = static_cast<attest_dtype>(stored ? stored->dtype : p.dtype);
  values = read_values(tensor, {name, dtype, shape});
  if (!stored) return;
  const std::string where = name + "_scale";
  const bool in_bfp8 = stored->by_channels && stored->dtype == DType::int8;
  if (in_bfp8 && contains(values.data, -128.0)) {
    wrong(name, "has -128, which is no number of bfp8 (FORMAT-6)");
  }
  scales = read_values(scale_tensor, {where, ATTEST_F32, stored->scale_shape(shape)});
  const auto used = scales_in_use(p, shape, scales.shape, name != "inputs.q");
  for (std::size_t n = 0; n < used.size(); ++n) {
    const double scale = scales.data[n];
    int exponent = 0;
    const bool fits = !stored->by_channels || std::frexp(scale, &exponent) == 0.5;
    if (!used[n] || (fits && scale >= kLeastScale && scale <= kMostScale)) continue;
    wrong(where, fmt::format("has {}, expected {} from 2^-20 to 2^15", scale,
                             stored->by_channels ? "powers of two" : "numbers"));
  }
  values = scaled(values, scales);
}

Inputs inputs_of(const Problem& p, const attest_problem& given, const attest_inputs& in,
                 const attest_outputs& out) {
  const auto dtype = static_cast<attest_dtype>(p.dtype);
  const auto wide = static_cast<attest_dtype>(p.lse_dtype());
  Inputs inputs;
  const StoredInputs& stored = p.stored;
  read_operand(in.q, in.q_scale, "inputs.q", p, stored.q, p.q_shape(), inputs.q, inputs.q_scale);
  read_operand(in.k, in.k_scale, "inputs.k", p, stored.k, p.k_shape(), inputs.k, inputs.k_scale);
  read_operand(in.v, in.v_scale, "inputs.v", p, stored.v, p.v_shape(), inputs.v, inputs.v_scale);
  if (p.bias_shape) {
    inputs.bias = read_values(in.bias, {"inputs.bias", dtype, *p.bias_shape});
    check_numbers(inputs.bias, "inputs.bias", true);
  }
  if (p.slopes_shape) {
    inputs.slopes =
        read_values(in.alibi_slopes, {"inputs.alibi_slopes", ATTEST_F32, *p.slopes_shape});
    check_numbers(inputs.slopes, "inputs.alibi_slopes", false);
  }
  if (p.sink) {
    inputs.sink = read_values(in.sink, {"inputs.sink", ATTEST_F32, p.sink_shape()});
    check_numbers(inputs.sink, "inputs.sink", false);
  }
  if (given.dropout == ATTEST_DROPOUT_GIVEN) {
    inputs.keep = read_keep(in.keep, {"inputs.keep", ATTEST_BITS, p.keep_shape()});
  } else if (given.dropout == ATTEST_DROPOUT_GENERATED) {
    inputs.keep = read_keep(out.keep, {"outputs.keep", ATTEST_BITS, p.keep_shape()});
  }
  if (p.backward) {
    inputs.d_o = read_values(in.d_o, {"inputs.d_o", dtype, p.o_shape()});
    if (p.d_lse) inputs.d_lse = read_values(in.d_lse, {"inputs.d_lse", wide, p.lse_shape()});
  }
  return inputs;
}

std::vector<Returned> returned_of(const Problem& p, const attest_outputs& out) {
  struct Output {
    TensorName name;
    const attest_tensor& tensor;
    DType dtype;
    Shape shape;
    bool exists;
  };
  using enum TensorName;
  const Output all[] = {
      {o, out.o, p.dtype, p.o_shape(), true},
      {lse, out.lse, p.lse_dtype(), p.lse_shape(), true},
      {dq, out.dq, p.dtype, p.q_shape(), p.backward},
      {dk, out.dk, p.dtype, p.k_shape(), p.backward},
      {dv, out.dv, p.dtype, p.v_shape(), p.backward},
      {dbias, out.dbias, p.dtype, p.bias_shape.value_or(Shape{}), p.backward && p.bias_shape},
      {dsink, out.dsink, DType::f32, p.sink_shape(), p.backward && p.sink}};
  std::vector<Returned> returned;
  for (const Output& each : all) {
    if (!is_given(each.tensor)) continue;
    const std::string where = "outputs." + wire_name(each.name);
    if (!each.exists) {
      wrong(where, p.backward ? "is given, but the problem has nothing that it is the gradient of"
                              : "is given, but problem.backward is 0");
    }
    const auto dtype = static_cast<attest_dtype>(each.dtype);
    returned.push_back({.name = each.name,
                        .dtype = each.dtype,
                        .shape = each.shape,
                        .bits = read_bits(each.tensor, {where, dtype, each.shape}),
                        .poison = 0});
  }
  if (is_given(out.maximum) || is_given(out.sum)) {
    wrong("outputs.maximum", "maximum and sum in place of LSE are not judged here");
  }
  if (returned.empty()) wrong("outputs", "hold nothing that could be judged");
  return returned;
}

}  // namespace

Given read_given(const attest_problem* problem, const attest_inputs* inputs,
                 const attest_outputs* outputs) {
  const attest_problem given = known_fields(problem, kProblemBytes, "problem");
  const attest_inputs in = known_fields(inputs, kInputsBytes, "inputs");
  const attest_outputs out = known_fields(outputs, kOutputsBytes, "outputs");
  const Problem p = problem_of(given, in);
  return {p, inputs_of(p, given, in, out), returned_of(p, out)};
}

}  // namespace attest
