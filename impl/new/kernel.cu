// @NAME@: attention on a GPU, a thread for each row, to be replaced by your own. What it declares,
// at the end, it computes: declare what yours can do, no more (SPEC.md, chapters "Description",
// "Limits" and "Devices"). The tensors of a call lie in the memory of the device, guarded there as
// on the host; all work goes into the stream of the call.
#include <attest/device.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace {

using attest::View;
using attest::device::Rows;
using std::int64_t;
using Call = attest::device::Call<attest::device::Cuda>;

// One row of a batch element and head. None where packed batch elements are shorter.
struct Row {
  int64_t b, h, i, number;
  bool exists;

  __device__ explicit Row(const Rows& p) {
    number = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    exists = number < p.batch * p.query_heads * p.query_len;
    if (!exists) return;
    i = number % p.query_len, h = number / p.query_len % p.query_heads;
    b = number / p.query_len / p.query_heads;
    exists = i < p.rows(b);
  }
};

int64_t rows_of(const Call& c) {
  return c.problem.batch * c.problem.query_heads * c.problem.query_len;
}
unsigned blocks(int64_t threads) { return unsigned((threads + 127) / 128); }

template <class T, class U>
__device__ float dot(const View<T>& x, attest::Place at_x, int64_t h, const View<U>& y,
                     attest::Place at_y, int64_t g, int64_t dim) {
  float sum = 0;
  for (int64_t d = 0; d < dim; ++d) sum += float(x(at_x, h, d)) * float(y(at_y, g, d));
  return sum;
}

// `sums` has room for a row of O in f32 for each thread.
template <class T>
__global__ void forward_rows(Rows p, View<T> q, View<T> k, View<T> v, View<T> o, View<float> lse,
                             float* sums) {
  const Row row(p);
  if (!row.exists) return;
  const attest::Place own = p.query_place(row.b, row.i);
  const int64_t h = row.h, g = p.key_head(h);
  const auto [begin, end] = p.keys(row.b, row.i);
  float* const all = sums + row.number * p.value_dim;
  for (int64_t d = 0; d < p.value_dim; ++d) all[d] = 0;
  float top = -INFINITY, sum = 0;
  for (int64_t j = begin; j < end; ++j) {
    const attest::Place key = p.key_place(row.b, j);
    const float score = p.scale * dot(q, own, h, k, key, g, p.head_dim), higher = fmaxf(top, score);
    const float before = expf(top - higher), weight = expf(score - higher);
    sum = sum * before + weight;
    for (int64_t d = 0; d < p.value_dim; ++d) {
      all[d] = all[d] * before + weight * float(v(key, g, d));
    }
    top = higher;
  }
  for (int64_t d = 0; d < p.value_dim; ++d) o(own, h, d) = T(end > begin ? all[d] / sum : 0.0f);
  lse(own, h, 0) = end > begin ? top + logf(sum) : -INFINITY;
}

template <class T>
void forward_of(const Call& c) {
  if (rows_of(c) == 0) return;
  const auto bytes = std::size_t(rows_of(c) * c.problem.value_dim) * sizeof(float);
  forward_rows<<<blocks(rows_of(c)), 128, 0, c.stream()>>>(
      Rows(c.on_device), c.q.view<T>(), c.k.view<T>(), c.v.view<T>(), c.o.view<T>(),
      c.lse.view<float>(), static_cast<float*>(c.workspace(bytes)));
}

// [training]
// Sums in f32, dense, in the order BHSD.
struct Sums {
  float *dq, *dk, *dv;
  __device__ float* row(float* of, int64_t b, int64_t h, int64_t heads, int64_t s, int64_t positions,
                        int64_t dim) const {
    return of + ((b * heads + h) * positions + s) * dim;
  }
};

template <class T>
__global__ void backward_rows(Rows p, View<T> q, View<T> k, View<T> v, View<T> o, View<float> lse,
                              View<T> d_o, Sums sums) {
  const Row row(p);
  if (!row.exists) return;
  const attest::Place own = p.query_place(row.b, row.i);
  const int64_t b = row.b, h = row.h, g = p.key_head(h);
  const float mean = dot(d_o, own, h, o, own, h, p.value_dim);  // of dP, weighted by P
  float* const dq = sums.row(sums.dq, b, h, p.query_heads, row.i, p.query_len, p.head_dim);
  const auto [begin, end] = p.keys(b, row.i);
  for (int64_t j = begin; j < end; ++j) {
    const attest::Place key = p.key_place(b, j);
    const float score = p.scale * dot(q, own, h, k, key, g, p.head_dim);
    const float weight = expf(score - lse(own, h, 0));
    const float ds = weight * (dot(d_o, own, h, v, key, g, p.value_dim) - mean) * p.scale;
    float* const dk = sums.row(sums.dk, b, g, p.key_heads, j, p.key_len, p.head_dim);
    float* const dv = sums.row(sums.dv, b, g, p.key_heads, j, p.key_len, p.value_dim);
    for (int64_t d = 0; d < p.value_dim; ++d) atomicAdd(dv + d, weight * float(d_o(own, h, d)));
    for (int64_t d = 0; d < p.head_dim; ++d) {
      dq[d] += ds * float(k(key, g, d));
      atomicAdd(dk + d, ds * float(q(own, h, d)));
    }
  }
}

