// A host in small: loads a plug-in as any host does, lays tensors out in memory, calls the kernel,
// and reads the results back as doubles in dense order.
//
// All memory that a kernel shall not read or need not write is NaN: slack between rows, outputs.
#pragma once

#include <dlfcn.h>

#include <bit>
#include <cstdint>
#include <deque>
#include <limits>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "spec/attest_plugin.h"
#include "spec/description.h"
#include "spec/dtype.h"
#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest {

inline const attest_plugin& load_plugin(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw std::runtime_error(dlerror());
  const auto get =
      reinterpret_cast<attest_plugin_get_function>(dlsym(library, ATTEST_PLUGIN_SYMBOL));
  if (!get) throw std::runtime_error(dlerror());
  const attest_plugin* plugin = get();
  if (!plugin || plugin->abi_version != ATTEST_ABI_VERSION) {
    throw std::runtime_error(path + " is not a plug-in of this version");
  }
  return *plugin;
}

inline const attest_kernel& load_kernel(const std::string& path, const std::string& name) {
  const attest_plugin& plugin = load_plugin(path);
  for (const attest_kernel* kernel : std::span(plugin.kernels, plugin.kernel_count)) {
    if (kernel->name == name) return *kernel;
  }
  throw std::runtime_error(path + " has no kernel " + name);
}

// A tensor and its memory.
class HostTensor {
 public:
  HostTensor(DType dtype, const Shape& shape, const Layout& layout = {})
      : dtype_(dtype), shape_(shape), strides_(layout.strides(shape)) {
    const auto bytes = static_cast<std::size_t>(layout.span(shape) * format_of(dtype).bytes);
    memory_.assign((bytes + 7) / 8, std::bit_cast<double>(~std::uint64_t{0}));
    tensor_ = {.data = memory_.data(),
               .dtype = static_cast<attest_dtype>(dtype),
               .reserved = 0,
               .shape = {shape[0], shape[1], shape[2], shape[3]},
               .stride = {strides_[0], strides_[1], strides_[2], strides_[3]},
               .capacity_bytes = bytes};
  }

  void set(const Values& values) {
    for (std::size_t i = 0; i < values.data.size(); ++i) store(dtype_, values.data[i], address(i));
  }

  std::vector<double> get() const {
    std::vector<double> values(static_cast<std::size_t>(element_count(shape_)));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = load(dtype_, address(i));
    return values;
  }

  const attest_tensor& tensor() const { return tensor_; }

 private:
  void* address(std::size_t dense) const {
    const auto at = coordinates(shape_, static_cast<Index>(dense));
    Index offset = 0;
    for (std::size_t axis = 0; axis < 4; ++axis) {
      if (shape_[axis] > 1) offset += at[axis] * strides_[axis];
    }
    return static_cast<char*>(tensor_.data) + offset * format_of(dtype_).bytes;
  }

  DType dtype_;
  Shape shape_;
  Strides strides_;
  std::vector<double> memory_;  // of doubles for its alignment
  attest_tensor tensor_;
};

// A tensor of integers or bytes, dense.
template <class T>
class HostTable {
 public:
  HostTable(attest_dtype dtype, const Shape& shape, std::vector<T> values)
      : values_(std::move(values)) {
    tensor_ = {.data = values_.data(),
               .dtype = dtype,
               .reserved = 0,
               .shape = {shape[0], shape[1], shape[2], shape[3]},
               .stride = {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1},
               .capacity_bytes = sizeof(T) * values_.size()};
  }
  HostTable(const HostTable&) = delete;
  HostTable& operator=(const HostTable&) = delete;

  const attest_tensor& tensor() const { return tensor_; }

 private:
  std::vector<T> values_;
  attest_tensor tensor_;
};

// A keep-mask: rows of whole bytes, with slack between them that holds ones.
class HostKeep {
 public:
  explicit HostKeep(const Shape& shape) : shape_(shape) {
    const Index row = (shape[3] + 7) / 8 * 8 + 16, plane = shape[2] * row + 8;
    strides_ = {shape[1] * plane + 8, plane, row, 1};
    memory_.assign(static_cast<std::size_t>(shape[0] * strides_[0] / 8), 0xff);
    tensor_ = {.data = memory_.data(),
               .dtype = ATTEST_BITS,
               .reserved = 0,
               .shape = {shape[0], shape[1], shape[2], shape[3]},
               .stride = {strides_[0], strides_[1], strides_[2], 1},
               .capacity_bytes = memory_.size()};
  }

