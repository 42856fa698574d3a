// Kernels of which a probe shall tell nothing wrong: right in f32 but for one oddity each, whatever
// they declare. Those of "lse" have a right O, and something else in LSE.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <stdexcept>
#include <thread>
#include <vector>

#include "spec/kernel.h"
#include "tests/harness/plain_kernel.h"

namespace {

using attest::Call;
using std::int64_t;

using Function = double (*)(double);

struct Oddity {
  double (*lse)(double lse, int64_t row) = nullptr;  // what stands for it
  void (*before)(const Call& call) = nullptr;        // of each pass
  int64_t rows = 256;                                // at most
  int64_t rows_written = INT64_MAX;
  bool bottom_right = false;  // all corners are
  bool sees_all = false;      // whatever masks and lengths say
  bool nan_is_zero = false;   // in K and V: nothing that is hidden leaks
  bool blind = false;         // to all but Q, K, V, dO and the scale
  Function q = nullptr, k = nullptr, v = nullptr, scores = nullptr;  // what becomes of each first
  int64_t off_every = 0;                                             // so many calls O is off
};

// Q, K or V, dense, and each number as `of` has it.
struct Changed {
  attest::Dense<float> numbers;
  attest_tensor tensor;

  Changed(const attest::Tensor& from, Function of, const attest::Tensor& scales = {})
      : numbers(attest::gather<float>(from, scales)), tensor(from) {
    tensor.dtype = ATTEST_F32;
    for (int64_t n = 0; n < numbers.size(); ++n) {
      float& x = numbers.data()[n];
      if (of) x = static_cast<float>(of(x));
    }
    tensor.data = numbers.data();
    int64_t stride = 1;
    for (const int axis : {3, 2, 1, 0}) {
      tensor.stride[axis] = stride;
      stride *= tensor.shape[axis];
    }
  }
};

// In place of what was returned.
void put_lse(const Call& call, const Oddity& odd) {
  for (int64_t b = 0; b < call.lse.shape[0]; ++b) {
    for (int64_t h = 0; h < call.lse.shape[1]; ++h) {
      for (int64_t i = 0; i < call.lse.shape[2]; ++i) {
        float& lse = attest::plain::element<float>(call.outputs.lse, b, h, i, 0);
        lse = static_cast<float>(odd.lse(lse, i));
      }
    }
  }
}

void put_o(const Call& call, double factor) {
  for (int64_t b = 0; b < call.o.shape[0]; ++b) {
    for (int64_t h = 0; h < call.o.shape[1]; ++h) {
      for (int64_t i = 0; i < call.o.shape[2]; ++i) {
        for (int64_t c = 0; c < call.o.shape[3]; ++c) {
          float& o = attest::plain::element<float>(call.outputs.o, b, h, i, c);
          o = static_cast<float>(factor * o);
        }
      }
    }
  }
}

double zero_for_nan(double x) { return std::isnan(x) ? 0 : x; }

// To whom there are Q, K, V and dO alone.
attest_problem seen_blindly(const Call& call) {
  attest_problem problem = call.problem;
  problem.has_bias = problem.has_alibi = problem.has_sink = problem.has_dlse = 0;
  problem.dropout = ATTEST_DROPOUT_NONE;
  problem.softcap = 0;
  problem.mask_count = 0;
  problem.key_lens = problem.query_lens = {};
  return problem;
}

void backward(const Call& call, const Oddity& odd) {
  const attest_problem problem = odd.blind ? seen_blindly(call) : attest_problem(call.problem);
  attest::plain::Attention(problem, call.inputs).backward(call.outputs);
}

void forward(const Call& call, const Oddity& odd) {
  std::vector<attest_mask> nodes = call.problem.mask_nodes();
  attest_problem problem = odd.blind ? seen_blindly(call) : attest_problem(call.problem);
  attest_inputs inputs = call.inputs;
  if (odd.blind && call.problem.key_len == 0) {
    throw std::runtime_error("there is nothing to look at");
  }
  if (odd.sees_all || odd.blind) {
    nodes = {attest_mask{}};
    nodes[0].kind = ATTEST_MASK_FULL;
    problem.key_lens = problem.query_lens = {};
    problem.has_bias = 0;
  }
  for (attest_mask& node : nodes) {
    node.struct_size = sizeof(node);
    if (odd.bottom_right) node.anchored_bottom_right = 1;
  }
  problem.mask = nodes.data();
  problem.mask_count = static_cast<int64_t>(nodes.size());
  problem.query_len = std::min(odd.rows_written, problem.query_len);
  const Function clean = odd.nan_is_zero ? zero_for_nan : nullptr;
  Changed q(call.q, odd.q), k(call.k, odd.k ? odd.k : clean), v(call.v, odd.v ? odd.v : clean);
  if (odd.q) inputs.q = q.tensor;
  if (odd.k || clean) inputs.k = k.tensor;
  if (odd.v || clean) inputs.v = v.tensor;
  attest::plain::Attention(problem, inputs, odd.scores).forward(call.outputs);
  if (odd.lse && call.lse) put_lse(call, odd);
  static int64_t calls = 0;
  if (odd.off_every > 0 && ++calls % odd.off_every == 0) put_o(call, 1 + 1e-3);
}

attest::Pass with(const Oddity& odd) {
  return [=](const Call& call) {
    if (call.problem.dtype != ATTEST_F32) throw std::runtime_error("f32 alone");
    // Slow as it is: a probe is content with these.
    if (call.problem.query_len > odd.rows) throw std::runtime_error("too many rows");
    if (call.problem.key_len > 512) throw std::runtime_error("512 keys at most");
    if (odd.before) odd.before(call);
    if (odd.rows_written == 0) return;
    if (!call.backward) return forward(call, odd);
    backward(call, odd);
  };
}

attest::Declaration declared() {
  return attest::declare().dtypes({"f32"}).features(
      {"causal", "window", "lse", "softcap", "sink", "lengths", "dense-mask", "strides"});
}

// ---- What stands for LSE -----------------------------------------------------------------------

double in_base_10(double lse, int64_t) { return lse / std::log(10.0); }
double a_little_more(double lse, int64_t) { return lse + 1e-3; }
double nan_for_all(double, int64_t) { return std::nan(""); }
double negated(double lse, int64_t) { return -lse; }
double sum_of_exp(double lse, int64_t) { return std::exp(lse); }
double seven(double, int64_t) { return 7; }
double two_at_most(double lse, int64_t) { return std::min(lse, 2.0); }
double of_16_rows(double lse, int64_t row) { return row < 16 ? lse : 0; }

// ---- What is rounded, in f32 -------------------------------------------------------------------

// To so many digits, and to multiples of 2^least.
double rounded(double x, int digits, int least) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent = 0;
  std::frexp(x, &exponent);
  const int last = std::max(exponent - digits, least);
  return std::ldexp(std::nearbyint(std::ldexp(x, -last)), last);
}
double to_f16(double x) {
  const double near = rounded(x, 11, -24);
  return std::abs(near) > 65504 ? std::copysign(INFINITY, x) : near;
}
double to_bf16(double x) { return rounded(x, 8, -133); }
double to_tf32(double x) { return rounded(x, 11, -136); }

