// Deliberately wrong kernels, one fault each: what the suite must catch. The plug-in `mutants.so`
// has a kernel for every fault, "mutant/NAME", and the same kernel without a fault, "mutant/none",
// which must pass: so a catch is the fault's doing.
//
// The kernel itself is the textbook: scores, softmax, P V, and the gradients, in float, on values
// read and written through strides. Adding a mutant: a name in kFaults and one `has(...)` where the
// fault belongs.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "spec/attest_plugin.h"
#include "spec/dtype.h"

namespace {

using attest::Index;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Fault {
  const char* name;
  const char* about;
};

constexpr std::array kFaults = {
    Fault{"none", "no fault: the control"},
    // Semantics.
    Fault{"top_left", "causal anchored top left where bottom right is asked for"},
    Fault{"scale_squared", "the scale applied twice"},
    Fault{"zeros", "O and LSE all 0"},
    Fault{"zero_gradients", "dQ, dK and dV all 0"},
    Fault{"last_key_dropped", "the last key of every row left out"},
    Fault{"dk_misses_head", "dK without the last query head of each group"},
    Fault{"lse_base_2", "LSE in base 2"},
    Fault{"window_exclusive", "the left edge of a window left out"},
    Fault{"ignores_lengths", "keys beyond a length attended to"},
    Fault{"heads_interleaved", "query head h reads key head h mod Hkv"},
    Fault{"empty_row_nan", "0/0 in a row that sees no key"},
    Fault{"ignores_strides", "O written as if it were dense"},
    Fault{"d_term_missing", "dS = P dP, without the row sum"},
    Fault{"dense_inverted", "true taken as masked"},
    Fault{"fma_exp", "the exponent by fma: not 0 for the largest score, once its product rounds"},
    Fault{"leaks_hidden", "a masked key multiplied by 0 instead of left out"},
    // Memory.
    Fault{"unwritten_row", "the last row of O left as it was"},
    Fault{"writes_past_end", "one element past the end of O"},
    Fault{"writes_before_start", "one element before the start of O"},
    Fault{"writes_input", "a write into K"},
    Fault{"reads_past_end", "V read one row too far"},
    Fault{"remaps_input", "K made writable by mapping the shared memory again"},
    // Manners.
    Fault{"crash", "a null pointer"},
    Fault{"abort", "abort()"},
    Fault{"exit_zero", "exit(0) in the middle of a call"},
    Fault{"hang", "never returns"},
    Fault{"refuses", "refuses what it declares"},
    Fault{"refuses_silently", "refuses without a reason"},
    Fault{"bad_status", "fails after having said that it can"},
    Fault{"random", "other bits in every call, though declared deterministic"},
    Fault{"flood", "megabytes on stderr, and a right result"},
    Fault{"hoards", "memory without end"},
    Fault{"leaves_child", "a child process left behind, and a right result"},
};

struct View {
  const attest_tensor& t;
  std::byte* at(Index b, Index h, Index s, Index d) const {
    const auto dtype = static_cast<attest::DType>(t.dtype);
    const std::array<Index, 4> place = {b, h, s, d};
    Index offset = 0;
    for (std::size_t axis = 0; axis < 4; ++axis) {
      if (t.shape[axis] > 1) offset += place[axis] * t.stride[axis];
    }
    return static_cast<std::byte*>(t.data) + offset * attest::format_of(dtype).bytes;
  }
  float load(Index b, Index h, Index s, Index d) const {
    return static_cast<float>(attest::load(static_cast<attest::DType>(t.dtype), at(b, h, s, d)));
  }
  void store(Index b, Index h, Index s, Index d, float value) const {
    attest::store(static_cast<attest::DType>(t.dtype), value, at(b, h, s, d));
  }
};

class Mutant {
 public:
  Mutant(std::string_view fault, const attest_problem& p) : fault_(fault), p_(p) {}

  void forward(const attest_inputs& in, const attest_outputs& out) const {
    const View v{in.v}, o{out.o}, lse{out.lse};
    if (has("zeros")) {
      for_each_row([&](Index b, Index h, Index i) {
        for (Index c = 0; c < p_.value_dim; ++c) o.store(b, h, i, c, 0);
        lse.store(b, h, i, 0, 0);
      });
      return;
    }
    for_each_row([&](Index b, Index h, Index i) {
      const Row row = softmax_row(in, b, h, i);
      for (Index c = 0; c < p_.value_dim; ++c) {
        float sum = 0;
        for (Index j = 0; j < p_.key_len; ++j) {
          if (row.seen[at(j)] || has("leaks_hidden"))
            sum += row.p[at(j)] * v.load(b, key_head(h), j, c);
        }
        if (has("random") && calls() % 3 == 0) sum = std::nextafter(sum, kInfinity);
        if (has("unwritten_row") && i == p_.query_len - 1) continue;
        if (has("ignores_strides")) {
          const Index dense = ((b * p_.query_heads + h) * p_.query_len + i) * p_.value_dim + c;
          const auto dtype = static_cast<attest::DType>(p_.dtype);
          attest::store(
              dtype, sum,
              static_cast<std::byte*>(out.o.data) + dense * attest::format_of(dtype).bytes);
        } else {
          o.store(b, h, i, c, sum);
        }
      }
      lse.store(b, h, i, 0, has("lse_base_2") ? row.lse * 1.44269504f : row.lse);
    });
  }

