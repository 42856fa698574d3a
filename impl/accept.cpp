#include "impl/accept.h"

#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <limits>

#include "impl/sequence.h"
#include "spec/plugin_dtype.h"

namespace attest::impl {
namespace {

// Up to where each struct went when version 1 of the ABI was published.
constexpr std::size_t kProblemSize = offsetof(attest_problem, dropout_offset) + 8;
constexpr std::size_t kMaskSize = offsetof(attest_mask, table2) + sizeof(attest_tensor);
constexpr std::size_t kInputsSize = offsetof(attest_inputs, d_lse) + sizeof(attest_tensor);
constexpr std::size_t kOutputsSize = offsetof(attest_outputs, dsink) + sizeof(attest_tensor);

std::vector<attest_mask> read_mask(const attest_problem& problem) {
  std::vector<attest_mask> nodes;
  const auto* bytes = reinterpret_cast<const char*>(problem.mask);
  for (std::int64_t n = 0; n < problem.mask_count; ++n) {
    nodes.push_back(read(reinterpret_cast<const attest_mask*>(bytes), kMaskSize, "attest_mask"));
    bytes += problem.mask->struct_size;
  }
  return nodes;
}

// ---- Tensors -----------------------------------------------------------------------------------

bool given(const attest_tensor& tensor) { return tensor.data || tensor.dtype != 0; }

using Shape = std::array<std::int64_t, 4>;

struct Expected {
  const char* name;
  attest_dtype dtype;
  Shape shape;
};

// Throws if a tensor is not what it must be; whether it must be there is the caller's question.
void check(const attest_tensor& tensor, const Expected& expected) {
  if (tensor.dtype != expected.dtype) {
    throw std::runtime_error(
        fmt::format("{} has dtype {} instead of {}", expected.name, tensor.dtype, expected.dtype));
  }
  const Shape& shape = expected.shape;
  if (!std::equal(shape.begin(), shape.end(), tensor.shape)) {
    throw std::runtime_error(fmt::format(
        "{} has the shape [{},{},{},{}] instead of [{},{},{},{}]", expected.name, tensor.shape[0],
        tensor.shape[1], tensor.shape[2], tensor.shape[3], shape[0], shape[1], shape[2], shape[3]));
  }
  if (std::count(shape.begin(), shape.end(), 0) > 0) return;
  if (!tensor.data) throw std::runtime_error(fmt::format("{} is missing", expected.name));
  std::uint64_t last = 0;  // the farthest element; strides may not count backwards
  bool overflows = false;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (shape[axis] == 1) continue;
    if (tensor.stride[axis] < 0) {
      throw std::runtime_error(fmt::format("{} has a negative stride", expected.name));
    }
    std::uint64_t far = 0;
    overflows = overflows ||
                __builtin_mul_overflow(static_cast<std::uint64_t>(shape[axis] - 1),
                                       static_cast<std::uint64_t>(tensor.stride[axis]), &far) ||
                __builtin_add_overflow(last, far, &last);
  }
  const std::uint64_t bits = bits_of(expected.dtype), bytes = tensor.capacity_bytes;
  if (overflows || last >= bytes / bits * 8 + bytes % bits * 8 / bits) {
    throw std::runtime_error(fmt::format("{} reaches beyond its capacity of {} bytes",
                                         expected.name, tensor.capacity_bytes));
  }
}

// As check(), for a tensor whose first `axes` axes may have the size 1 instead.
void check_broadcast(const attest_tensor& tensor, Expected expected, std::size_t axes) {
  for (std::size_t axis = 0; axis < axes; ++axis) {
    if (tensor.shape[axis] == 1) expected.shape[axis] = 1;
  }
  check(tensor, expected);
}

// ---- Which problems the kernels can run --------------------------------------------------------

// Null of a format that no kernel takes.
const char* name_of(attest_dtype dtype) {
  switch (dtype) {
    case ATTEST_F64:
      return "f64";
    case ATTEST_F32:
      return "f32";
    case ATTEST_F16:
      return "f16";
    case ATTEST_BF16:
      return "bf16";
    default:
      return nullptr;
  }
}

struct Refusal {
  const char* reason;
  bool (*applies)(const attest_problem& problem);
};

// What Q, K or V is stored in, of a problem that may be older than that.
attest_dtype or_that(attest_dtype stored, const attest_problem& p) {
  return stored == 0 ? p.dtype : stored;
}

// What is ill formed; of tables and lengths, more below.
constexpr Refusal kRefusals[] = {
    {"no kernel takes that dtype", [](const attest_problem& p) { return !name_of(p.dtype); }},
    {"a size is negative",
     [](const attest_problem& p) {
       return std::min({p.batch, p.query_heads, p.key_heads, p.query_len, p.key_len, p.head_dim,
                        p.value_dim, p.mask_count, p.page_size}) < 0;
     }},
    {"the key heads do not divide the query heads",
     [](const attest_problem& p) {
       return p.key_heads == 0 ? p.query_heads != 0 : p.query_heads % p.key_heads != 0;
     }},
    {"the scale is not finite", [](const attest_problem& p) { return !std::isfinite(p.scale); }},
    {"the softcap is negative or not finite",
     [](const attest_problem& p) { return !(p.softcap >= 0 && std::isfinite(p.softcap)); }},
    {"this mode of dropout is not known",
     [](const attest_problem& p) {
       return p.dropout < ATTEST_DROPOUT_NONE || p.dropout > ATTEST_DROPOUT_GENERATED;
     }},
    {"the probability of dropout is not within 0 <= p < 1",
     [](const attest_problem& p) {
       return p.dropout != ATTEST_DROPOUT_NONE &&
              !(p.dropout_probability >= 0 && p.dropout_probability < 1);
     }},
    {"dLSE is given without a backward pass",
     [](const attest_problem& p) { return p.has_dlse && !p.backward; }},
    {"packed queries come with packed or paged keys, and packed keys with packed queries",
     [](const attest_problem& p) {
       const bool packed_or_paged = given(p.cu_key_lens) || p.page_size > 0;
       return given(p.cu_query_lens) ? !packed_or_paged : given(p.cu_key_lens);
     }},
    {"packed sequences have lengths besides",
     [](const attest_problem& p) {
       return (given(p.cu_query_lens) && given(p.query_lens)) ||
              (given(p.cu_key_lens) && given(p.key_lens));
     }},
    {"paged keys are packed too",
     [](const attest_problem& p) { return p.page_size > 0 && given(p.cu_key_lens); }},
    {"paged keys need key lengths and a page table, and a page table needs a page size",
     [](const attest_problem& p) {
       return p.page_size > 0 ? p.batch > 0 && (!given(p.key_lens) || !given(p.page_table))
                              : given(p.page_table);
     }},
    {"paged keys have no backward pass",
     [](const attest_problem& p) { return p.page_size > 0 && p.backward; }},
    {"Q, K or V is stored in what is neither the dtype nor one of 8 bits",
     [](const attest_problem& p) {
       for (const attest_dtype stored : {p.q_dtype, p.k_dtype, p.v_dtype}) {
         if (stored != p.dtype && !is_stored(stored)) return true;
       }
       return false;
     }},
    {"what is stored in 8 bits has no backward pass, nor one in f64",
     [](const attest_problem& p) {
       return has_stored(p) && (p.backward || p.dtype == ATTEST_F64);
     }},
    {"the mask is missing", [](const attest_problem& p) { return p.mask_count > 0 && !p.mask; }},
};

const char* refusal(const attest_mask& node, std::int64_t index) {
  const auto is_child = [index](std::int64_t child) { return child >= 0 && child < index; };
  // Far beyond any position, so that no sum with one overflows.
  constexpr std::int64_t kFarthest = std::int64_t{1} << 40;
  const bool far = node.offset > kFarthest || node.offset < -kFarthest;
  switch (node.kind) {
    case ATTEST_MASK_FULL:
    case ATTEST_MASK_DENSE:
    case ATTEST_MASK_PREFIX:
    case ATTEST_MASK_SEGMENTS:
      return nullptr;
    case ATTEST_MASK_BAND:
      if (far) return "a band's offset is beyond 2^40";
      return node.left < 0 || node.right < 0 ? "a band's width is negative" : nullptr;
    case ATTEST_MASK_BLOCK_SPARSE:
      return node.block_query < 1 || node.block_key < 1 ? "a mask's blocks have no size" : nullptr;
    case ATTEST_MASK_DILATED:
      if (far) return "a dilation's offset is beyond 2^40";
      return node.dilation < 1 ? "a dilation is less than 1" : nullptr;
    case ATTEST_MASK_ALL_OF:
    case ATTEST_MASK_ANY_OF:
      return is_child(node.first) && is_child(node.second)
                 ? nullptr
                 : "a mask's children do not stand before their parent";
    default:
      return "this kind of mask is not known";
  }
}

void check_tables(const Call& call) {
  const attest_problem& p = call.problem;
  const auto blocks = [](std::int64_t size, std::int64_t block) {
    return size / block + (size % block != 0);
  };
  for (const attest_mask& node : call.mask) {
    switch (node.kind) {
      case ATTEST_MASK_DENSE:
        check_broadcast(
            node.table,
            {"the mask's table", ATTEST_U8, {p.batch, p.query_heads, p.query_len, p.key_len}}, 4);
        break;
      case ATTEST_MASK_PREFIX:
        check_broadcast(node.table, {"the prefix", ATTEST_I64, {p.batch, 1, 1, 1}}, 1);
        break;
      case ATTEST_MASK_SEGMENTS:
        check_broadcast(node.table, {"query segments", ATTEST_I32, {p.batch, 1, p.query_len, 1}},
                        1);
        check_broadcast(node.table2, {"key segments", ATTEST_I32, {p.batch, 1, p.key_len, 1}}, 1);
        break;
      case ATTEST_MASK_BLOCK_SPARSE:
        check_broadcast(node.table,
                        {"the blocks' table",
                         ATTEST_U8,
                         {p.batch, p.query_heads, blocks(p.query_len, node.block_query),
                          blocks(p.key_len, node.block_key)}},
                        2);
        break;
      default:
        break;
    }
  }
}

std::int64_t integer_of(const attest_tensor& tensor, std::int64_t index) {
  return static_cast<const std::int64_t*>(tensor.data)[index * UsedStrides(tensor).axes[0]];
}

// Where packed sequences begin, and at last where the last one ends.
std::vector<std::int64_t> read_starts(const attest_tensor& tensor, const char* name,
                                      std::int64_t batch) {
  if (!given(tensor)) return {};
  check(tensor, {name, ATTEST_I64, {batch + 1, 1, 1, 1}});
  std::vector<std::int64_t> starts;
  for (std::int64_t b = 0; b <= batch; ++b) {
    starts.push_back(integer_of(tensor, b));
    if (starts.back() < (b == 0 ? 0 : starts[starts.size() - 2]) || starts.front() != 0) {
      throw std::runtime_error(fmt::format("{} does not ascend from 0", name));
    }
  }
  return starts;
}

// The lengths of all batch elements, from one of two optional tensors; `whole` is the largest.
std::vector<std::int64_t> read_lengths(const attest_tensor& tensor, const char* name,
                                       const std::vector<std::int64_t>& starts, std::int64_t batch,
                                       std::int64_t whole) {
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(batch), whole);
  if (given(tensor)) check(tensor, {name, ATTEST_I64, {batch, 1, 1, 1}});
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    if (given(tensor)) lengths[b] = integer_of(tensor, static_cast<std::int64_t>(b));
    if (!starts.empty()) lengths[b] = starts[b + 1] - starts[b];
    if (lengths[b] < 0 || lengths[b] > whole) {
      throw std::runtime_error(
          fmt::format("{}: the length {} is not within 0..{}", name, lengths[b], whole));
    }
  }
  return lengths;
}