// ---- What is refused, and what comes of it -----------------------------------------------------

void refuse(bool refuses, const char* what) {
  if (refuses) throw std::runtime_error(what);
}

void no_lse(const Call& call) { refuse(bool(call.lse), "there is no LSE"); }
void no_device(const Call&) {
  std::fprintf(stderr, "odd: the driver is too old\n");
  refuse(true, "no device was found");
}
void no_windows(const Call& call) { refuse(call.problem.window(), "there are no windows"); }
void no_16_rows(const Call& call) {
  refuse(call.problem.query_len >= 16 && call.problem.query_len <= 18, "not 16 to 18 rows");
}
void queries_by_8(const Call& call) { refuse(call.problem.query_len % 8 != 0, "rows by eights"); }
void keys_by_8(const Call& call) { refuse(call.problem.key_len % 8 != 0, "keys by eights"); }
void as_many_keys(const Call& call) {
  refuse(call.problem.key_len < call.problem.query_len, "there are fewer keys than queries");
  keys_by_8(call);
}
void heads_in_pairs(const Call& call) {
  refuse(call.problem.batch * call.problem.query_heads % 2 != 0, "heads by twos");
}
void no_pages(const Call& call) { refuse(call.problem.page_size > 0, "there are no pages"); }
void top_left(const Call& call) {
  for (const attest_mask& node : call.problem.mask_nodes()) {
    refuse(node.anchored_bottom_right != 0, "the corner is the top left");
  }
  refuse(call.problem.key_lens.data || call.problem.query_lens.data, "there are no lengths");
}

