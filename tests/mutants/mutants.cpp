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

#include <algorithm>
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
    Fault{"cap_after_mask", "a masked score capped to a finite one"},
    Fault{"cap_slope_missing", "the gradient passed through the softcap as it is"},
    Fault{"bias_scaled", "the bias multiplied by the scale"},
    Fault{"bias_axis_misread", "a bias of one row read along the queries"},
    Fault{"bias_minus_10000", "-10000 in place of a bias of -inf"},
    Fault{"dbias_not_summed", "dBias of the last batch element alone"},
    Fault{"alibi_sign", "ALiBi that rewards distance"},
    Fault{"alibi_top_left", "ALiBi's diagonal at the top left"},
    Fault{"sink_raw", "exp(sink) without the maximum taken off"},
    Fault{"sink_scaled", "the sink multiplied by the scale"},
    Fault{"sink_per_split", "the sink counted once for each half of the keys"},
    Fault{"sink_row_empty", "LSE = -inf in a row that has a sink but no key"},
    Fault{"dsink_sign", "dSink negated"},
    Fault{"lse_without_sink", "LSE of the keys alone"},
    Fault{"dlse_dropped", "no gradient through LSE"},
    Fault{"keep_of_other_head", "the keep-mask of the next head"},
    Fault{"dropout_realised_rate", "kept weights scaled by the rate that came about"},
    Fault{"dropout_before_softmax", "dropped keys left out of the denominator"},
    Fault{"other_keep_backward", "the keep-mask backwards in the backward pass"},
    Fault{"keeps_too_often", "a drawn keep-mask that keeps more than it declares"},
    Fault{"seed_ignored", "the same keep-mask drawn for every seed"},
    Fault{"prefix_inclusive", "one key more than the prefix has"},
    Fault{"segment_boundary", "a query takes the number of the one before it"},
    Fault{"negative_segments", "negative segment numbers attend to each other"},
    Fault{"blocks_exchanged", "a block's rows taken for its columns"},
    Fault{"dilation_unsigned", "the remainder of a negative distance taken of 2^64 minus it"},
    Fault{"union_as_intersection", "any_of taken as all_of"},
    Fault{"packed_off_by_one", "packed keys from one place too early"},
    Fault{"next_page", "the pages of the next batch element"},
    Fault{"page_tail", "the last page attended to up to its end"},
    Fault{"leaks_masked_nan", "0 times NaN of a key that the mask hides"},
    Fault{"nan_query_spreads", "NaN of a query reaches the row beside it"},
    Fault{"nan_dsink_spreads", "NaN in the dSink of one head reaches all others"},
    Fault{"batch_variant", "sums in another order in larger batches, though declared invariant"},
    Fault{"thread_variant", "sums in another order on more threads, though declared invariant"},
    Fault{"keeps_visible",
          "a drawn keep-mask that makes up in hidden keys for what it never drops"},
    Fault{"same_bits_per_head", "all heads drop the same elements"},
    Fault{"same_bits_per_batch", "all batch elements drop the same elements"},
    Fault{"offset_ignored", "the same keep-mask drawn for every offset"},
    Fault{"seed_halved", "the high half of the seed left out"},
    Fault{"columns_repeat", "every 16 keys drop alike"},
    Fault{"neighbours_drop", "neighbouring keys dropped together"},
    Fault{"heads_shifted", "each head drops what the first does, some keys further"},
    Fault{"rare_window",
          "the left edge of a window of 3 left out, where Sq % 32 is 15: a random search alone "
          "finds it"},
    Fault{"stirred_by_hidden", "the last bit of O follows a key that its row does not see"},
    Fault{"small_scales", "the last bit of O is another one for a small scale"},
    // Tensors taken for dense.
    Fault{"dense_lengths", "lengths read as if they were dense, and cut to the longest"},
    Fault{"dense_starts", "so cu_query_lens and cu_key_lens"},
    Fault{"dense_page_table", "so the page table"},
    Fault{"dense_mask_table", "so a dense mask's table"},
    Fault{"dense_prefix", "so the lengths of prefixes"},
    Fault{"dense_segments", "so the numbers of segments"},
    Fault{"dense_blocks", "so the table of a block-sparse mask"},
    Fault{"dense_slopes", "so ALiBi's slopes"},
    Fault{"dense_sink", "so the sinks"},
    Fault{"dense_keep", "so a keep-mask"},
    Fault{"dense_drawn_keep", "a drawn keep-mask written as if it were dense"},
    Fault{"dense_dlse", "dLSE read as if it were dense"},
    Fault{"dense_dbias", "dBias written as if it were dense"},
    Fault{"dense_dsink", "dSink written as if it were dense"},
    // Memory.
    Fault{"unwritten_row", "the last row of O left as it was"},
    Fault{"writes_past_end", "one element past the end of O"},
    Fault{"writes_before_start", "one element before the start of O"},
    Fault{"writes_input", "a write into K"},
    Fault{"reads_past_end", "V read one row too far"},
    Fault{"remaps_input", "K made writable by mapping the shared memory again"},
    // Schedule and promises of memory.
    Fault{"misses_block", "a block of the last head that isn't reported"},
    Fault{"doubles_block", "a block that is reported twice"},
    Fault{"visits_masked_block", "a block that is wholly masked reported"},
    Fault{"masks_full_block", "a full block reported as masked"},
    Fault{"leaves_block_unmasked", "a partial block reported as not masked"},
    Fault{"misses_backward_block", "a block that the backward pass doesn't report"},
    Fault{"imbalanced", "all blocks with one worker, though balance is declared"},
    Fault{"asks_for_more", "a workspace larger than declared"},
    Fault{"keeps_scores", "a byte for each score, in secret"},
    Fault{"grows", "a byte for each score, within what is declared, and declared linear"},
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