// Every page that is used has an entry; `pages` is how many there are, as far as it is known.
void check_page_table(const Call& call, std::int64_t pages) {
  const attest_problem& p = call.problem;
  if (p.page_size == 0) return;
  const std::int64_t entries = p.page_table.shape[1];
  check(p.page_table, {"page_table", ATTEST_I32, {p.batch, entries, 1, 1}});
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const std::int64_t keys = call.lengths_of(b).key;
    const std::int64_t used = keys / p.page_size + (keys % p.page_size != 0);
    for (std::int64_t n = 0; n < used; ++n) {
      const std::int64_t page = n < entries ? page_of(call, b, n) : -1;
      if (page < 0 || page >= pages) {
        throw std::runtime_error(
            fmt::format("page_table: batch element {} has no page for entry {}", b, n));
      }
    }
  }
}

void check_dtype(const KernelCode& code, attest_dtype dtype) {
  const char* const name = name_of(dtype);
  if (std::count(code.dtypes.begin(), code.dtypes.end(), name) == 0) {
    throw std::runtime_error(fmt::format("the dtype is {}, and this kernel has only {}", name,
                                         fmt::join(code.dtypes, ", ")));
  }
}

// ---- Checking a call ---------------------------------------------------------------------------

void check_keep(const attest_tensor& keep, const attest_problem& p) {
  check(keep, {"keep", ATTEST_BITS, {p.batch, p.query_heads, p.query_len, p.key_len}});
  for (int axis = 0; axis < 3; ++axis) {
    if (keep.shape[axis] > 1 && keep.stride[axis] % 8 != 0) {
      throw std::runtime_error("a row of keep does not begin with a byte");
    }
  }
  if (p.key_len > 1 && keep.stride[3] != 1) {
    throw std::runtime_error("the bits of keep do not lie side by side");
  }
}