// The second thread of three in four calls gets no processor, as on a machine that is busy.
void compute_a_while() {
  timespec start = {}, now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
  do {
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  } while (double(now.tv_sec - start.tv_sec) + 1e-9 * double(now.tv_nsec - start.tv_nsec) < 0.1);
}
void seldom_two_threads(const Call& call) {
  static int calls = 0;
  if (call.threads < 2) return;
  std::thread second([gets_none = ++calls % 4 != 0] {
    if (!gets_none) compute_a_while();
  });
  compute_a_while();
  second.join();
}

void crash_on_softcap(const Call& call) {
  if (call.problem.softcap > 0) std::abort();
}
void crash_on_100_keys(const Call& call) {
  if (call.problem.key_len == 100) std::abort();
}
void hang_on_sinks(const Call& call) {
  for (volatile bool on = call.problem.has_sink != 0; on;) {
  }
}

// ---- What is taken in 8 bits alone -------------------------------------------------------------

void forward_of_stored(const Call& call) {
  refuse(call.problem.dtype != ATTEST_F32, "f32 alone");
  refuse(!call.k_scale || call.q_scale || call.problem.k_dtype != ATTEST_INT8,
         "K and V in int8 alone");
  attest_inputs inputs = call.inputs;
  Changed k(call.k, nullptr, call.k_scale), v(call.v, nullptr, call.v_scale);
  inputs.k = k.tensor;
  inputs.v = v.tensor;
  attest::plain::Attention(call.problem, inputs).forward(call.outputs);
}
attest::Declaration declared_in_8_bits() {
  return attest::declare().dtypes({"f32"}).features(
      {"causal", "window", "lse", "softcap", "lengths", "stored-kv", "int8", "bfp8", "strides"});
}

}  // namespace

ATTEST_KERNEL("odd/stored_alone", declared_in_8_bits(), forward_of_stored);

#define ODD(name, ...) \
  ATTEST_KERNEL("odd/" name, declared(), with(Oddity{__VA_ARGS__}), with(Oddity{__VA_ARGS__}))

ODD("none");
ODD("lse_in_base_10", .lse = in_base_10);
ODD("lse_plus", .lse = a_little_more);
ODD("lse_nan", .lse = nan_for_all);
ODD("lse_negated", .lse = negated);
ODD("lse_sum_of_exp", .lse = sum_of_exp);
ODD("lse_number", .lse = seven);
ODD("lse_of_small_scores", .lse = two_at_most);
ODD("lse_of_16_rows", .lse = of_16_rows);
ODD("lse_absent", .before = no_lse);
ODD("crashes_on_softcap", .before = crash_on_softcap);
ODD("crashes_on_100_keys", .before = crash_on_100_keys);
ODD("seldom_two_threads", .before = seldom_two_threads, .rows = 512);
ODD("hangs_on_sinks", .before = hang_on_sinks);
ODD("writes_nothing", .rows_written = 0);
ODD("writes_128_rows", .rows_written = 128);
ODD("refuses", .before = no_device);
ODD("bottom_right", .bottom_right = true, .nan_is_zero = true);
ODD("sees_all", .sees_all = true);
ODD("blind", .blind = true);
ODD("top_left_and_no_lengths", .before = top_left);
ODD("no_16_rows", .before = no_16_rows);
ODD("no_windows", .before = no_windows);
ODD("queries_by_8", .before = queries_by_8);
ODD("keys_by_8", .before = keys_by_8);
ODD("as_many_keys_by_8", .before = as_many_keys);
ODD("heads_in_pairs", .before = heads_in_pairs);
ODD("no_pages", .before = no_pages);
ODD("scores_f16", .scores = to_f16);
ODD("scores_bf16", .scores = to_bf16);
ODD("scores_tf32", .scores = to_tf32);
ODD("q_and_k_f16", .q = to_f16, .k = to_f16);
ODD("q_and_k_tf32", .q = to_tf32, .k = to_tf32);
ODD("k_bf16", .k = to_bf16);
ODD("v_f16", .v = to_f16);
ODD("off_every_7th_call", .off_every = 7);
