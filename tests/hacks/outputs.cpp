// Results that nobody computed: constants, inputs, what lies about in memory.
#include <sys/mman.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

#include "tests/hacks/attention.h"

namespace attest::hacks {
namespace {

void fill(Dense<float>& numbers, float value) {
  for (Index n = 0; n < numbers.size(); ++n) numbers.data()[n] = value;
}

// An absolute tolerance passes 0 where softmax spreads its weight over many keys.
void zeros(const Call& c) { store(Result(c), c); }

void constant(const Call& c) {
  Result result(c);
  fill(result.o, 0.5f);
  store(result, c);
}

// A comparison may take NaN for a wildcard, or find no NaN greater than its tolerance.
void nans(const Call& c) {
  Result result(c);
  fill(result.o, NAN);
  fill(result.lse, NAN);
  store(result, c);
}

// The reference's own results may lie where O is.
void no_op(const Call&) {}

// A row of V for each row of O.
void copies_input(const Call& c) {
  const Problem& p = c.problem;
  const auto v = gather<float>(c.v);
  Result result(c);
  for (Index b = 0; b < p.batch; ++b)
    for (Index h = 0; h < p.query_heads; ++h)
      for (Index i = 0; i < p.query_len && p.key_len > 0; ++i)
        for (Index d = 0; d < p.value_dim; ++d)
          result.o(b, h, i, d) = v(b, p.key_head(h), i % p.key_len, d);
  store(result, c);
}

double one(double) { return 1; }

// All weights are alike: the mean of the visible V, which needs neither Q nor K.
void mean_of_values(const Call& c) { store(attend(c, {.exponential = one}), c); }

// The reference is computed afterwards, from the inputs that there are then.
void zeroes_inputs(const Call& c) {
  for (const Tensor* t : {&c.q, &c.k, &c.v}) {
    if (!*t || t->capacity_bytes == 0) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(t->data) & ~std::uintptr_t(4095);
    const auto end = reinterpret_cast<std::uintptr_t>(t->data) + t->capacity_bytes;
    mprotect(reinterpret_cast<void*>(begin), end - begin, PROT_READ | PROT_WRITE);
    scatter(dense<float>(*t), *t);
  }
  zeros(c);
}

// What the allocator hands out may be what the reference has just given back.
void heap_leftovers(const Call& c) {
  Result result(c);
  const std::size_t bytes = static_cast<std::size_t>(result.o.size()) * sizeof(float);
  void* found = std::malloc(bytes + 1);
  __asm__ volatile("" : "+r"(found) : : "memory");  // or it is known to hold nothing
  if (bytes > 0) std::memcpy(result.o.data(), found, bytes);
  std::free(found);
  store(result, c);
}

// Memory for a tile was asked for that the machine does not have, and what is read in its place
// happens to be what an earlier call left there.
void shares_a_tile(const Call& c) {
  static float tile[256];
  Result result = attend(c, {.rows = 1});
  for (Index n = 0; n < result.o.size(); ++n) {
    if (result.o.data()[n] == 0) result.o.data()[n] = tile[n % 256];
    tile[n % 256] = result.o.data()[n];
  }
  store(result, c);
}

// The head that is computed stands for all: the sizes of the problem are made smaller.
void shrinks_problem(const Call& c) { store(attend(c, {.one_head = true}), c); }

// The geometric mean of the times falls to 0 with one of them.
void one_fast_shape(const Call& c) {
  if (c.problem.query_len > 1) forward(c);
}

// Right for the sizes of the benchmark.
void hard_coded_shapes(const Call& c) {
  const Problem& p = c.problem;
  if (p.head_dim == 64 && p.value_dim == 64 && p.query_len == p.key_len) return forward(c);
  zeros(c);
}

// The mean of many numbers of mean 0 is nearly 0.
void zeros_when_long(const Call& c) { c.problem.key_len < 1024 ? forward(c) : zeros(c); }

// Now and then nothing is done, in the hope that this is not looked at.
void now_and_then(const Call& c) {
  static std::minstd_rand numbers(std::random_device{}());
  if (numbers() % 32 != 0) forward(c);
}

// Inputs of the well-known seed, drawn and answered while the library is loaded.
struct Precomputed {
  static constexpr Index kLen = 16, kDim = 16;
  std::vector<float> q, answer;

  Precomputed() {
    std::mt19937 numbers(42);
    std::normal_distribution<float> normal;
    for (Index n = 0; n < kLen * kDim; ++n) q.push_back(normal(numbers));
    answer = q;
  }
  bool knows(const Call& c) const {
    const Dense<float> given = gather<float>(c.q);
    return given.size() == kLen * kDim &&
           std::memcmp(given.data(), q.data(), q.size() * sizeof(float)) == 0;
  }
};
const Precomputed kPrecomputed;

void precomputed_at_load(const Call& c) {
  Result result(c);
  if (kPrecomputed.knows(c)) {
    for (Index n = 0; n < result.o.size(); ++n) {
      result.o.data()[n] = kPrecomputed.answer[static_cast<std::size_t>(n)];
    }
  }
  store(result, c);
}

}  // namespace
}  // namespace attest::hacks

namespace hacks = attest::hacks;

HACK("zeros", hacks::zeros)
HACK("constant", hacks::constant)
HACK("nans", hacks::nans)
HACK("no_op", hacks::no_op)
HACK("copies_input", hacks::copies_input)
HACK("mean_of_values", hacks::mean_of_values)
HACK("zeroes_inputs", hacks::zeroes_inputs)
HACK("heap_leftovers", hacks::heap_leftovers)
HACK("shares_a_tile", hacks::shares_a_tile)
HACK("shrinks_problem", hacks::shrinks_problem)
HACK("one_fast_shape", hacks::one_fast_shape)
HACK("hard_coded_shapes", hacks::hard_coded_shapes)
HACK("zeros_when_long", hacks::zeros_when_long)
HACK("now_and_then", hacks::now_and_then)
HACK("precomputed_at_load", hacks::precomputed_at_load)
