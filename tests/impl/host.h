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
#include <stdexcept>
#include <string>
#include <vector>

#include "spec/attest_plugin.h"
#include "spec/description.h"
#include "spec/dtype.h"
#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest {

inline const attest_kernel& load_kernel(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw std::runtime_error(dlerror());
  const auto get =
      reinterpret_cast<attest_plugin_get_function>(dlsym(library, ATTEST_PLUGIN_SYMBOL));
  if (!get) throw std::runtime_error(dlerror());
  const attest_plugin* plugin = get();
  if (!plugin || plugin->abi_version != ATTEST_ABI_VERSION || plugin->kernel_count != 1) {
    throw std::runtime_error(path + " is not a plug-in with one kernel");
  }
  return *plugin->kernels[0];
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
    query_lens_ = p.query_lens;
    key_lens_ = p.key_lens;
    problem_.query_lens = lens(query_lens_);
    problem_.key_lens = lens(key_lens_);
  }
  HostProblem(const HostProblem&) = delete;
  HostProblem& operator=(const HostProblem&) = delete;

  attest_problem* operator->() { return &problem_; }
  const attest_problem* get() const { return &problem_; }
  std::vector<attest_mask>& nodes() { return nodes_; }

 private:
  static attest_tensor lens(std::vector<Index>& values) {
    if (values.empty()) return {};
    const auto count = static_cast<std::int64_t>(values.size());
    return {.data = values.data(),
            .dtype = ATTEST_I64,
            .reserved = 0,
            .shape = {count, 1, 1, 1},
            .stride = {1, 1, 1, 1},
            .capacity_bytes = 8 * values.size()};
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
      case Mask::Kind::dense: {
        node.kind = ATTEST_MASK_DENSE;
        const Shape& shape = mask.table->shape;
        tables_.push_back(mask.table->allowed);
        node.table = {.data = tables_.back().data(),
                      .dtype = ATTEST_U8,
                      .reserved = 0,
                      .shape = {shape[0], shape[1], shape[2], shape[3]},
                      .stride = {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1},
                      .capacity_bytes = tables_.back().size()};
        break;
      }
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
  std::deque<std::vector<std::uint8_t>> tables_;
  std::vector<Index> query_lens_, key_lens_;
};

struct Outputs {
  std::vector<double> o, lse, dq, dk, dv;
};

// What a test may turn about a run.
struct RunOptions {
  int threads = 1;
  std::vector<attest_block>* blocks = nullptr;  // receives the blocks reported; for one thread
};

inline void record_block(void* blocks, const attest_block* block) {
  static_cast<std::vector<attest_block>*>(blocks)->push_back(*block);
}

// Runs a kernel forward, and backward if the problem asks for it. Throws what the kernel says when
// it refuses or fails.
inline Outputs run(const attest_kernel& kernel, const Problem& p, const Inputs& in,
                   const RunOptions& options = {}) {
  const HostProblem problem(p);
  char message[256] = "";
  if (!kernel.supports(&kernel, problem.get(), message, sizeof message)) {
    throw std::runtime_error(message);
  }
  HostTensor q(p.dtype, p.q_shape(), p.layouts.q), k(p.dtype, p.k_shape(), p.layouts.k),
      v(p.dtype, p.v_shape(), p.layouts.v), d_o(p.dtype, p.o_shape(), p.layouts.d_o),
      o(p.dtype, p.o_shape(), p.layouts.o), lse(p.lse_dtype(), p.lse_shape()),
      dq(p.dtype, p.q_shape(), p.layouts.dq), dk(p.dtype, p.k_shape(), p.layouts.dk),
      dv(p.dtype, p.v_shape(), p.layouts.dv);
  q.set(in.q);
  k.set(in.k);
  v.set(in.v);
  attest_inputs inputs = {};
  inputs.struct_size = sizeof inputs;
  inputs.q = q.tensor();
  inputs.k = k.tensor();
  inputs.v = v.tensor();
  attest_outputs outputs = {};
  outputs.struct_size = sizeof outputs;
  outputs.o = o.tensor();
  outputs.lse = lse.tensor();

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
  Outputs results{.o = o.get(), .lse = lse.get(), .dq = {}, .dk = {}, .dv = {}};
  if (p.backward) {
    d_o.set(in.d_o);
    inputs.o = o.tensor();
    inputs.lse = lse.tensor();
    inputs.d_o = d_o.tensor();
    outputs = {};
    outputs.struct_size = sizeof outputs;
    outputs.dq = dq.tensor();
    outputs.dk = dk.tensor();
    outputs.dv = dv.tensor();
    call(true);
    results.dq = dq.get();
    results.dk = dk.get();
    results.dv = dv.get();
  }
  return results;
}

}  // namespace attest