// Rounded to the format once, at the end.
template <class T>
__global__ void round_all(const float* from, View<T> to, int64_t heads, int64_t positions,
                          int64_t dim, int64_t elements) {
  const int64_t n = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (n >= elements) return;
  const int64_t d = n % dim, s = n / dim % positions, h = n / dim / positions % heads;
  to(n / dim / positions / heads, h, s, d) = T(from[n]);
}

template <class T>
void round_into(const Call& c, const float* sums, const attest::Tensor& tensor) {
  const std::int64_t* const n = tensor.shape;
  const int64_t elements = n[0] * n[1] * n[2] * n[3];
  if (elements == 0) return;
  round_all<<<blocks(elements), 128, 0, c.stream()>>>(sums, tensor.view<T>(), n[1], n[2], n[3],
                                                      elements);
}

template <class T>
void backward_of(const Call& c) {
  const auto cleared = [&](const attest::Tensor& like) {
    const std::int64_t* const n = like.shape;
    const auto bytes = std::size_t(n[0] * n[1] * n[2] * n[3]) * sizeof(float);
    void* const sums = c.workspace(bytes);
    cudaMemsetAsync(sums, 0, bytes, c.stream());
    return static_cast<float*>(sums);
  };
  const Sums sums = {cleared(c.dq), cleared(c.dk), cleared(c.dv)};
  if (rows_of(c) > 0) {
    backward_rows<<<blocks(rows_of(c)), 128, 0, c.stream()>>>(
        Rows(c.on_device), c.q.view<T>(), c.k.view<T>(), c.v.view<T>(), c.o.view<T>(),
        c.lse.view<float>(), c.d_o.view<T>(), sums);
  }
  round_into<T>(c, sums.dq, c.dq);
  round_into<T>(c, sums.dk, c.dk);
  round_into<T>(c, sums.dv, c.dv);
}

// [minimal]
void forward(const Call& c) { forward_of<float>(c); }

// [inference training serving]
// Calls compute(T{}) with the type of the elements.
template <class Compute>
void with_element_type(attest_dtype dtype, Compute compute) {
  if (dtype == ATTEST_F16) return compute(__half{});
  if (dtype == ATTEST_BF16) return compute(__nv_bfloat16{});
  compute(float{});
}

void forward(const Call& c) {
  with_element_type(c.problem.dtype, [&](auto element) { forward_of<decltype(element)>(c); });
}

// [training]
void backward(const Call& c) {
  with_element_type(c.problem.dtype, [&](auto element) { backward_of<decltype(element)>(c); });
}

// [end]
const attest::Declaration kDeclared =
    attest::declare()
        .version("0.1.0")
        .vendor("@NAME@")
        // [minimal]
        .profiles({"forward-core", "device"})
        .dtypes({"f32"})
        .features({"causal", "lse", "gqa", "value-dim", "any-scale", "zero-sizes", "strides",
                   "stream", "two-streams", "graph", "new-shapes"})
        // [inference]
        .profiles({"forward-core", "varlen", "device"})
        .dtypes({"f32", "f16", "bf16"})
        .features({"causal", "window", "lse", "gqa", "value-dim", "any-scale", "zero-sizes",
                   "strides", "transposed", "expanded", "lengths", "stream", "two-streams", "graph",
                   "new-shapes"})
        // [training]
        .profiles({"forward-core", "training-core", "device"})
        .dtypes({"f32", "f16", "bf16"})
        .features({"causal", "window", "lse", "gqa", "value-dim", "any-scale", "zero-sizes",
                   "strides", "transposed", "expanded", "backward", "stream", "two-streams", "graph",
                   "new-shapes"})
        // [serving]
        .profiles({"forward-core", "varlen", "packed", "paged", "device"})
        .dtypes({"f32", "f16", "bf16"})
        .features({"causal", "window", "lse", "gqa", "value-dim", "any-scale", "zero-sizes",
                   "strides", "transposed", "expanded", "lengths", "packed", "paged", "stream",
                   "two-streams", "graph", "new-shapes"})
        // [end]
        .arithmetic("exact-f32");  // sums in f32, results rounded to the nearest

}  // namespace

// [minimal inference serving]
ATTEST_DEVICE_KERNEL("@NAME@", kDeclared, attest::device::Cuda, forward)
// [training]
ATTEST_DEVICE_KERNEL("@NAME@", kDeclared, attest::device::Cuda, forward, backward)
// [end]
