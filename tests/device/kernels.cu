// Kernels of CUDA on <attest/device.h>, for a real device (run.sh): "cuda/right" and
// "cuda/own_scratch", which compute attention in f32 and f16, and one kernel for each fault that a
// guard or a mode must catch. Built by nvcc as a library of its own, with the same names as the
// faults on the device that is none (faults.cpp).
#include <attest/device.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <limits>
#include <map>
#include <stdexcept>

namespace {

using attest::View;
using attest::device::Cuda;
using std::int64_t;
using Call = attest::device::Call<Cuda>;

constexpr int kMostChannels = 256;

void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

// ---- Attention, a thread for each row ------------------------------------------------------------

struct Sizes {
  int64_t batch, query_heads, key_heads, query_len, key_len, head_dim, value_dim;
  int64_t causal_end;  // of row 0: each later one sees a key more; beyond all keys where full
  float scale;
};

__device__ float number(float x) { return x; }
__device__ float number(__half x) { return __half2float(x); }
__device__ void put(float& to, float x) { to = x; }
__device__ void put(__half& to, float x) { to = __float2half_rn(x); }

// Of every `parts`-th row the `part`-th.
template <class T>
__global__ void attend(Sizes n, View<T> q, View<T> k, View<T> v, View<T> o, View<float> lse,
                       int64_t part, int64_t parts) {
  const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= n.batch * n.query_heads * n.query_len) return;
  const int64_t i = row % n.query_len, h = row / n.query_len % n.query_heads;
  const int64_t b = row / n.query_len / n.query_heads, g = h / (n.query_heads / n.key_heads);
  if (i % parts != part) return;
  int64_t end = n.causal_end + i;
  end = end < 0 ? 0 : end > n.key_len ? n.key_len : end;
  float top = -INFINITY, sum = 0, all[kMostChannels];
  for (int64_t d = 0; d < n.value_dim; ++d) all[d] = 0;
  for (int64_t j = 0; j < end; ++j) {
    float dot = 0;
    for (int64_t d = 0; d < n.head_dim; ++d) dot += number(q(b, h, i, d)) * number(k(b, g, j, d));
    const float s = dot * n.scale, higher = fmaxf(top, s);
    const float before = expf(top - higher), weight = expf(s - higher);
    sum = sum * before + weight;
    for (int64_t d = 0; d < n.value_dim; ++d) {
      all[d] = all[d] * before + weight * number(v(b, g, j, d));
    }
    top = higher;
  }
  for (int64_t d = 0; d < n.value_dim; ++d) put(o(b, h, i, d), end > 0 ? all[d] / sum : 0.0f);
  lse(b, h, i, 0) = end > 0 ? top + logf(sum) : -INFINITY;
}

Sizes sizes_of(const attest::Problem& p) {
  Sizes n = {p.batch,   p.query_heads, p.key_heads, p.query_len,
             p.key_len, p.head_dim,    p.value_dim, p.key_len, float(p.scale)};
  if (p.full()) return n;
  const attest_mask& causal = p.mask_nodes().back();
  n.causal_end = causal.offset + (causal.anchored_bottom_right ? p.key_len - p.query_len : 0) + 1;
  return n;
}

template <class T>
void attend_as(const Call& c, cudaStream_t stream, const attest::Tensor& v, int64_t part,
               int64_t parts) {
  const Sizes n = sizes_of(c.problem);
  const int64_t rows = n.batch * n.query_heads * n.query_len;
  if (rows == 0) return;
  attend<T><<<unsigned((rows + 63) / 64), 64, 0, stream>>>(n, c.q.view<T>(), c.k.view<T>(),
                                                           v.view<T>(), c.o.view<T>(),
                                                           c.lse.view<float>(), part, parts);
}

void attend(const Call& c, cudaStream_t stream, const attest::Tensor& v, int64_t part = 0,
            int64_t parts = 1) {
  if (c.problem.dtype == ATTEST_F16) {
    attend_as<__half>(c, stream, v, part, parts);
  } else {
    attend_as<float>(c, stream, v, part, parts);
  }
}

void right(const Call& c) { attend(c, c.stream(), c.v); }