  void backward(const attest_inputs& in, const attest_outputs& out) const {
    const View q{in.q}, k{in.k}, v{in.v}, o{in.o}, d_o{in.d_o};
    const View dq{out.dq}, dk{out.dk}, dv{out.dv};
    std::vector<float> sum_dk(at(p_.batch * p_.key_heads * p_.key_len * p_.head_dim));
    std::vector<float> sum_dv(at(p_.batch * p_.key_heads * p_.key_len * p_.value_dim));
    const auto key_row = [&](Index b, Index h, Index j) {
      return (b * p_.key_heads + key_head(h)) * p_.key_len + j;
    };
    for_each_row([&](Index b, Index h, Index i) {
      const Row row = softmax_row(in, b, h, i);
      float delta = 0;
      for (Index c = 0; c < p_.value_dim; ++c) delta += d_o.load(b, h, i, c) * o.load(b, h, i, c);
      if (has("d_term_missing")) delta = 0;
      std::vector<float> row_dq(at(p_.head_dim));
      const bool last_of_group = (h + 1) % (p_.query_heads / p_.key_heads) == 0;
      for (Index j = 0; j < p_.key_len; ++j) {
        if (!row.seen[at(j)] || has("zero_gradients")) continue;
        float dp = 0;
        for (Index c = 0; c < p_.value_dim; ++c)
          dp += d_o.load(b, h, i, c) * v.load(b, key_head(h), j, c);
        const float ds = row.p[at(j)] * (dp - delta) * scale();
        for (Index d = 0; d < p_.head_dim; ++d) {
          row_dq[at(d)] += ds * k.load(b, key_head(h), j, d);
          if (has("dk_misses_head") && last_of_group) continue;
          sum_dk[at(key_row(b, h, j) * p_.head_dim + d)] += ds * q.load(b, h, i, d);
        }
        for (Index c = 0; c < p_.value_dim; ++c) {
          sum_dv[at(key_row(b, h, j) * p_.value_dim + c)] += row.p[at(j)] * d_o.load(b, h, i, c);
        }
      }
      for (Index d = 0; d < p_.head_dim; ++d) dq.store(b, h, i, d, row_dq[at(d)]);
    });
    for (Index b = 0; b < p_.batch; ++b) {
      for (Index h = 0; h < p_.key_heads; ++h) {
        for (Index j = 0; j < p_.key_len; ++j) {
          const Index row = (b * p_.key_heads + h) * p_.key_len + j;
          for (Index d = 0; d < p_.head_dim; ++d)
            dk.store(b, h, j, d, sum_dk[at(row * p_.head_dim + d)]);
          for (Index c = 0; c < p_.value_dim; ++c)
            dv.store(b, h, j, c, sum_dv[at(row * p_.value_dim + c)]);
        }
      }
    }
  }