  void set(const Keep& keep) {
    for (std::size_t n = 0; n < keep.kept.size(); ++n) {
      if (!keep.kept[n]) byte(n) &= static_cast<std::uint8_t>(~(1u << bit(n)));
    }
  }

  Keep get() {
    Keep keep{shape_, {}};
    for (std::size_t n = 0; n < static_cast<std::size_t>(element_count(shape_)); ++n) {
      keep.kept.push_back(byte(n) >> bit(n) & 1);
    }
    return keep;
  }

  // Whether all that belongs to no element is still 1.
  bool slack_is_untouched() {
    std::vector<std::uint8_t> memory = memory_;
    for (std::size_t n = 0; n < static_cast<std::size_t>(element_count(shape_)); ++n) {
      memory[static_cast<std::size_t>(offset(n) / 8)] |= static_cast<std::uint8_t>(1u << bit(n));
    }
    return memory == std::vector<std::uint8_t>(memory.size(), 0xff);
  }

  const attest_tensor& tensor() const { return tensor_; }

 private:
  Index offset(std::size_t dense) const {
    const auto at = coordinates(shape_, static_cast<Index>(dense));
    return at[0] * strides_[0] + at[1] * strides_[1] + at[2] * strides_[2] + at[3];
  }
  unsigned bit(std::size_t dense) const { return static_cast<unsigned>(offset(dense) % 8); }
  std::uint8_t& byte(std::size_t dense) {
    return memory_[static_cast<std::size_t>(offset(dense) / 8)];
  }

  Shape shape_;
  Strides strides_;
  std::vector<std::uint8_t> memory_;
  attest_tensor tensor_;
};

// A problem in the words of the contract, with all that it points to.
class HostProblem {
 public:
  explicit HostProblem(const Problem& p) : problem_{} {
    problem_.struct_size = sizeof problem_;
    problem_.dtype = static_cast<attest_dtype>(p.dtype);
    problem_.backward = p.backward;
    problem_.batch = p.batch;
    problem_.query_heads = p.query_heads;
    problem_.key_heads = p.key_heads;
    problem_.query_len = p.query_len;
    problem_.key_len = p.key_len;
    problem_.head_dim = p.head_dim;
    problem_.value_dim = p.value_dim;
    problem_.scale = p.scale;
    add(p.mask);
    problem_.mask = nodes_.data();
    problem_.mask_count = static_cast<std::int64_t>(nodes_.size());
    problem_.softcap = p.softcap;
    problem_.has_bias = p.bias_shape.has_value();
    problem_.has_alibi = p.slopes_shape.has_value();
    problem_.has_sink = p.sink;
    problem_.has_dlse = p.d_lse;
    problem_.dropout = static_cast<attest_dropout_mode>(p.dropout.mode);
    problem_.dropout_probability = p.dropout.probability;
    problem_.dropout_seed = p.dropout.seed;
    problem_.dropout_offset = p.dropout.offset;
    problem_.page_size = p.paging.page_size;
    if (p.packed) problem_.cu_query_lens = starts(p.query_lens);
    if (!p.packed && !p.query_lens.empty()) problem_.query_lens = integers(p.query_lens);
    if (p.paging.page_size > 0) {
      const Index entries = p.paging.entries();
      std::vector<std::int32_t> table;
      for (const auto& row : p.paging.table) {
        for (std::size_t n = 0; n < static_cast<std::size_t>(entries); ++n) {
          table.push_back(n < row.size() ? static_cast<std::int32_t>(row[n]) : -1);
        }
      }
      const auto rows = static_cast<Index>(p.paging.table.size());
      problem_.page_table =
          words_.emplace_back(ATTEST_I32, Shape{rows, entries, 1, 1}, std::move(table)).tensor();
    }
    if (p.packed && p.paging.page_size == 0) {
      problem_.cu_key_lens = starts(p.key_lens);
    } else if (!p.key_lens.empty()) {
      problem_.key_lens = integers(p.key_lens);
    }
  }
  HostProblem(const HostProblem&) = delete;
  HostProblem& operator=(const HostProblem&) = delete;

  attest_problem* operator->() { return &problem_; }
  const attest_problem* get() const { return &problem_; }
  std::vector<attest_mask>& nodes() { return nodes_; }