// Whether each tensor of the call is there and as it must be.
void check_tensors(const Call& call, bool backward) {
  const attest_problem& p = call.problem;
  const attest_inputs& in = call.inputs;
  const attest_outputs& out = call.outputs;
  const attest_dtype wide = p.dtype == ATTEST_F64 ? ATTEST_F64 : ATTEST_F32;
  // Packed, the batch is one long sequence; paged, its elements are the pages.
  Shape queries = {p.batch, p.query_heads, p.query_len, 0};
  Shape keys = {p.batch, p.key_heads, p.key_len, 0};
  if (!call.query_starts.empty()) queries[0] = 1, queries[2] = call.query_starts.back();
  if (!call.key_starts.empty()) keys[0] = 1, keys[2] = call.key_starts.back();
  if (p.page_size > 0) keys[0] = in.k.shape[0], keys[2] = p.page_size;
  const auto with_channels = [](Shape shape, std::int64_t channels) {
    shape[3] = channels;
    return shape;
  };
  const Shape q = with_channels(queries, p.head_dim), o = with_channels(queries, p.value_dim);
  const Shape k = with_channels(keys, p.head_dim), v = with_channels(keys, p.value_dim);
  const Shape lse = with_channels(queries, 1);
  const Shape scores = {p.batch, p.query_heads, p.query_len, p.key_len};
  const Shape heads = {1, p.query_heads, 1, 1};

  check(in.q, {"q", p.q_dtype, q});
  check(in.k, {"k", p.k_dtype, k});
  check(in.v, {"v", p.v_dtype, v});
  const auto check_scales = [&](const char* name, const attest_tensor& scales, attest_dtype dtype,
                                const Shape& shape) {
    if (!is_stored(dtype)) return;
    const std::int64_t block = block_of(dtype);
    check_broadcast(scales,
                    {name, ATTEST_F32, with_channels(shape, (shape[3] + block - 1) / block)}, 4);
  };
  check_scales("q_scale", in.q_scale, p.q_dtype, q);
  check_scales("k_scale", in.k_scale, p.k_dtype, k);
  check_scales("v_scale", in.v_scale, p.v_dtype, v);
  check_page_table(call, in.k.shape[0]);
  if (p.has_bias) check_broadcast(in.bias, {"bias", p.dtype, scores}, 4);
  if (p.has_alibi) {
    check_broadcast(in.alibi_slopes, {"alibi_slopes", ATTEST_F32, {p.batch, p.query_heads, 1, 1}},
                    1);
  }
  if (p.has_sink) check(in.sink, {"sink", ATTEST_F32, heads});
  if (p.dropout == ATTEST_DROPOUT_GIVEN) check_keep(in.keep, p);
  if (!backward) {
    check(out.o, {"o", p.dtype, o});
    check(out.lse, {"lse", wide, lse});
    if (p.dropout == ATTEST_DROPOUT_GENERATED) check_keep(out.keep, p);
    return;
  }
  check(in.o, {"o", p.dtype, o});
  check(in.d_o, {"d_o", p.dtype, o});
  check(in.lse, {"lse", wide, lse});
  if (p.has_dlse) check(in.d_lse, {"d_lse", wide, lse});
  if (out.dq.data) check(out.dq, {"dq", p.dtype, q});
  if (out.dk.data) check(out.dk, {"dk", p.dtype, k});
  if (out.dv.data) check(out.dv, {"dv", p.dtype, v});
  if (out.dsink.data) check(out.dsink, {"dsink", ATTEST_F32, heads});
  if (out.dbias.data) {
    const std::int64_t* shape = in.bias.shape;
    check(out.dbias, {"dbias", p.dtype, {shape[0], shape[1], shape[2], shape[3]}});
  }
  if ((out.dbias.data && !p.has_bias) || (out.dsink.data && !p.has_sink)) {
    throw std::runtime_error("a gradient is asked for of what the problem does not have");
  }
}

}  // namespace