attest::Declaration declared() {
  return attest::declare()
      .version("1")
      .vendor("Attest's own tests")
      .profiles({"forward-core", "device"})
      .dtypes({"f32", "f16"})
      .features({"causal", "lse", "gqa", "value-dim", "any-scale", "zero-sizes", "strides", "stream",
                 "two-streams", "graph", "new-shapes"})
      .limit("value_dim", R"({"max": 256})")
      .arithmetic("exact-f32");
}

ATTEST_DEVICE_KERNEL("cuda/right", declared(), Cuda, right)

// ---- Guards --------------------------------------------------------------------------------------

__global__ void write(unsigned char* at) { *at = 3; }
__global__ void flip(unsigned char* at) { *at ^= 0x40; }
__global__ void copy(unsigned char* to, const unsigned char* from, std::size_t bytes) {
  for (std::size_t i = threadIdx.x; i < bytes; i += blockDim.x) to[i] = from[i];
}
// Adds 0 times what lies before and behind V to the first element of O.
template <class T>
__global__ void add_slack(T* o, const T* v, std::size_t elements) {
  put(*o, number(*o) + 0 * number(v[-1]) + 0 * number(v[elements]));
}

unsigned char* bytes(const attest_tensor& t) { return static_cast<unsigned char*>(t.data); }

// Right, and then a byte written so many before the start of O, or behind its end.
auto writes(std::ptrdiff_t before, std::ptrdiff_t behind) {
  return [=](const Call& c) {
    right(c);
    const auto size = static_cast<std::ptrdiff_t>(c.o.capacity_bytes);
    write<<<1, 1, 0, c.stream()>>>(bytes(c.o) + (before > 0 ? -before : size + behind - 1));
  };
}
ATTEST_DEVICE_KERNEL("cuda/writes_before", declared(), Cuda, writes(1, 0))
ATTEST_DEVICE_KERNEL("cuda/writes_behind", declared(), Cuda, writes(0, 1))
ATTEST_DEVICE_KERNEL("cuda/writes_far_before", declared(), Cuda, writes(4097, 0))
ATTEST_DEVICE_KERNEL("cuda/writes_far_behind", declared(), Cuda, writes(0, 3000))

ATTEST_DEVICE_KERNEL("cuda/writes_into_gap", declared(), Cuda, [](const Call& c) {
  right(c);
  if (c.o.stride[2] <= c.o.shape[3]) return;  // there is none
  const std::size_t size = c.problem.dtype == ATTEST_F32 ? 4 : 2;
  write<<<1, 1, 0, c.stream()>>>(bytes(c.o) + std::size_t(c.o.shape[3]) * size);
})
ATTEST_DEVICE_KERNEL("cuda/mutates_input", declared(), Cuda, [](const Call& c) {
  right(c);
  flip<<<1, 1, 0, c.stream()>>>(bytes(c.k) + 4);
})
ATTEST_DEVICE_KERNEL("cuda/leaves_one_unwritten", declared(), Cuda, [](const Call& c) {
  auto* const kept = static_cast<unsigned char*>(c.workspace(4));
  const std::size_t size = c.problem.dtype == ATTEST_F32 ? 4 : 2;
  copy<<<1, 1, 0, c.stream()>>>(kept, bytes(c.o), size);
  right(c);
  copy<<<1, 1, 0, c.stream()>>>(bytes(c.o), kept, size);
})
ATTEST_DEVICE_KERNEL("cuda/reads_slack", declared(), Cuda, [](const Call& c) {
  right(c);
  if (c.problem.dtype == ATTEST_F32) {
    add_slack<<<1, 1, 0, c.stream()>>>(static_cast<float*>(c.o.data),
                                       static_cast<const float*>(c.v.data),
                                       c.v.capacity_bytes / 4);
  } else {
    add_slack<<<1, 1, 0, c.stream()>>>(static_cast<__half*>(c.o.data),
                                       static_cast<const __half*>(c.v.data),
                                       c.v.capacity_bytes / 2);
  }
})
ATTEST_DEVICE_KERNEL("cuda/overruns_workspace", declared(), Cuda, [](const Call& c) {
  right(c);
  write<<<1, 1, 0, c.stream()>>>(static_cast<unsigned char*>(c.workspace(100)) + 100);
})

// ---- Modes ---------------------------------------------------------------------------------------

ATTEST_DEVICE_KERNEL("cuda/default_stream", declared(), Cuda,
                     [](const Call& c) { attend(c, nullptr, c.v); })