// One of kFaults. What the source names is looked up by the compiler: a misspelt name does not
// compile, and asking costs nothing in a loop.
class FaultId {
 public:
  consteval FaultId(const char* name) {  // not explicit: `has("zeros")`
    while (std::string_view(kFaults.at(place_).name) != name) ++place_;
  }
  explicit FaultId(const Fault& fault)
      : place_(static_cast<std::size_t>(&fault - kFaults.data())) {}

  std::string_view name() const { return kFaults[place_].name; }
  bool operator==(const FaultId&) const = default;

 private:
  std::size_t place_ = 0;
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

// The values of an input, decoded once: for sums over channels.
class Loaded {
 public:
  explicit Loaded(const attest_tensor& t) : shape_(t.shape, t.shape + 4) {
    const View view{t};
    for (Index b = 0; b < shape_[0]; ++b) {
      for (Index h = 0; h < shape_[1]; ++h) {
        for (Index s = 0; s < shape_[2]; ++s) {
          for (Index d = 0; d < shape_[3]; ++d) values_.push_back(view.load(b, h, s, d));
        }
      }
    }
  }
  const float* row(Index b, Index h, Index s) const {
    return values_.data() + ((b * shape_[1] + h) * shape_[2] + s) * shape_[3];
  }

 private:
  std::vector<Index> shape_;
  std::vector<float> values_;
};

class Mutant {
 public:
  Mutant(FaultId fault, const attest_problem& p, int threads)
      : fault_(fault), p_(p), threads_(threads) {
    if (has("keeps_visible") && hidden_drop_rate() <= 1) hidden_drop_rate_ = hidden_drop_rate();
  }

  void forward(const attest_inputs& in, const attest_outputs& out) const {
    const View o{out.o}, lse{out.lse};
    if (has("zeros")) {
      for_each_row([&](Index b, Index h, Index i) {
        const Place row = query_place(b, i);
        for (Index c = 0; c < p_.value_dim; ++c) o.store(row.batch, h, row.position, c, 0);
        lse.store(row.batch, h, row.position, 0, 0);
      });
      return;
    }
    if (p_.dropout == ATTEST_DROPOUT_GENERATED) publish_keep(out.keep);
    const Loaded q(in.q), k(in.k), v(in.v);
    for_each_row([&](Index b, Index h, Index i) {
      const Row row = softmax_row(in, q, k, b, h, i, false);
      const Place place = query_place(b, i);
      const bool leaks = has("leaks_hidden") || (has("leaks_masked_nan") && i < query_len(b));
      std::vector<float> sums(at(p_.value_dim));
      const bool padded = !p_.cu_key_lens.data && p_.page_size == 0;
      const Index visited = has("leaks_hidden") && padded ? p_.key_len : key_len(b);
      for (Index n = 0; n < visited; ++n) {
        const Index j = backwards() ? key_len(b) - 1 - n : n;
        const bool exists = j < key_len(b);
        if (!(exists && row.seen[at(j)]) && !leaks) continue;
        const Place key = key_place(b, j);
        const float weight = exists ? row.p[at(j)] * row.z[at(j)] : 0;
        const float* value = v.row(key.batch, key_head(h), key.position);
        for (Index c = 0; c < p_.value_dim; ++c) sums[at(c)] += weight * value[c];
      }
      for (Index c = 0; c < p_.value_dim; ++c) {
        float sum = sums[at(c)];
        if (has("random") && calls() % 3 == 0) sum = std::nextafter(sum, kInfinity);
        if (has("small_scales") && p_.scale < 0.1) sum = std::nextafter(sum, kInfinity);
        if (has("stirred_by_hidden") && last_is_hidden(row) && last_value(v, b, h, c) < 0) {
          sum = std::nextafter(sum, kInfinity);
        }
        if (has("unwritten_row") && i == p_.query_len - 1) continue;
        if (has("ignores_strides")) {
          const Index dense = ((b * p_.query_heads + h) * p_.query_len + i) * p_.value_dim + c;
          const auto dtype = static_cast<attest::DType>(p_.dtype);
          attest::store(
              dtype, sum,
              static_cast<std::byte*>(out.o.data) + dense * attest::format_of(dtype).bytes);
        } else {
          o.store(place.batch, h, place.position, c, sum);
        }
      }
      lse.store(place.batch, h, place.position, 0,
                has("lse_base_2") ? row.lse * 1.44269504f : row.lse);
    });
  }