Call accept(const KernelCode& code, const attest_problem* problem) {
  Call call;
  call.problem = read(problem, kProblemSize, "attest_problem");
  call.problem.q_dtype = or_that(call.problem.q_dtype, call.problem);
  call.problem.k_dtype = or_that(call.problem.k_dtype, call.problem);
  call.problem.v_dtype = or_that(call.problem.v_dtype, call.problem);
  const attest_problem& p = call.problem;
  for (const Refusal& refused : kRefusals) {
    if (refused.applies(p)) throw std::runtime_error(refused.reason);
  }
  check_dtype(code, p.dtype);
  if (has_stored(p) && !code.takes_stored) {
    throw std::runtime_error("this kernel takes nothing that is stored in 8 bits");
  }
  const auto pairs = static_cast<double>(p.query_len) * static_cast<double>(p.key_len);
  if (code.longest && pairs > static_cast<double>(*code.longest) * double(*code.longest)) {
    throw std::runtime_error(
        fmt::format("more pairs, which would be kept, than of {0} x {0}", *code.longest));
  }
  call.mask = read_mask(p);
  for (std::size_t n = 0; n < call.mask.size(); ++n) {
    const char* reason = refusal(call.mask[n], static_cast<std::int64_t>(n));
    if (reason) throw std::runtime_error(reason);
  }
  check_tables(call);
  call.query_starts = read_starts(p.cu_query_lens, "cu_query_lens", p.batch);
  call.key_starts = read_starts(p.cu_key_lens, "cu_key_lens", p.batch);
  const auto queries =
      read_lengths(p.query_lens, "query_lens", call.query_starts, p.batch, p.query_len);
  const auto keys = read_lengths(p.key_lens, "key_lens", call.key_starts, p.batch, p.key_len);
  for (std::size_t b = 0; b < queries.size(); ++b) {
    call.lengths.push_back({queries[b], keys[b]});
  }
  check_page_table(call, std::numeric_limits<std::int64_t>::max());
  return call;
}

void accept_tensors(const attest_inputs* inputs, const attest_outputs* outputs, bool backward,
                    Call& call) {
  call.inputs = read(inputs, kInputsSize, "attest_inputs");
  call.outputs = read(outputs, kOutputsSize, "attest_outputs");
  check_tensors(call, backward);
}

}  // namespace attest::impl