// Some tenths of a millisecond, at random.
__global__ void wait_a_while() {
  const auto nanoseconds = [] {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
  };
  const unsigned long long begin = nanoseconds();
  const unsigned long long length = 50000 + (begin / 32 * 2654435761u >> 7) % 300000;
  while (nanoseconds() - begin < length) continue;
}

// V goes through scratch, some rows at a time, and lies there for a while before it is read.
void by_way_of(const Call& c, void* scratch) {
  attest::Tensor v = c.v;
  v.data = scratch;
  constexpr int kParts = 8;
  for (int part = 0; part < kParts; ++part) {
    copy<<<1, 256, 0, c.stream()>>>(static_cast<unsigned char*>(scratch), bytes(c.v),
                                    c.v.capacity_bytes);
    wait_a_while<<<1, 1, 0, c.stream()>>>();
    attend(c, c.stream(), v, part, kParts);
  }
}

// Memory that is there for the whole process.
void* memory_of_the_process() {
  static void* const memory = [] {
    void* all = nullptr;
    check(cudaMalloc(&all, std::size_t(64) << 20));
    return all;
  }();
  return memory;
}

ATTEST_DEVICE_KERNEL("cuda/own_scratch", declared(), Cuda,
                     [](const Call& c) { by_way_of(c, c.workspace(c.v.capacity_bytes)); })
ATTEST_DEVICE_KERNEL("cuda/shares_scratch", declared(), Cuda,
                     [](const Call& c) { by_way_of(c, memory_of_the_process()); })

// While a graph is captured, V is copied in another stream, which the graph knows nothing of.
ATTEST_DEVICE_KERNEL("cuda/bakes_inputs", declared(), Cuda, [](const Call& c) {
  static const cudaStream_t own = [] {
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
  }();
  attest::Tensor v = c.v;
  v.data = memory_of_the_process();
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(c.stream(), &status));
  const cudaStream_t stream = status == cudaStreamCaptureStatusNone ? c.stream() : own;
  check(cudaMemcpyAsync(v.data, c.v.data, c.v.capacity_bytes, cudaMemcpyDeviceToDevice, stream));
  attend(c, c.stream(), v);
})
ATTEST_DEVICE_KERNEL("cuda/allocates", declared(), Cuda, [](const Call& c) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, 64));
  right(c);
  check(cudaFree(memory));
})

__global__ void clear_rows(attest::View<float> lse, Sizes n, int64_t from) {
  for (int64_t i = from + threadIdx.x; i < n.query_len; i += blockDim.x) {
    for (int64_t h = 0; h < n.query_heads; ++h) lse(0, h, i, 0) = 0;
  }
}
// Rows of LSE beyond those that some call had are 0, and the first one is where that had more.
void as_many_rows_as(const Call& c, int64_t kept) {
  right(c);
  const Sizes n = sizes_of(c.problem);
  if (n.query_len != kept && n.batch > 0) {
    clear_rows<<<1, 64, 0, c.stream()>>>(c.lse.view<float>(), n, kept < n.query_len ? kept : 0);
  }
}
ATTEST_DEVICE_KERNEL("cuda/keeps_first_shape", declared(), Cuda, [](const Call& c) {
  static std::map<int64_t, int64_t> rows;  // by channels alone
  as_many_rows_as(c, rows.emplace(c.problem.head_dim, c.problem.query_len).first->second);
})
ATTEST_DEVICE_KERNEL("cuda/keeps_last_shape", declared(), Cuda, [](const Call& c) {
  static int64_t before = c.problem.query_len;
  const int64_t kept = before;
  before = c.problem.query_len;
  as_many_rows_as(c, kept);
})

// ---- Errors --------------------------------------------------------------------------------------

// In problems of one query, and in no other.
ATTEST_DEVICE_KERNEL("cuda/illegal_address", declared(), Cuda, [](const Call& c) {
  right(c);
  if (c.problem.query_len == 1) write<<<1, 1, 0, c.stream()>>>(reinterpret_cast<unsigned char*>(8));
})
ATTEST_DEVICE_KERNEL("cuda/bad_launch", declared(), Cuda, [](const Call& c) {
  right(c);
  if (c.problem.query_len == 1) write<<<1, 4096, 0, c.stream()>>>(nullptr);
})

}  // namespace