  void backward(const attest_inputs& in, const attest_outputs& out) const {
    const Loaded q(in.q), k(in.k), v(in.v), o(in.o), d_o(in.d_o);
    const View d_lse{in.d_lse}, dq{out.dq};
    // Of each key head, channels side by side; places as in K and V.
    std::vector<float> sum_dk(at(elements(out.dk))), sum_dv(at(elements(out.dv)));
    const auto key_row = [&](Place key, Index h) {
      return (key.batch * p_.key_heads + key_head(h)) * out.dk.shape[2] + key.position;
    };
    std::vector<double> sum_bias(p_.has_bias ? at(elements(in.bias)) : 0);
    std::vector<double> sum_sink(at(p_.query_heads));
    for_each_row([&](Index b, Index h, Index i) {
      const Place place = query_place(b, i);
      if (has("zero_gradients")) {
        for (Index d = 0; d < p_.head_dim; ++d) dq.store(place.batch, h, place.position, d, 0);
        return;
      }
      const Row row = softmax_row(in, q, k, b, h, i, true);
      const float* query = q.row(place.batch, h, place.position);
      const float* upstream = d_o.row(place.batch, h, place.position);
      const float* output = o.row(place.batch, h, place.position);
      float delta = 0;
      for (Index c = 0; c < p_.value_dim; ++c) delta += upstream[c] * output[c];
      if (has("d_term_missing")) delta = 0;
      if (p_.has_dlse && !has("dlse_dropped")) {
        delta -= d_lse.load(place.batch, h, place.position, 0);
      }
      if (i < query_len(b)) sum_sink[at(h)] -= row.sink_share * delta;
      std::vector<float> row_dq(at(p_.head_dim));
      const bool last_of_group = (h + 1) % (p_.query_heads / p_.key_heads) == 0;
      for (Index j = 0; j < key_len(b); ++j) {
        if (!row.seen[at(j)]) continue;
        const Place key = key_place(b, j);
        const float* key_values = k.row(key.batch, key_head(h), key.position);
        const float* value = v.row(key.batch, key_head(h), key.position);
        float dp = 0;
        for (Index c = 0; c < p_.value_dim; ++c) dp += upstream[c] * value[c];
        float ds = row.p[at(j)] * (dp * row.z[at(j)] - delta);
        if (p_.has_bias && (!has("dbias_not_summed") || b == p_.batch - 1)) {
          sum_bias[at(bias_index(in.bias, b, h, i, j))] += ds;
        }
        ds *= row.cap_slope[at(j)] * scale();
        for (Index d = 0; d < p_.head_dim; ++d) row_dq[at(d)] += ds * key_values[d];
        if (!has("dk_misses_head") || !last_of_group) {
          float* dk = sum_dk.data() + key_row(key, h) * p_.head_dim;
          for (Index d = 0; d < p_.head_dim; ++d) dk[d] += ds * query[d];
        }
        float* dv = sum_dv.data() + key_row(key, h) * p_.value_dim;
        const float weight = row.p[at(j)] * row.z[at(j)];
        for (Index c = 0; c < p_.value_dim; ++c) dv[c] += weight * upstream[c];
      }
      for (Index d = 0; d < p_.head_dim; ++d) {
        dq.store(place.batch, h, place.position, d, row_dq[at(d)]);
      }
    });
    store_all(sum_dk, out.dk);
    store_all(sum_dv, out.dv);
    if (p_.has_bias) {
      store_all(sum_bias, out.dbias);
    }
    if (p_.has_sink) {
      for (double& sum : sum_sink) sum *= has("dsink_sign") ? -1 : 1;
      const auto spoilt = [](double sum) { return std::isnan(sum); };
      if (has("nan_dsink_spreads") && std::any_of(sum_sink.begin(), sum_sink.end(), spoilt)) {
        std::fill(sum_sink.begin(), sum_sink.end(), std::nan(""));
      }
      store_all(sum_sink, out.dsink);
    }
  }