  // What a kernel does to its surroundings, before its work or after it.
  void misbehave(const attest_inputs& in, const attest_outputs& out) const {
    const auto o_bytes = [&] {
      const View o{out.o};
      return o.at(p_.batch - 1, p_.query_heads - 1, p_.query_len - 1, p_.value_dim - 1) +
             attest::format_of(static_cast<attest::DType>(p_.dtype)).bytes;
    };
    const bool forward = out.o.data != nullptr;
    if (has("crash")) *static_cast<volatile int*>(nullptr) = 1;
    if (has("abort")) std::abort();
    if (has("exit_zero")) std::exit(0);
    while (has("hang")) std::this_thread::sleep_for(std::chrono::seconds(1));
    if (has("writes_past_end") && forward) *o_bytes() = std::byte{0};
    if (has("writes_before_start") && forward)
      static_cast<std::byte*>(out.o.data)[-1] = std::byte{0};
    if (has("writes_input")) *static_cast<volatile std::uint8_t*>(in.k.data) = 1;
    if (has("reads_past_end") && forward) {
      volatile std::uint8_t sink =
          static_cast<volatile std::uint8_t*>(in.v.data)[in.v.capacity_bytes];
      static_cast<void>(sink);
    }
    if (has("remaps_input")) {
      const int fd = std::atoi(std::getenv("ATTEST_INPUT_FD"));
      void* base = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      if (base == MAP_FAILED) {  // as it should be; then by force
        const auto page = reinterpret_cast<std::uintptr_t>(in.k.data) & ~std::uintptr_t(4095);
        mprotect(reinterpret_cast<void*>(page), 4096, PROT_READ | PROT_WRITE);
        base = in.k.data;
      }
      *static_cast<volatile std::uint8_t*>(base) = 1;
    }
    if (has("flood")) {
      const std::string line(1023, 'x');
      for (int i = 0; i < 4096; ++i) std::fprintf(stderr, "%s\n", line.c_str());
    }
    if (has("hoards")) {
      for (;;) {
        constexpr std::size_t kChunk = std::size_t(16) << 20;
        std::memset(std::malloc(kChunk), 1, kChunk);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    if (has("leaves_child") && fork() == 0) {
      for (;;) pause();
    }
  }

  bool has(std::string_view fault) const { return fault_ == fault; }

 private:
  struct Row {
    std::vector<bool> seen;
    std::vector<float> p;
    float lse;
  };

  static std::size_t at(Index i) { return static_cast<std::size_t>(i); }

  static int calls() {
    static int count = 0;
    return ++count;
  }

  Index key_head(Index h) const {
    return has("heads_interleaved") ? h % p_.key_heads : h / (p_.query_heads / p_.key_heads);
  }

  float scale() const {
    const auto s = static_cast<float>(p_.scale);
    return has("scale_squared") ? s * s : s;
  }

  template <class Visit>
  void for_each_row(const Visit& visit) const {
    for (Index b = 0; b < p_.batch; ++b) {
      for (Index h = 0; h < p_.query_heads; ++h) {
        for (Index i = 0; i < p_.query_len; ++i) visit(b, h, i);
      }
    }
  }

  static Index length(const attest_tensor& lens, Index b, Index whole) {
    return lens.data ? static_cast<const Index*>(lens.data)[b] : whole;
  }

  bool sees(Index b, Index h, Index i, Index j) const {
    const Index query_len = length(p_.query_lens, b, p_.query_len);
    const Index key_len = length(p_.key_lens, b, p_.key_len);
    if (i >= query_len) return false;
    if (j >= key_len && !has("ignores_lengths")) return false;
    if (has("last_key_dropped") && j == p_.key_len - 1) return false;
    return p_.mask_count == 0 || allows(p_.mask_count - 1, b, h, i, j, key_len - query_len);
  }

  bool allows(Index node, Index b, Index h, Index i, Index j, Index corner) const {
    const attest_mask& m = p_.mask[node];
    switch (m.kind) {
      case ATTEST_MASK_BAND: {
        const bool bottom_right = m.anchored_bottom_right && !has("top_left");
        const Index ahead = j - (i + m.offset + (bottom_right ? corner : 0));
        if (m.left != ATTEST_UNBOUNDED &&
            (has("window_exclusive") ? ahead <= -m.left : ahead < -m.left)) {
          return false;
        }
        return m.right == ATTEST_UNBOUNDED || ahead <= m.right;
      }
      case ATTEST_MASK_DENSE: {
        const std::array<Index, 4> place = {b, h, i, j};
        Index offset = 0;
        for (std::size_t axis = 0; axis < 4; ++axis) {
          if (m.table.shape[axis] > 1) offset += place[axis] * m.table.stride[axis];
        }
        return (static_cast<const std::uint8_t*>(m.table.data)[offset] != 0) !=
               has("dense_inverted");
      }
      case ATTEST_MASK_ALL_OF:
        return allows(m.first, b, h, i, j, corner) && allows(m.second, b, h, i, j, corner);
      case ATTEST_MASK_ANY_OF:
        return allows(m.first, b, h, i, j, corner) || allows(m.second, b, h, i, j, corner);
      default:
        return true;
    }
  }

  Row softmax_row(const attest_inputs& in, Index b, Index h, Index i) const {
    const View q{in.q}, k{in.k};
    Row row{std::vector<bool>(at(p_.key_len)), std::vector<float>(at(p_.key_len)), -kInfinity};
    float top = -kInfinity;
    for (Index j = 0; j < p_.key_len; ++j) {
      row.seen[at(j)] = sees(b, h, i, j);
      if (!row.seen[at(j)]) continue;
      float s = 0;
      for (Index d = 0; d < p_.head_dim; ++d)
        s += q.load(b, h, i, d) * k.load(b, key_head(h), j, d);
      row.p[at(j)] = s * scale();
      top = std::max(top, row.p[at(j)]);
    }
    if (top == -kInfinity && !has("empty_row_nan")) return row;
    float sum = 0;
    for (Index j = 0; j < p_.key_len; ++j) {
      constexpr float kLog2E = 1.44269504f;
      const float shifted = has("fma_exp")
                                ? std::exp2(std::fma(row.p[at(j)], kLog2E, -(top * kLog2E)))
                                : std::exp(row.p[at(j)] - top);
      row.p[at(j)] = row.seen[at(j)] ? shifted : 0;
      sum += row.p[at(j)];
    }
    for (float& p : row.p) p /= sum;
    if (has("empty_row_nan") && top == -kInfinity) row.seen.assign(row.seen.size(), true);
    row.lse = top + std::log(sum);
    return row;
  }

  std::string_view fault_;
  const attest_problem& p_;
};

const char* fault_of(const attest_kernel* kernel) {
  return static_cast<const Fault*>(kernel->self)->name;
}

const char* describe(const attest_kernel* kernel) {
  static std::vector<std::string> texts(kFaults.size());
  const auto index =
      static_cast<std::size_t>(static_cast<const Fault*>(kernel->self) - kFaults.data());
  const std::string arithmetic =
      R"({"products": {"default": {"accumulator": "f32", "truncates": false}}, "softmax": "f32",
          "exp_ulp": 1.25, "p": "f32", "p_normalised": "first", "ds": "f32", "ds_from": "p",
          "kv_splits": 1, "rescales_output": false, "subnormal_inputs": "kept",
          "subnormal_outputs": "kept", "output_rounding": "nearest", "deterministic": true})";
  texts[index] = fmt::format(
      R"({{"name": "{}", "version": "1", "vendor": "Attest's own tests",
          "profiles": ["forward-core", "training-core", "masks", "varlen", "layouts"],
          "dtypes": ["f32", "f16", "bf16"], "alignment": 4,
          "features": ["backward", "lse", "causal", "window", "dense-mask", "mask-and", "mask-or",
                       "lengths", "gqa", "value-dim", "strides", "expanded", "transposed", "zero-sizes"],
          "arithmetic": {{"f32": {}, "f16": {}, "bf16": {}}}}})",
      kernel->name, arithmetic, arithmetic, arithmetic);
  return texts[index].c_str();
}