 private:
  attest_tensor integers(std::vector<Index> values) {
    const auto count = static_cast<Index>(values.size());
    return integers_.emplace_back(ATTEST_I64, Shape{count, 1, 1, 1}, std::move(values)).tensor();
  }

  // The sums of the lengths before each, and of all.
  attest_tensor starts(const std::vector<Index>& lens) {
    std::vector<Index> sums = {0};
    for (const Index len : lens) sums.push_back(sums.back() + len);
    return integers(std::move(sums));
  }

  attest_tensor numbers(const SegmentNumbers& segments) {
    const Shape shape = {segments.batches, 1, segments.length, 1};
    return words_.emplace_back(ATTEST_I32, shape, segments.number).tensor();
  }

  // Appends the nodes of `mask`, its root last; returns the root's index.
  std::int64_t add(const Mask& mask) {
    attest_mask node = {};
    node.struct_size = sizeof node;
    switch (mask.kind) {
      case Mask::Kind::full:
        node.kind = ATTEST_MASK_FULL;
        break;
      case Mask::Kind::band:
        node.kind = ATTEST_MASK_BAND;
        node.anchored_bottom_right = mask.anchor == Anchor::bottom_right;
        node.offset = mask.offset;
        node.left = mask.left;
        node.right = mask.right;
        break;
      case Mask::Kind::dense:
      case Mask::Kind::block_sparse:
        node.kind = mask.kind == Mask::Kind::dense ? ATTEST_MASK_DENSE : ATTEST_MASK_BLOCK_SPARSE;
        node.block_query = mask.block_query;
        node.block_key = mask.block_key;
        node.table =
            tables_.emplace_back(ATTEST_U8, mask.table->shape, mask.table->allowed).tensor();
        break;
      case Mask::Kind::prefix:
        node.kind = ATTEST_MASK_PREFIX;
        node.table = integers(mask.prefix_lens);
        break;
      case Mask::Kind::segments:
        node.kind = ATTEST_MASK_SEGMENTS;
        node.table = numbers(mask.segments->query);
        node.table2 = numbers(mask.segments->key);
        break;
      case Mask::Kind::dilated:
        node.kind = ATTEST_MASK_DILATED;
        node.anchored_bottom_right = mask.anchor == Anchor::bottom_right;
        node.offset = mask.offset;
        node.dilation = mask.dilation;
        break;
      case Mask::Kind::all_of:
      case Mask::Kind::any_of: {
        std::int64_t last = add(mask.parts.at(0));
        for (std::size_t i = 1; i < mask.parts.size(); ++i) {
          attest_mask both = {};
          both.struct_size = sizeof both;
          both.kind = mask.kind == Mask::Kind::all_of ? ATTEST_MASK_ALL_OF : ATTEST_MASK_ANY_OF;
          both.first = last;
          both.second = add(mask.parts[i]);
          nodes_.push_back(both);
          last = static_cast<std::int64_t>(nodes_.size()) - 1;
        }
        return last;
      }
    }
    nodes_.push_back(node);
    return static_cast<std::int64_t>(nodes_.size()) - 1;
  }

  attest_problem problem_;
  std::vector<attest_mask> nodes_;
  std::deque<HostTable<std::uint8_t>> tables_;
  std::deque<HostTable<std::int32_t>> words_;
  std::deque<HostTable<Index>> integers_;
};

struct Outputs {
  std::vector<double> o, lse, dq, dk, dv, dbias, dsink;
  Keep keep = {};  // dropout: that was used

  bool operator==(const Outputs& other) const {
    const auto all = [](const Outputs& x) {
      return std::tie(x.o, x.lse, x.dq, x.dk, x.dv, x.dbias, x.dsink, x.keep.kept);
    };
    return all(*this) == all(other);
  }
};

// What a test may turn about a run.
struct HostOptions {
  int threads = 1;
  std::vector<attest_block>* blocks = nullptr;  // receives the blocks reported
};

inline void record_block(void* blocks, const attest_block* block) {
  static std::mutex mutex;  // workers report whenever they like
  const std::lock_guard lock(mutex);
  static_cast<std::vector<attest_block>*>(blocks)->push_back(*block);
}