  // The blocks of a call, dealt to the workers in turn: squares, where the mask leaves anything of
  // them. The faults of a schedule are those of the first block that they can befall.
  void report(const attest_context& context, bool backward) const {
    if (!context.trace) return;
    Index count = 0;
    bool done = false;  // the fault
    for (Index b = 0; b < p_.batch; ++b) {
      for (Index h = 0; h < p_.query_heads; ++h) {
        for (Index i = 0; i < query_len(b); i += kSide) {
          for (Index j = 0; j < key_len(b); j += kSide) {
            attest_block block = {.struct_size = sizeof(attest_block),
                                  .worker = has("imbalanced") ? 0 : count % threads_,
                                  .batch = b,
                                  .head = h,
                                  .query_begin = i,
                                  .query_end = std::min(i + kSide, query_len(b)),
                                  .key_begin = j,
                                  .key_end = std::min(j + kSide, key_len(b)),
                                  .masked = 0,
                                  .backward = backward};
            const Index seen = seen_pairs(block);
            const bool empty = seen == 0;
            block.masked =
                seen < (block.query_end - block.query_begin) * (block.key_end - block.key_begin);
            const bool befalls =
                !done &&
                ((has("misses_block") && h == p_.query_heads - 1 && !empty) ||
                 (has("doubles_block") && !empty) || (has("visits_masked_block") && empty) ||
                 (has("masks_full_block") && !block.masked) ||
                 (has("leaves_block_unmasked") && block.masked && !empty) ||
                 (has("misses_backward_block") && backward && !empty));
            done = done || befalls;
            if (befalls && fault_.name().starts_with("misses")) continue;
            if (befalls && !has("doubles_block")) block.masked = !block.masked;
            if (empty && !befalls) continue;
            context.trace(context.trace_context, &block);
            if (befalls && has("doubles_block")) context.trace(context.trace_context, &block);
            ++count;
          }
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
    if (has("keeps_scores") || has("grows")) {
      const auto pairs = at(p_.batch * p_.query_heads * p_.query_len * p_.key_len);
      constexpr std::size_t kPage = 4096;
      void* const scores = std::malloc(pairs);
      for (std::size_t n = 0; scores && n < pairs; n += kPage) {
        static_cast<volatile char*>(scores)[n] = 1;  // volatile, or the compiler leaves it all out
      }
      std::free(scores);
    }
  }

  bool has(FaultId fault) const { return fault_ == fault; }

 private:
  struct Row {
    std::vector<bool> seen;
    std::vector<float> p, z, cap_slope;  // the weight; keep/(1-p) of dropout; the slope of the cap
    float lse;
    float sink_share = 0;
  };

  struct Place {
    Index batch, position;
  };

  static std::size_t at(Index i) { return static_cast<std::size_t>(i); }

  static Index elements(const attest_tensor& t) {
    return t.shape[0] * t.shape[1] * t.shape[2] * t.shape[3];
  }

  template <class T>
  static void store_all(const std::vector<T>& values, const attest_tensor& tensor) {
    const View view{tensor};
    const Index* shape = tensor.shape;
    std::size_t n = 0;
    for (Index b = 0; b < shape[0]; ++b) {
      for (Index h = 0; h < shape[1]; ++h) {
        for (Index s = 0; s < shape[2]; ++s) {
          for (Index d = 0; d < shape[3]; ++d)
            view.store(b, h, s, d, static_cast<float>(values[n++]));
        }
      }
    }
  }

  static int calls() {
    static int count = 0;
    return ++count;
  }

  bool backwards() const {
    return (has("batch_variant") && p_.batch > 1) || (has("thread_variant") && threads_ > 1);
  }

  Index key_head(Index h) const {
    return has("heads_interleaved") ? h % p_.key_heads : h / (p_.query_heads / p_.key_heads);
  }

  float scale() const {
    const auto s = static_cast<float>(p_.scale);
    return has("scale_squared") ? s * s : s;
  }

  // ---- Lengths and places ---------------------------------------------------------------------

  static Index integer(const attest_tensor& tensor, Index n) {
    return entry<Index>(tensor, {n, 0, 0, 0});
  }

  static Index length(const attest_tensor& starts, const attest_tensor& lens, Index b,
                      Index whole) {
    if (!starts.data && !lens.data) return whole;
    const Index found =
        starts.data ? integer(starts, b + 1) - integer(starts, b) : integer(lens, b);
    return std::clamp<Index>(found, 0, whole);  // one that is misread shall not take all memory
  }

  Index query_len(Index b) const {
    return length(p_.cu_query_lens, p_.query_lens, b, p_.query_len);
  }

  Index key_len(Index b) const {
    const Index real = length(p_.cu_key_lens, p_.key_lens, b, p_.key_len);
    if (p_.page_size > 0) {
      return has("page_tail") ? (real + p_.page_size - 1) / p_.page_size * p_.page_size : real;
    }
    return has("ignores_lengths") && !p_.cu_key_lens.data ? p_.key_len : real;
  }

  Place query_place(Index b, Index i) const {
    return p_.cu_query_lens.data ? Place{0, integer(p_.cu_query_lens, b) + i} : Place{b, i};
  }

  Place key_place(Index b, Index j) const {
    if (p_.page_size > 0) {
      const auto page = [&](Index element) {
        const attest_tensor& t = p_.page_table;
        return static_cast<Index>(static_cast<const std::int32_t*>(
            t.data)[element * (p_.batch > 1 ? t.stride[0] : 0) +
                    j / p_.page_size * (t.shape[1] > 1 ? t.stride[1] : 0)]);
      };
      const Index next = has("next_page") ? page((b + 1) % p_.batch) : -1;
      return {next >= 0 ? next : page(b), j % p_.page_size};
    }
    if (!p_.cu_key_lens.data) return {b, j};
    const Index start = integer(p_.cu_key_lens, b);
    return {0, start + j - (has("packed_off_by_one") && start > 0)};
  }

  template <class Visit>
  void for_each_row(const Visit& visit) const {
    for (Index b = 0; b < p_.batch; ++b) {
      const Index rows = p_.cu_query_lens.data ? query_len(b) : p_.query_len;
      for (Index h = 0; h < p_.query_heads; ++h) {
        for (Index i = 0; i < rows; ++i) visit(b, h, i);
      }
    }
  }

  // ---- Masks ----------------------------------------------------------------------------------

  static constexpr Index kSide = 64;  // of a block

  Index seen_pairs(const attest_block& block) const {
    Index seen = 0;
    for (Index i = block.query_begin; i < block.query_end; ++i) {
      for (Index j = block.key_begin; j < block.key_end; ++j) {
        seen += sees(block.batch, block.head, i, j);
      }
    }
    return seen;
  }

  bool sees(Index b, Index h, Index i, Index j) const {
    if (i >= query_len(b)) return false;
    if (has("last_key_dropped") && j == p_.key_len - 1) return false;
    return p_.mask_count == 0 ||
           allows(p_.mask_count - 1, b, h, i, j,
                  length(p_.cu_key_lens, p_.key_lens, b, p_.key_len) - query_len(b));
  }

  template <class T>
  static T entry(const attest_tensor& table, const std::array<Index, 4>& place) {
    Index offset = 0;
    for (std::size_t axis = 0; axis < 4; ++axis) {
      if (table.shape[axis] > 1) offset += place[axis] * table.stride[axis];
    }
    return static_cast<const T*>(table.data)[offset];
  }

  bool allows(Index node, Index b, Index h, Index i, Index j, Index corner) const {
    const attest_mask& m = p_.mask[node];
    const bool bottom_right = m.anchored_bottom_right && !has("top_left");
    const Index ahead = j - (i + m.offset + (bottom_right ? corner : 0));
    switch (m.kind) {
      case ATTEST_MASK_BAND: {
        const bool exclusive = has("window_exclusive") ||
                               (has("rare_window") && m.left == 3 && p_.query_len % 32 == 15);
        if (m.left != ATTEST_UNBOUNDED && (exclusive ? ahead <= -m.left : ahead < -m.left)) {
          return false;
        }
        return m.right == ATTEST_UNBOUNDED || ahead <= m.right;
      }
      case ATTEST_MASK_DENSE:
        return (entry<std::uint8_t>(m.table, {b, h, i, j}) != 0) != has("dense_inverted");
      case ATTEST_MASK_PREFIX:
        return j < entry<Index>(m.table, {b, 0, 0, 0}) + has("prefix_inclusive");
      case ATTEST_MASK_SEGMENTS: {
        const Index before = has("segment_boundary") && i > 0;
        const auto number = entry<std::int32_t>(m.table, {b, 0, i - before, 0});
        return number == entry<std::int32_t>(m.table2, {b, 0, j, 0}) &&
               (number >= 0 || has("negative_segments"));
      }
      case ATTEST_MASK_BLOCK_SPARSE: {
        const bool exchanged = has("blocks_exchanged");
        const Index rows = exchanged ? m.block_key : m.block_query;
        const Index columns = exchanged ? m.block_query : m.block_key;
        return entry<std::uint8_t>(m.table, {b, h, std::min(i / rows, m.table.shape[2] - 1),
                                             std::min(j / columns, m.table.shape[3] - 1)}) != 0;
      }
      case ATTEST_MASK_DILATED:
        return has("dilation_unsigned")
                   ? static_cast<std::uint64_t>(ahead) % static_cast<std::uint64_t>(m.dilation) == 0
                   : ahead % m.dilation == 0;
      case ATTEST_MASK_ALL_OF:
        return allows(m.first, b, h, i, j, corner) && allows(m.second, b, h, i, j, corner);
      case ATTEST_MASK_ANY_OF:
        return has("union_as_intersection")
                   ? allows(m.first, b, h, i, j, corner) && allows(m.second, b, h, i, j, corner)
                   : allows(m.first, b, h, i, j, corner) || allows(m.second, b, h, i, j, corner);
      default:
        return true;
    }
  }

  // ---- Dropout --------------------------------------------------------------------------------

  // The rate at which hidden elements have to be dropped if no other is, for the right rate of all.
  double hidden_drop_rate() const {
    Index hidden = 0;
    for_each_row([&](Index b, Index h, Index i) {
      for (Index j = 0; j < p_.key_len; ++j) hidden += !sees(b, h, i, j);
    });
    const Index all = p_.batch * p_.query_heads * p_.query_len * p_.key_len;
    return p_.dropout_probability * static_cast<double>(all) /
           static_cast<double>(std::max<Index>(hidden, 1));
  }

  // What the mutants draw: a hash of the place, the seed and the offset.
  bool draws(Index b, Index h, Index i, Index j) const {
    if (hidden_drop_rate_ > 0 && sees(b, h, i, j)) return true;
    if (has("same_bits_per_head")) h = 0;
    if (has("same_bits_per_batch")) b = 0;
    if (has("columns_repeat")) j %= 16;
    if (has("neighbours_drop")) j -= j % 2;
    if (has("heads_shifted")) {
      j += h;
      h = 0;
    }
    std::uint64_t hash = has("seed_ignored")  ? 0
                         : has("seed_halved") ? p_.dropout_seed % (std::uint64_t(1) << 32)
                                              : p_.dropout_seed;
    const bool any_offset = has("seed_ignored") || has("offset_ignored");
    for (const std::uint64_t word :
         {any_offset ? 0 : p_.dropout_offset, static_cast<std::uint64_t>(b),
          static_cast<std::uint64_t>(h), static_cast<std::uint64_t>(i),
          static_cast<std::uint64_t>(j)}) {
      hash = (hash ^ word) * 0x9e3779b97f4a7c15;
      hash = (hash ^ hash >> 29) * 0xbf58476d1ce4e5b9;
      hash ^= hash >> 32;
    }
    const double p = hidden_drop_rate_ > 0    ? hidden_drop_rate_
                     : has("keeps_too_often") ? 0.5 * p_.dropout_probability
                                              : p_.dropout_probability;
    return static_cast<double>(hash >> 32) >= p * 4294967296.0;
  }

  void publish_keep(const attest_tensor& keep) const {
    for (Index b = 0; b < p_.batch; ++b) {
      for (Index h = 0; h < p_.query_heads; ++h) {
        for (Index i = 0; i < p_.query_len; ++i) {
          for (Index j = 0; j < p_.key_len; ++j) {
            const Index n = bit_index(keep, b, h, i, j);
            auto& byte = static_cast<std::uint8_t*>(keep.data)[n / 8];
            const auto bit = static_cast<std::uint8_t>(1u << n % 8);
            byte = static_cast<std::uint8_t>(draws(b, h, i, j) ? byte | bit : byte & ~bit);
          }
        }
      }
    }
  }

  static Index bit_index(const attest_tensor& keep, Index b, Index h, Index i, Index j) {
    const std::array<Index, 4> place = {b, h, i, j};
    Index n = 0;
    for (std::size_t axis = 0; axis < 4; ++axis) {
      if (keep.shape[axis] > 1) n += place[axis] * keep.stride[axis];
    }
    return n;
  }

  bool keeps(const attest_inputs& in, Index b, Index h, Index i, Index j, bool backward) const {
    if (p_.dropout == ATTEST_DROPOUT_NONE) return true;
    if (has("keep_of_other_head")) h = (h + 1) % p_.query_heads;
    if (has("other_keep_backward") && backward) j = p_.key_len - 1 - j;
    if (p_.dropout == ATTEST_DROPOUT_GENERATED) return draws(b, h, i, j);
    const Index n = bit_index(in.keep, b, h, i, j);
    return static_cast<const std::uint8_t*>(in.keep.data)[n / 8] >> n % 8 & 1;
  }

  // ---- Scores ---------------------------------------------------------------------------------

  // The dense index of the bias element that (b,h,i,j) reads.
  static Index bias_index(const attest_tensor& bias, Index b, Index h, Index i, Index j) {
    const std::array<Index, 4> place = {b, h, i, j};
    Index n = 0;
    for (std::size_t axis = 0; axis < 4; ++axis) {
      n = n * bias.shape[axis] + (bias.shape[axis] > 1 ? place[axis] : 0);
    }
    return n;
  }

  float bias_of(const attest_inputs& in, Index b, Index h, Index i, Index j) const {
    const bool one_row = in.bias.shape[2] == 1 && in.bias.shape[3] > 1;
    if (has("bias_axis_misread") && one_row) j = i % in.bias.shape[3];
    const float bias = View{in.bias}.load(b, h, i, j);
    if (bias == -kInfinity && has("bias_minus_10000")) return -10000;
    return has("bias_scaled") ? bias * scale() : bias;
  }

  float alibi(const attest_inputs& in, Index b, Index h, Index i, Index j) const {
    const Index corner = has("alibi_top_left") ? 0 : key_len(b) - query_len(b);
    const float slope = View{in.alibi_slopes}.load(b, h, 0, 0);
    const float bias = -slope * static_cast<float>(std::abs(i + corner - j));
    return has("alibi_sign") ? -bias : bias;
  }

  // The last key of a row, for a fault that looks at it.
  static bool last_is_hidden(const Row& row) { return !row.seen.empty() && !row.seen.back(); }
  float last_value(const Loaded& v, Index b, Index h, Index c) const {
    const Place key = key_place(b, key_len(b) - 1);
    return v.row(key.batch, key_head(h), key.position)[c];
  }

  // NaN that is in the query beside this one; else 0.
  float spread(const attest_inputs& in, Index b, Index h, Index i) const {
    if (!has("nan_query_spreads") || i == 0) return 0;
    const Place place = query_place(b, i - 1);
    float sum = 0;
    for (Index d = 0; d < p_.head_dim; ++d) {
      sum += 0 * View{in.q}.load(place.batch, h, place.position, d);
    }
    return sum;
  }

  Row softmax_row(const attest_inputs& in, const Loaded& q, const Loaded& k, Index b, Index h,
                  Index i, bool backward) const {
    const Index keys = key_len(b);
    Row row{.seen = std::vector<bool>(at(keys)),
            .p = std::vector<float>(at(keys)),
            .z = std::vector<float>(at(keys)),
            .cap_slope = std::vector<float>(at(keys), 1.0f),
            .lse = -kInfinity};
    const auto cap = static_cast<float>(p_.softcap);
    const Place place = query_place(b, i);
    float top = -kInfinity;
    for (Index j = 0; j < keys; ++j) {
      const bool masked = !sees(b, h, i, j);
      row.seen[at(j)] = !masked || (has("cap_after_mask") && cap > 0 && i < query_len(b));
      if (!row.seen[at(j)]) continue;
      const Place key = key_place(b, j);
      const float* query = q.row(place.batch, h, place.position);
      const float* key_values = k.row(key.batch, key_head(h), key.position);
      float s = 0;
      for (Index d = 0; d < p_.head_dim; ++d) s += query[d] * key_values[d];
      s = s * scale() + spread(in, b, h, i);
      if (masked) s = -kInfinity;
      if (cap > 0) {
        const float tanh = std::tanh(s / cap);
        s = cap * tanh;
        if (!has("cap_slope_missing")) row.cap_slope[at(j)] = 1 - tanh * tanh;
      }
      if (p_.has_bias) {
        const float bias = bias_of(in, b, h, i, j);
        if (bias == -kInfinity) row.seen[at(j)] = false;
        s += bias;
      }
      if (p_.has_alibi) s += alibi(in, b, h, i, j);
      if (!row.seen[at(j)]) continue;
      row.p[at(j)] = s;
      top = std::max(top, s);
    }
    const bool has_sink = p_.has_sink && i < query_len(b);
    float sink = has_sink ? View{in.sink}.load(0, h, 0, 0) : -kInfinity;
    if (has("sink_scaled")) sink *= scale();
    if (top == -kInfinity && has("sink_row_empty")) return row;
    top = std::max(top, sink);
    if (top == -kInfinity && !has("empty_row_nan")) return row;
    float sum = has_sink ? std::exp(has("sink_raw") ? sink : sink - top) : 0;
    if (has("sink_per_split") && keys > 1) sum *= 2;
    const float sink_weight = sum;
    Index kept = 0, seen = 0;
    for (Index n = 0; n < keys; ++n) {
      const Index j = backwards() ? keys - 1 - n : n;
      constexpr float kLog2E = 1.44269504f;
      const float shifted = has("fma_exp")
                                ? std::exp2(std::fma(row.p[at(j)], kLog2E, -(top * kLog2E)))
                                : std::exp(row.p[at(j)] - top);
      row.p[at(j)] = row.seen[at(j)] ? shifted : 0;
      const bool keep = row.seen[at(j)] && keeps(in, b, h, i, j, backward);
      row.z[at(j)] = keep;
      seen += row.seen[at(j)];
      kept += keep;
      if (has("dropout_before_softmax") && !keep) continue;
      sum += row.p[at(j)];
    }
    for (float& p : row.p) p /= sum;
    const bool drops = p_.dropout != ATTEST_DROPOUT_NONE;
    const float rate = has("dropout_realised_rate")
                           ? static_cast<float>(kept) / static_cast<float>(std::max<Index>(seen, 1))
                           : static_cast<float>(1 - p_.dropout_probability);
    for (float& z : row.z) z = drops && z != 0 ? 1 / rate : z;
    if (has("empty_row_nan") && top == -kInfinity) {
      row.seen.assign(row.seen.size(), true);
      row.z.assign(row.z.size(), 1.0f);
    }
    row.lse = top + std::log(has("lse_without_sink") ? sum - sink_weight : sum);
    row.sink_share = sink_weight / sum;
    return row;
  }

  FaultId fault_;
  const attest_problem& p_;
  int threads_;
  double hidden_drop_rate_ = 0;  // where hidden elements alone are dropped
};

// What a call is about, with the tensors that a fault takes for dense.
struct Told {
  std::vector<attest_mask> nodes;
  attest_problem problem;
  attest_inputs inputs;
  attest_outputs outputs;

  Told(FaultId fault, const attest_problem& p, const attest_inputs& in, const attest_outputs& out)
      : nodes(p.mask, p.mask + p.mask_count), problem(p), inputs(in), outputs(out) {
    const auto misread = [fault](FaultId wanted, attest_tensor& t) {
      if (fault != wanted || !t.data) return;
      const Index row = t.dtype == ATTEST_BITS ? (t.shape[3] + 7) / 8 * 8 : t.shape[3];
      const Index plane = t.shape[2] * row;
      const Index dense[] = {t.shape[1] * plane, plane, row, 1};
      std::copy(std::begin(dense), std::end(dense), t.stride);
    };
    for (attest_mask& node : nodes) {
      if (node.kind == ATTEST_MASK_DENSE) misread("dense_mask_table", node.table);
      if (node.kind == ATTEST_MASK_PREFIX) misread("dense_prefix", node.table);
      if (node.kind == ATTEST_MASK_SEGMENTS) misread("dense_segments", node.table);
      if (node.kind == ATTEST_MASK_SEGMENTS) misread("dense_segments", node.table2);
      if (node.kind == ATTEST_MASK_BLOCK_SPARSE) misread("dense_blocks", node.table);
    }
    problem.mask = nodes.data();
    misread("dense_lengths", problem.query_lens);
    misread("dense_lengths", problem.key_lens);
    misread("dense_starts", problem.cu_query_lens);
    misread("dense_starts", problem.cu_key_lens);
    misread("dense_page_table", problem.page_table);
    misread("dense_slopes", inputs.alibi_slopes);
    misread("dense_sink", inputs.sink);
    misread("dense_keep", inputs.keep);
    misread("dense_drawn_keep", outputs.keep);
    misread("dense_dlse", inputs.d_lse);
    misread("dense_dbias", outputs.dbias);
    misread("dense_dsink", outputs.dsink);
  }
};

FaultId fault_of(const attest_kernel* kernel) {
  return FaultId(*static_cast<const Fault*>(kernel->self));
}

const char* describe(const attest_kernel* kernel) {
  static std::vector<std::string> texts(kFaults.size());
  const auto index =
      static_cast<std::size_t>(static_cast<const Fault*>(kernel->self) - kFaults.data());
  const std::string arithmetic =
      R"({"products": {"default": {"accumulator": "f32", "truncates": false}}, "softmax": "f32",
          "exp_ulp": 1.25, "tanh_ulp": 3, "p": "f32", "p_normalised": "first", "ds": "f32", "ds_from": "p",
          "kv_splits": 1, "rescales_output": false, "subnormal_inputs": "kept",
          "subnormal_outputs": "kept", "output_rounding": "nearest", "deterministic": true,
          "thread_invariant": true, "batch_invariant": true})";
  texts[index] = fmt::format(
      R"({{"name": "{}", "version": "1", "vendor": "Attest's own tests",
          "profiles": ["forward-core", "training-core", "training-full", "masks", "sparse-masks",
                       "scores", "dropout", "dropout-generated", "varlen", "packed", "paged",
                       "layouts", "schedule", "memory"],
          "dtypes": ["f32", "f16", "bf16"], "alignment": 4, "keep_quantum": 0.0001,
          "features": ["backward", "lse", "causal", "window", "dense-mask", "prefix", "segments",
                       "block-sparse", "dilated", "mask-and", "mask-or", "lengths", "packed",
                       "paged", "gqa", "value-dim", "strides", "expanded", "transposed",
                       "zero-sizes", "softcap", "bias", "dbias", "alibi", "sink", "dlse",
                       "dropout", "dropout-generated"],
          "schedule": {{"masks_partial_only": true, "imbalance": 1.1}},
          "memory": {{"growth": "linear",
                      "own": {{"fixed": {}, "per_query_channel": 36, "per_key_channel": 36}}}},
          "arithmetic": {{"f32": {}, "f16": {}, "bf16": {}}}}})",
      kernel->name, fault_of(kernel) == "grows" ? 1 << 30 : 0, arithmetic, arithmetic, arithmetic);
  return texts[index].c_str();
}