std::int32_t supports(const attest_kernel* kernel, const attest_problem* problem, char* reason,
                      std::uint64_t reason_bytes) {
  const std::string_view fault = fault_of(kernel);
  if (problem->dtype == ATTEST_F64) {
    std::snprintf(reason, reason_bytes, "no f64");
    return 0;
  }
  if (fault == "refuses" && problem->head_dim > 1) {
    std::snprintf(reason, reason_bytes, "not in the mood");
    return 0;
  }
  return fault != "refuses_silently";
}

std::uint64_t workspace(const attest_kernel*, const attest_problem*, std::int32_t, std::int32_t) {
  return 0;
}

attest_status run(const attest_kernel* kernel, const attest_problem* problem,
                  const attest_inputs* inputs, const attest_outputs* outputs,
                  const attest_context* context, bool backward) {
  const Mutant mutant(fault_of(kernel), *problem);
  if (mutant.has("bad_status")) {
    std::snprintf(context->message, context->message_bytes, "the flux capacitor is empty");
    return ATTEST_ERROR;
  }
  mutant.misbehave(*inputs, *outputs);
  if (backward) {
    mutant.backward(*inputs, *outputs);
  } else {
    mutant.forward(*inputs, *outputs);
  }
  return ATTEST_OK;
}

attest_status forward(const attest_kernel* kernel, const attest_problem* problem,
                      const attest_inputs* inputs, const attest_outputs* outputs,
                      const attest_context* context) {
  return run(kernel, problem, inputs, outputs, context, false);
}

attest_status backward(const attest_kernel* kernel, const attest_problem* problem,
                       const attest_inputs* inputs, const attest_outputs* outputs,
                       const attest_context* context) {
  return run(kernel, problem, inputs, outputs, context, true);
}

struct Table {
  std::vector<std::string> names;
  std::vector<attest_kernel> kernels;
  std::vector<const attest_kernel*> pointers;
  attest_plugin plugin{};

  Table() {
    for (const Fault& fault : kFaults) names.push_back(std::string("mutant/") + fault.name);
    for (std::size_t i = 0; i < kFaults.size(); ++i) {
      kernels.push_back({.struct_size = sizeof(attest_kernel),
                         .name = names[i].c_str(),
                         .self = const_cast<Fault*>(&kFaults[i]),
                         .describe = describe,
                         .supports = supports,
                         .workspace = workspace,
                         .forward = forward,
                         .backward = backward});
    }
    for (const attest_kernel& kernel : kernels) pointers.push_back(&kernel);
    plugin = {.struct_size = sizeof(attest_plugin),
              .abi_version = ATTEST_ABI_VERSION,
              .kernel_count = static_cast<std::uint32_t>(pointers.size()),
              .kernels = pointers.data()};
  }
};

}  // namespace

extern "C" ATTEST_EXPORT const attest_plugin* attest_plugin_get(void) {
  static const Table table;
  return &table.plugin;
}