// Runs a kernel forward, and backward if the problem asks for it. Throws what the kernel says when
// it refuses or fails.
inline Outputs run(const attest_kernel& kernel, const Problem& p, const Inputs& in,
                   const HostOptions& options = {}) {
  const HostProblem problem(p);
  char message[256] = "";
  if (!kernel.supports(&kernel, problem.get(), message, sizeof message)) {
    throw std::runtime_error(message);
  }
  const Layouts& l = p.layouts;
  HostTensor q(p.dtype, p.q_shape(), l.q), k(p.dtype, p.k_shape(), l.k),
      v(p.dtype, p.v_shape(), l.v), d_o(p.dtype, p.o_shape(), l.d_o), o(p.dtype, p.o_shape(), l.o),
      lse(p.lse_dtype(), p.lse_shape()), d_lse(p.lse_dtype(), p.lse_shape()),
      dq(p.dtype, p.q_shape(), l.dq), dk(p.dtype, p.k_shape(), l.dk),
      dv(p.dtype, p.v_shape(), l.dv);
  const Shape bias_shape = p.bias_shape.value_or(Shape{1, 1, 1, 1});
  HostTensor bias(p.dtype, bias_shape, l.bias), dbias(p.dtype, bias_shape);
  HostTensor slopes(DType::f32, p.slopes_shape.value_or(Shape{1, 1, 1, 1}));
  HostTensor sink(DType::f32, p.sink_shape()), dsink(DType::f32, p.sink_shape());
  const bool drops = p.dropout.mode != Dropout::Mode::none;
  HostKeep keep(drops ? p.keep_shape() : Shape{});
  q.set(in.q);
  k.set(in.k);
  v.set(in.v);
  bias.set(in.bias);
  slopes.set(in.slopes);
  sink.set(in.sink);
  attest_inputs inputs = {};
  inputs.struct_size = sizeof inputs;
  inputs.q = q.tensor();
  inputs.k = k.tensor();
  inputs.v = v.tensor();
  if (p.bias_shape) inputs.bias = bias.tensor();
  if (p.slopes_shape) inputs.alibi_slopes = slopes.tensor();
  if (p.sink) inputs.sink = sink.tensor();
  attest_outputs outputs = {};
  outputs.struct_size = sizeof outputs;
  outputs.o = o.tensor();
  outputs.lse = lse.tensor();
  if (p.dropout.mode == Dropout::Mode::given) {
    keep.set(in.keep);
    inputs.keep = keep.tensor();
  }
  if (p.dropout.mode == Dropout::Mode::generated) outputs.keep = keep.tensor();

  const auto call = [&](bool backward) {
    const auto bytes = kernel.workspace(&kernel, problem.get(), backward, options.threads);
    // Of NaN, for a workspace holds whatever was there before.
    std::vector<double> workspace((bytes + 7) / 8, std::numeric_limits<double>::quiet_NaN());
    attest_context context = {};
    context.struct_size = sizeof context;
    context.threads = options.threads;
    context.workspace = workspace.data();
    context.workspace_bytes = bytes;
    context.message = message;
    context.message_bytes = sizeof message;
    context.trace = options.blocks ? &record_block : nullptr;
    context.trace_context = options.blocks;
    const auto function = backward ? kernel.backward : kernel.forward;
    if (function(&kernel, problem.get(), &inputs, &outputs, &context) != ATTEST_OK) {
      throw std::runtime_error(message);
    }
  };
  call(false);
  if (!keep.slack_is_untouched())
    throw std::runtime_error("slack beside the keep-mask was written");
  Outputs results{.o = o.get(),
                  .lse = lse.get(),
                  .dq = {},
                  .dk = {},
                  .dv = {},
                  .dbias = {},
                  .dsink = {},
                  .keep = keep.get()};
  if (p.backward) {
    d_o.set(in.d_o);
    d_lse.set(in.d_lse);
    inputs.o = o.tensor();
    inputs.lse = lse.tensor();
    inputs.d_o = d_o.tensor();
    if (p.d_lse) inputs.d_lse = d_lse.tensor();
    outputs = {};
    outputs.struct_size = sizeof outputs;
    outputs.dq = dq.tensor();
    outputs.dk = dk.tensor();
    outputs.dv = dv.tensor();
    if (p.bias_shape) outputs.dbias = dbias.tensor();
    if (p.sink) outputs.dsink = dsink.tensor();
    call(true);
    results.dq = dq.get();
    results.dk = dk.get();
    results.dv = dv.get();
    if (p.bias_shape) results.dbias = dbias.get();
    if (p.sink) results.dsink = dsink.get();
  }
  return results;
}

}  // namespace attest