std::int32_t supports(const attest_kernel* kernel, const attest_problem* problem, char* reason,
                      std::uint64_t reason_bytes) {
  const FaultId fault = fault_of(kernel);
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

std::uint64_t workspace(const attest_kernel* kernel, const attest_problem*, std::int32_t,
                        std::int32_t) {
  return fault_of(kernel) == "asks_for_more" ? 4096 : 0;
}

attest_status run(const attest_kernel* kernel, const attest_problem* problem,
                  const attest_inputs* inputs, const attest_outputs* outputs,
                  const attest_context* context, bool backward) {
  const Told told(fault_of(kernel), *problem, *inputs, *outputs);
  const Mutant mutant(fault_of(kernel), told.problem, context->threads);
  if (mutant.has("bad_status")) {
    std::snprintf(context->message, context->message_bytes, "the flux capacitor is empty");
    return ATTEST_ERROR;
  }
  mutant.misbehave(told.inputs, told.outputs);
  mutant.report(*context, backward);
  if (backward) {
    mutant.backward(told.inputs, told.outputs);
  } else {
    mutant.forward(told.inputs, told.outputs);
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
              .kernels = pointers.data(),
              .absent_kernels = nullptr,
              .absent_kernel_count = 0,
              .reserved = 0};
  }
};

}  // namespace

extern "C" ATTEST_EXPORT const attest_plugin* attest_plugin_get(void) {
  static const Table table;
  return &table.plugin;
}
