// @NAME@: attention on a GPU, a thread for each row, to be replaced by your own. What it declares,
// at the end, it computes: declare what yours can do, no more (SPEC.md, chapters "Description" and
// "Limits"). The tensors of a call lie in the host's memory: they are copied to the device in f32,
// and the results back.
#include <attest/kernel.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

namespace {

using std::int64_t;

void check(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

// Memory of the device.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(const T* host, int64_t count) : bytes_(std::size_t(count) * sizeof(T)) {
    if (bytes_ == 0) return;
    check(cudaMalloc(&data_, bytes_));
    check(cudaMemcpy(data_, host, bytes_, cudaMemcpyHostToDevice));
  }
  explicit OnDevice(const attest::Dense<T>& dense) : OnDevice(dense.data(), dense.size()) {}
  explicit OnDevice(const std::vector<T>& all) : OnDevice(all.data(), int64_t(all.size())) {}
  ~OnDevice() { cudaFree(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  T* data() const { return static_cast<T*>(data_); }
  void copy_to(attest::Dense<T>& dense) const {
    if (bytes_ > 0) check(cudaMemcpy(dense.data(), data_, bytes_, cudaMemcpyDeviceToHost));
  }

 private:
  std::size_t bytes_;
  void* data_ = nullptr;
};

// A row, the same for all heads: where it lies, which keys it sees, and where the first key of its
// batch element stands in the list of all keys.
struct Row {
  attest::Place at;
  attest::Keys keys;
  int64_t first_key;
};

struct Sizes {
  int64_t rows, query_heads, key_heads, queries, keys, head_dim, value_dim;
  float scale;
};

// Elements of dense tensors, in the order BHSD.
__device__ int64_t at(attest::Place s, int64_t h, int64_t heads, int64_t positions, int64_t dim) {
  return ((s.batch * heads + h) * positions + s.position) * dim;
}

__device__ float dot(const float* x, const float* y, int64_t dim) {
  float sum = 0;
  for (int64_t d = 0; d < dim; ++d) sum += x[d] * y[d];
  return sum;
}

__global__ void forward_rows(Sizes n, const Row* rows, const attest::Place* keys, const float* q,
                             const float* k, const float* v, float* o, float* lse) {
  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (thread >= n.rows * n.query_heads) return;
  const Row row = rows[thread / n.query_heads];
  const int64_t h = thread % n.query_heads, g = h / (n.query_heads / n.key_heads);
  const float* own_q = q + at(row.at, h, n.query_heads, n.queries, n.head_dim);
  float* own_o = o + at(row.at, h, n.query_heads, n.queries, n.value_dim);
  const auto score = [&](int64_t j) {
    const attest::Place key = keys[row.first_key + j];
    return n.scale * dot(own_q, k + at(key, g, n.key_heads, n.keys, n.head_dim), n.head_dim);
  };
  float top = -INFINITY, sum = 0;
  for (int64_t j = row.keys.begin; j < row.keys.end; ++j) top = fmaxf(top, score(j));
  for (int64_t d = 0; d < n.value_dim; ++d) own_o[d] = 0;
  for (int64_t j = row.keys.begin; j < row.keys.end; ++j) {
    const float weight = expf(score(j) - top);
    const float* own_v = v + at(keys[row.first_key + j], g, n.key_heads, n.keys, n.value_dim);
    sum += weight;
    for (int64_t d = 0; d < n.value_dim; ++d) own_o[d] += weight * own_v[d];
  }
  for (int64_t d = 0; d < n.value_dim && sum > 0; ++d) own_o[d] /= sum;
  lse[at(row.at, h, n.query_heads, n.queries, 1)] = sum > 0 ? top + logf(sum) : -INFINITY;
}

// [training]
__global__ void backward_rows(Sizes n, const Row* rows, const attest::Place* keys, const float* q,
                              const float* k, const float* v, const float* o, const float* lse,
                              const float* d_o, float* dq, float* dk, float* dv) {
  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (thread >= n.rows * n.query_heads) return;
  const Row row = rows[thread / n.query_heads];
  const int64_t h = thread % n.query_heads, g = h / (n.query_heads / n.key_heads);
  const int64_t own_q = at(row.at, h, n.query_heads, n.queries, n.head_dim);
  const int64_t own_o = at(row.at, h, n.query_heads, n.queries, n.value_dim);
  const float own_lse = lse[at(row.at, h, n.query_heads, n.queries, 1)];
  const float mean = dot(d_o + own_o, o + own_o, n.value_dim);  // of dP, weighted by P
  for (int64_t j = row.keys.begin; j < row.keys.end; ++j) {
    const attest::Place key = keys[row.first_key + j];
    const int64_t own_k = at(key, g, n.key_heads, n.keys, n.head_dim);
    const int64_t own_v = at(key, g, n.key_heads, n.keys, n.value_dim);
    const float weight = expf(n.scale * dot(q + own_q, k + own_k, n.head_dim) - own_lse);
    const float ds = weight * (dot(d_o + own_o, v + own_v, n.value_dim) - mean) * n.scale;
    for (int64_t d = 0; d < n.value_dim; ++d) atomicAdd(dv + own_v + d, weight * d_o[own_o + d]);
    for (int64_t d = 0; d < n.head_dim; ++d) {
      dq[own_q + d] += ds * k[own_k + d];
      atomicAdd(dk + own_k + d, ds * q[own_q + d]);
    }
  }
}

// [end]
// What both passes are called with.
struct Launch {
  Sizes sizes;
  std::vector<Row> rows;
  std::vector<attest::Place> keys;

  explicit Launch(const attest::Call& c) {
    const attest::Problem& p = c.problem;
    for (int64_t b = 0; b < p.batch; ++b) {
      const auto first = int64_t(keys.size());
      for (int64_t j = 0; j < p.columns(b); ++j) keys.push_back(p.key_place(b, j));
      for (int64_t i = 0; i < p.rows(b); ++i) {
        rows.push_back({p.query_place(b, i), p.keys(b, i), first});
      }
    }
    sizes = {int64_t(rows.size()), p.query_heads, p.key_heads, c.q.shape[2],
             c.k.shape[2],         p.head_dim,    p.value_dim, float(p.scale)};
  }
  unsigned blocks() const { return unsigned((sizes.rows * sizes.query_heads + 127) / 128); }
};

void forward(const attest::Call& c) {
  const Launch launch(c);
  if (launch.blocks() == 0) return;
  auto o = attest::dense<float>(c.o), lse = attest::dense<float>(c.lse);
  const OnDevice<float> q(attest::gather<float>(c.q)), k(attest::gather<float>(c.k));
  const OnDevice<float> v(attest::gather<float>(c.v)), on_o(o), on_lse(lse);
  const OnDevice<Row> rows(launch.rows);
  const OnDevice<attest::Place> keys(launch.keys);
  forward_rows<<<launch.blocks(), 128>>>(launch.sizes, rows.data(), keys.data(), q.data(), k.data(),
                                         v.data(), on_o.data(), on_lse.data());
  check(cudaGetLastError());
  on_o.copy_to(o);
  on_lse.copy_to(lse);
  attest::scatter(o, c.o);
  attest::scatter(lse, c.lse);
}

// [training]
void backward(const attest::Call& c) {
  const Launch launch(c);
  auto dq = attest::dense<float>(c.dq), dk = attest::dense<float>(c.dk);
  auto dv = attest::dense<float>(c.dv);
  const OnDevice<float> q(attest::gather<float>(c.q)), k(attest::gather<float>(c.k));
  const OnDevice<float> v(attest::gather<float>(c.v)), o(attest::gather<float>(c.o));
  const OnDevice<float> lse(attest::gather<float>(c.lse));
  const OnDevice<float> d_o(attest::gather<float>(c.d_o)), on_dq(dq), on_dk(dk), on_dv(dv);
  const OnDevice<Row> rows(launch.rows);
  const OnDevice<attest::Place> keys(launch.keys);
  if (launch.blocks() > 0) {
    backward_rows<<<launch.blocks(), 128>>>(launch.sizes, rows.data(), keys.data(), q.data(),
                                            k.data(), v.data(), o.data(), lse.data(), d_o.data(),
                                            on_dq.data(), on_dk.data(), on_dv.data());
    check(cudaGetLastError());
  }
  on_dq.copy_to(dq);
  on_dk.copy_to(dk);
  on_dv.copy_to(dv);
  attest::scatter(dq, c.dq);
  attest::scatter(dk, c.dk);
  attest::scatter(dv, c.dv);
}

// [end]
const attest::Declaration kDeclared =
    attest::declare()
        .version("0.1.0")
        .vendor("@NAME@")
        // [minimal]
        .profiles({"forward-core"})
        .dtypes({"f32"})
        .features({"causal", "lse", "gqa", "value-dim", "any-scale", "zero-sizes", "strides"})
        // [inference]
        .profiles({"forward-core", "varlen"})
        .dtypes({"f32", "f16", "bf16"})
        .features({"causal", "window", "lse", "gqa", "value-dim", "any-scale", "zero-sizes",
                   "strides", "transposed", "expanded", "lengths"})
        // [training]
        .profiles({"forward-core", "training-core"})
        .dtypes({"f32", "f16", "bf16"})
        .features({"causal", "window", "lse", "gqa", "value-dim", "any-scale", "zero-sizes",
                   "strides", "transposed", "expanded", "backward"})
        // [serving]
        .profiles({"forward-core", "varlen", "packed", "paged"})
        .dtypes({"f32", "f16", "bf16"})
        .features({"causal", "window", "lse", "gqa", "value-dim", "any-scale", "zero-sizes",
                   "strides", "transposed", "expanded", "lengths", "packed", "paged"})
        // [end]
        .arithmetic("exact-f32");  // sums in f32, results rounded to the nearest

}  // namespace

// [minimal inference serving]
ATTEST_KERNEL("@NAME@", kDeclared, forward)
// [training]
ATTEST_KERNEL("@NAME@", kDeclared, forward, backward)
// [end]
