// How fast the bundled kernels are, called as any host calls a plug-in.
//
//   fwd/fa2/f32/S=2048/D=64/full/threads=1   direction, kernel, dtype, sizes, mask, threads
//     gflops
//     peak_fraction: of multiply-adds in f32 registers (of bf16 products on tiles for kernels that
//     compute there), by as many threads
//     peak_memory: bytes of inputs, outputs and whatever the call touched besides; extra_memory:
//     of the latter alone
//   peak/amx                                 gflops: what the processor's tiles can do at most;
//     ratio: over multiply-adds in f32 registers
//   ratio/f32_over_amx/...                   ratio: the time of fa2 in f32 over that of fa2/amx
//   ratio/NAME/...                           ratio: the time of NAME over that of fa2
//     o_bytes, fa2_o_bytes (ratio/fa1_split_kv/fwd): moved to and from O
//   ratio/causal/...                         ratio: the time of fa2 with a full mask over causal
//   ratio/softcap/...                        ratio: the time of fa2 with a softcap over without
//   ratio/contiguous_halves/...              ratio: one head, causal, two threads: the time of fa2,
//     which deals the query blocks in halves, over that of causal_balanced
//   ratio/one_thread/...                     ratio: one head, causal: the time of causal_balanced
//     with one thread over that with two; ratio/one_thread_fa2/bwd: of fa2
//   ratio/dense_mask/...                     ratio: the time of lazy_mask/dense over lazy_mask
//     steady_ratio: the same without making the mask; setup_ratio: making it over classifying all
//     its blocks; mask_ratio: bytes of the mask; peak_memory, dense_peak_memory: bytes of one call
//
// One batch element; a head for each thread, unless said otherwise. Causal work counts half.
#include <benchmark/benchmark.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "impl/amx/availability.h"
#include "impl/elements.h"
#include "impl/flash.h"
#include "impl/mask.h"
#include "impl/whole_mask.h"
#include "spec/attest_plugin.h"
#include "tests/bench/measure.h"
#include "tests/bench/prototype.h"
#include "tests/bench/rivals.h"
#include "tests/bench/tile_peak.h"

namespace attest {
namespace {

using Index = std::int64_t;

// ---- Memory ------------------------------------------------------------------------------------

// From the system and back to it at once, so that what is resident is what is in use.
class Memory {
 public:
  explicit Memory(std::uint64_t bytes) : bytes_(std::max<std::uint64_t>(bytes, 1)) {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~Memory() { munmap(data_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::uint64_t bytes_;
  void* data_;
};

double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

// The most that was resident since reset_peak().
double peak_resident_bytes() {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    double kilobytes = 0;
    if (word == "VmHWM:" && file >> kilobytes) return 1024 * kilobytes;
  }
  return 0;
}

bool reset_peak() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return static_cast<bool>(file);
}

// ---- Calls -------------------------------------------------------------------------------------

struct Setting {
  const attest_kernel* kernel;
  attest_dtype dtype;
  Index length, dim;
  bool causal, backward;
  int threads;
  Index window = ATTEST_UNBOUNDED;  // causal: how far back a query sees
  Index heads = threads;
  double softcap = 0;

  // Operations of all heads, a multiply-add being two.
  double operations() const {
    const double pairs =
        static_cast<double>(length) *
        (causal ? std::min(static_cast<double>(length) / 2, static_cast<double>(window))
                : static_cast<double>(length));
    return (backward ? 10 : 4) * pairs * static_cast<double>(dim * heads);
  }
};

class HostTensor {
 public:
  HostTensor(attest_dtype dtype, Index heads, Index length, Index channels)
      : memory_(static_cast<std::uint64_t>(heads * length * channels) *
                impl::with_element_type(dtype, [](auto e) { return sizeof e; })),
        tensor_{.data = memory_.data(),
                .dtype = dtype,
                .reserved = 0,
                .shape = {1, heads, length, channels},
                .stride = {heads * length * channels, length * channels, channels, 1},
                .capacity_bytes = memory_.bytes()} {}

  // Standard normal numbers.
  void draw(unsigned seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> distribution;
    impl::with_element_type(tensor_.dtype, [&](auto element) {
      using T = decltype(element);
      T* numbers = static_cast<T*>(tensor_.data);
      for (std::uint64_t n = 0; n < memory_.bytes() / sizeof(T); ++n) {
        numbers[n] = impl::narrow<T>(distribution(random));
      }
    });
  }

  const attest_tensor& tensor() const { return tensor_; }
  std::uint64_t bytes() const { return memory_.bytes(); }
  float* floats() const { return static_cast<float*>(tensor_.data); }

 private:
  Memory memory_;
  attest_tensor tensor_;
};

// A kernel with everything that its calls need.
class Call {
 public:
  explicit Call(const Setting& setting)
      : kernel_(*setting.kernel),
        threads_(setting.threads),
        q(tensor(setting)),
        k(tensor(setting)),
        v(tensor(setting)),
        o(tensor(setting)),
        lse_(ATTEST_F32, setting.heads, setting.length, 1) {
    mask_.struct_size = sizeof mask_;
    mask_.kind = ATTEST_MASK_BAND;
    mask_.left = setting.window;
    problem_.struct_size = sizeof problem_;
    problem_.dtype = setting.dtype;
    problem_.backward = setting.backward;
    problem_.batch = 1;
    problem_.query_heads = problem_.key_heads = setting.heads;
    problem_.query_len = problem_.key_len = setting.length;
    problem_.head_dim = problem_.value_dim = setting.dim;
    problem_.scale = 1 / std::sqrt(static_cast<double>(setting.dim));
    problem_.softcap = setting.softcap;
    problem_.mask = setting.causal ? &mask_ : nullptr;
    problem_.mask_count = setting.causal ? 1 : 0;
    char reason[256] = "";
    if (!kernel_.supports(&kernel_, &problem_, reason, sizeof reason)) {
      throw std::runtime_error(reason);
    }
    q.draw(1);
    k.draw(2);
    v.draw(3);
    inputs_.struct_size = sizeof inputs_;
    inputs_.q = q.tensor();
    inputs_.k = k.tensor();
    inputs_.v = v.tensor();
    outputs_.struct_size = sizeof outputs_;
    outputs_.o = o.tensor();
    outputs_.lse = lse_.tensor();
    prepare(false);
    if (!setting.backward) return;
    run();
    for (int n = 0; n < 4; ++n) {
      gradients_.emplace_back(setting.dtype, setting.heads, setting.length, setting.dim);
    }
    gradients_[0].draw(4);
    inputs_.o = o.tensor();
    inputs_.lse = lse_.tensor();
    inputs_.d_o = gradients_[0].tensor();
    outputs_ = {};
    outputs_.struct_size = sizeof outputs_;
    outputs_.dq = gradients_[1].tensor();
    outputs_.dk = gradients_[2].tensor();
    outputs_.dv = gradients_[3].tensor();
    prepare(true);
  }

  void run() {
    const auto function = backward_ ? kernel_.backward : kernel_.forward;
    if (function(&kernel_, &problem_, &inputs_, &outputs_, &context_) != ATTEST_OK) {
      throw std::runtime_error(message_);
    }
  }

  // The rows of all blocks of a run, each as often as it is in one. For one thread.
  Index rows_of_blocks() {
    Index rows = 0;
    context_.trace_context = &rows;
    context_.trace = [](void* sum, const attest_block* block) {
      *static_cast<Index*>(sum) += block->query_end - block->query_begin;
    };
    run();
    context_.trace = nullptr;
    return rows;
  }

  // Bytes of inputs and outputs.
  double tensor_bytes() const {
    std::uint64_t bytes = 0;
    for (const HostTensor* tensor : {&q, &k, &v, &o, &lse_}) bytes += tensor->bytes();
    for (const HostTensor& tensor : gradients_) bytes += tensor.bytes();
    return static_cast<double>(bytes);
  }

  // The problem as a kernel knows it.
  impl::Call described() const {
    impl::Call call;
    call.problem = problem_;
    call.mask.assign(problem_.mask, problem_.mask + problem_.mask_count);
    call.lengths = {{problem_.query_len, problem_.key_len}};
    return call;
  }

 private:
  static HostTensor tensor(const Setting& setting) {
    return HostTensor(setting.dtype, setting.heads, setting.length, setting.dim);
  }

  void prepare(bool backward) {
    constexpr std::uint64_t kMost = std::uint64_t{2} << 30;
    const std::uint64_t bytes = kernel_.workspace(&kernel_, &problem_, backward, threads_);
    if (bytes > kMost) throw std::runtime_error("the workspace is larger than 2 GiB");
    workspace_ = std::make_unique<Memory>(bytes);
    backward_ = backward;
    context_.struct_size = sizeof context_;
    context_.threads = threads_;
    context_.workspace = workspace_->data();
    context_.workspace_bytes = bytes;
    context_.message = message_;
    context_.message_bytes = sizeof message_;
  }

  const attest_kernel& kernel_;
  int threads_;
  bool backward_ = false;
  attest_mask mask_ = {};
  attest_problem problem_ = {};
  attest_inputs inputs_ = {};
  attest_outputs outputs_ = {};
  attest_context context_ = {};
  char message_[256] = "";
  std::unique_ptr<Memory> workspace_;

 public:
  HostTensor q, k, v, o;

 private:
  HostTensor lse_;
  std::deque<HostTensor> gradients_;  // of O, Q, K, V
};

// Runs measure(); a kernel that cannot do it is skipped with what it says.
template <class Measure>
void guarded(benchmark::State& state, const Measure& measure) {
  try {
    measure();
  } catch (const std::exception& error) {
    state.SkipWithError(error.what());
  }
}

// A kernel ready to be called again, and what its first call took.
struct Started {
  explicit Started(const Setting& setting)
      : before(resident_bytes()), call(setting), measured(reset_peak()) {
    call.run();
    peak_memory = peak_resident_bytes() - before;
  }

  void report(benchmark::State& state, const char* counter) const {
    if (measured) state.counters[counter] = peak_memory;
  }

  double before;
  Call call;
  bool measured;
  double peak_memory;
};

bool computes_on_tiles(const attest_kernel* kernel) {
  return std::string_view(kernel->name).ends_with("/amx");
}

// The peaks of the two units in turn.
void tile_peak_alone(benchmark::State& state) {
  const std::string missing = impl::amx::missing_for_tiles();
  if (!missing.empty()) return state.SkipWithError(missing.c_str());
  std::vector<double> rates;
  Figures ratios;
  for (auto _ : state) {
    ratios.take([&] {
      rates.push_back(tile_peak());
      return rates.back() / fma_peak();
    });
  }
  state.counters["gflops"] = 1e-9 * median(rates);
  state.counters["ratio"] = ratios.median();
}

bool has_dtype(const attest_kernel* kernel, attest_dtype dtype) {
  attest_problem problem = {};
  problem.struct_size = sizeof problem;
  problem.dtype = dtype;
  problem.batch = problem.query_heads = problem.key_heads = problem.query_len = problem.key_len =
      problem.head_dim = problem.value_dim = 1;
  return kernel->supports(kernel, &problem, nullptr, 0) != 0;
}

void kernel_alone(benchmark::State& state, const Setting& setting) {
  guarded(state, [&] {
    Started started(setting);
    Call& call = started.call;
    started.report(state, "peak_memory");
    if (started.measured) {
      state.counters["extra_memory"] = started.peak_memory - call.tensor_bytes();
    }
    against_peak(
        state, setting.operations(), [&] { call.run(); }, setting.threads,
        computes_on_tiles(setting.kernel) ? &tile_peak : &fma_peak);
  });
}

// ---- Comparisons -------------------------------------------------------------------------------

void kernels_in_turn(benchmark::State& state, const Setting& theirs, const Setting& ours) {
  guarded(state, [&] {
    Call their_call(theirs), our_call(ours);
    const bool alone = theirs.threads == 1 && ours.threads == 1;
    against_rival(
        state, [&] { their_call.run(); }, [&] { our_call.run(); },
        alone ? Clock::thread : Clock::real);
  });
}

// What FlashAttention-2 saved: before it, each block read O of its rows and wrote it back, in f32.
void loop_orders(benchmark::State& state, const Setting& key_blocks_outside, const Setting& fa2) {
  kernels_in_turn(state, key_blocks_outside, fa2);
  if (fa2.backward) return;
  guarded(state, [&] {
    const auto bytes = [&](Index rows) { return static_cast<double>(rows * fa2.dim) * 4; };
    state.counters["o_bytes"] = 2 * bytes(Call(key_blocks_outside).rows_of_blocks());
    state.counters["fa2_o_bytes"] = bytes(fa2.length);
  });
}

// What it costs to make the mask beforehand.
void masks_in_turn(benchmark::State& state, const Setting& dense, const Setting& lazy) {
  guarded(state, [&] {
    Started started_dense(dense), started_lazy(lazy);
    started_dense.report(state, "dense_peak_memory");
    started_lazy.report(state, "peak_memory");
    const impl::Call problem = started_lazy.call.described();
    const Index query_block = impl::kQueryBlock;
    const Index key_block =
        lazy.backward ? impl::kKeyBlock : impl::forward_key_block(problem.problem);
    const auto whole_mask = [&](impl::Arena arena) {
      return impl::WholeMask(problem, query_block, key_block, arena);
    };
    const Memory memory(whole_mask(impl::Arena()).bytes());
    impl::WholeMask mask = whole_mask(impl::Arena(memory.data()));
    mask.make();
    Figures ratios, steady_ratios, setup_ratios;
    for (auto _ : state) {
      double dense_seconds, lazy_seconds, make_seconds;
      ratios.take([&] {
        dense_seconds = seconds_of([&] { started_dense.call.run(); });
        lazy_seconds = seconds_of([&] { started_lazy.call.run(); });
        return dense_seconds / lazy_seconds;
      });
      setup_ratios.take([&] {
        make_seconds = seconds_of([&] { mask.make(); });
        return make_seconds / seconds_of([&] {
                 impl::BlockMask blocks(problem);
                 for (Index query = 0; query < lazy.length; query += query_block) {
                   for (Index key = 0; key < lazy.length; key += key_block) {
                     benchmark::DoNotOptimize(
                         blocks.classify(0, 0,
                                         {query, std::min(query + query_block, lazy.length), key,
                                          std::min(key + key_block, lazy.length)}));
                   }
                 }
               });
      });
      steady_ratios.take([&] { return (dense_seconds - make_seconds) / lazy_seconds; });
    }
    state.counters["ratio"] = ratios.median();
    state.counters["steady_ratio"] = steady_ratios.median();
    state.counters["setup_ratio"] = setup_ratios.median();
    state.counters["mask_ratio"] =
        static_cast<double>(mask.bytes()) / static_cast<double>(query_block * key_block);
  });
}

void rival(benchmark::State& state, const Setting& ours, void (*theirs)(const RivalCall&)) {
  guarded(state, [&] {
    Call call(ours);
    Numbers o(ours.length * ours.dim), workspace(rival_workspace(ours.length));
    const RivalCall their_call = {impl::engines<float>().front(),
                                  ours.length,
                                  ours.dim,
                                  call.q.floats(),
                                  call.k.floats(),
                                  call.v.floats(),
                                  o,
                                  workspace};
    against_rival(
        state, [&] { theirs(their_call); }, [&] { call.run(); });
  });
}

// ---- The list ----------------------------------------------------------------------------------

// All kernels of all plug-ins in the folder.
std::vector<const attest_kernel*> load_kernels(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".so") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<const attest_kernel*> kernels;
  for (const auto& file : files) {
    void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) throw std::runtime_error(dlerror());
    const auto get =
        reinterpret_cast<attest_plugin_get_function>(dlsym(library, ATTEST_PLUGIN_SYMBOL));
    if (!get) throw std::runtime_error(dlerror());
    const attest_plugin* plugin = get();
    kernels.insert(kernels.end(), plugin->kernels, plugin->kernels + plugin->kernel_count);
  }
  return kernels;
}

std::string sizes_of(const Setting& setting) {
  return "/S=" + std::to_string(setting.length) + "/D=" + std::to_string(setting.dim);
}

template <class Function, class... Arguments>
void add(const std::string& name, Function function, Arguments... arguments) {
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
    function(state, arguments...);
  })->Unit(benchmark::kMillisecond);
}

void add_kernel(const attest_kernel* kernel) {
  const std::pair<const char*, attest_dtype> formats[] = {
      {"f32", ATTEST_F32}, {"bf16", ATTEST_BF16}, {"f16", ATTEST_F16}};
  const int all_threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  for (const bool backward : {false, true}) {
    if (backward && !kernel->backward) continue;
    for (const auto& [format, dtype] : formats) {
      if (!has_dtype(kernel, dtype)) continue;
      for (const Index length : {512, 1024, 2048, 4096, 8192, 16384}) {
        for (const Index dim : {64, 128, 256}) {
          for (const bool causal : {false, true}) {
            for (int threads = 1; threads <= all_threads; threads += std::max(all_threads - 1, 1)) {
              const Setting setting = {kernel, dtype, length, dim, causal, backward, threads};
              add((backward ? "bwd/" : "fwd/") + std::string(kernel->name) + "/" + format +
                      sizes_of(setting) + (causal ? "/causal" : "/full") +
                      "/threads=" + std::to_string(threads),
                  kernel_alone, setting);
            }
          }
        }
      }
    }
  }
}

// S5: causal, and a sliding window of an eighth.
void add_masks(const attest_kernel* dense, const attest_kernel* lazy) {
  for (const Index length : {2048, 4096, 8192, 32768}) {
    for (const bool backward : {false, true}) {
      for (const Index window : {ATTEST_UNBOUNDED, length / 8}) {
        Setting mine = {lazy, ATTEST_F32, length, 64, true, backward, 1, window};
        Setting theirs = mine;
        theirs.kernel = dense;
        add(std::string("ratio/dense_mask") + (backward ? "/bwd" : "/fwd") + sizes_of(mine) +
                (window == ATTEST_UNBOUNDED ? "/causal" : "/window"),
            masks_in_turn, theirs, mine);
      }
    }
  }
}

// S1 and S3: one head, causal, for two threads.
void add_dealings(const attest_kernel* halves, const attest_kernel* balanced) {
  for (const Index length : {2048, 4096, 8192}) {
    for (const Index dim : {64, 128}) {
      for (const bool backward : {false, true}) {
        const Setting ours = {balanced, ATTEST_F32, length,           dim, true,
                              backward, 2,          ATTEST_UNBOUNDED, 1};
        const std::string what = (backward ? "/bwd" : "/fwd") + sizes_of(ours) + "/causal";
        Setting alone = ours;
        alone.threads = 1;
        add("ratio/one_thread" + what, kernels_in_turn, alone, ours);
        Setting theirs = ours;
        theirs.kernel = halves;
        if (backward) {
          alone.kernel = halves;
          add("ratio/one_thread_fa2" + what, kernels_in_turn, alone, theirs);
        } else {
          add("ratio/contiguous_halves" + what, kernels_in_turn, theirs, ours);
        }
      }
    }
  }
}

void add_comparisons(const std::vector<const attest_kernel*>& kernels) {
  const auto find = [&](std::string_view name) {
    const auto found = std::find_if(kernels.begin(), kernels.end(), [&](const auto* kernel) {
      return std::string_view(kernel->name) == name;
    });
    return found == kernels.end() ? nullptr : *found;
  };
  const attest_kernel *fa2 = find("fa2"), *naive = find("naive"), *fa1 = find("fa1_split_kv");
  const attest_kernel* textbook = find("naive/textbook");
  const attest_kernel *lazy_mask = find("lazy_mask"), *dense_mask = find("lazy_mask/dense");
  const attest_kernel *amx = find("fa2/amx"), *balanced = find("causal_balanced");
  if (lazy_mask && dense_mask) add_masks(dense_mask, lazy_mask);
  if (!fa2) return;
  if (balanced && std::thread::hardware_concurrency() > 1) add_dealings(fa2, balanced);
  const auto over = [&](std::initializer_list<Index> lengths, const auto& add_one) {
    for (const Index length : lengths) {
      for (const Index dim : {64, 128}) {
        add_one(Setting{fa2, ATTEST_F32, length, dim, false, false, 1});
      }
    }
  };
  if (amx) {
    over({2048, 4096}, [&](const Setting& f32) {
      for (const bool backward : {false, true}) {
        Setting theirs = f32, ours = f32;
        theirs.backward = ours.backward = backward;
        ours.kernel = amx;
        ours.dtype = ATTEST_BF16;
        add(std::string("ratio/f32_over_amx") + (backward ? "/bwd" : "/fwd") + sizes_of(ours),
            kernels_in_turn, theirs, ours);
      }
    });
  }
  over({1024, 2048}, [](const Setting& ours) {
    add("ratio/textbook" + sizes_of(ours), rival, ours, &textbook_forward);
  });
#ifdef ATTEST_BENCH_BLAS
  // The scores as one matrix, and in pieces that stay in the cache.
  over({2048, 4096}, [](const Setting& ours) {
    add("ratio/blas" + sizes_of(ours), rival, ours, &blas_forward<kLongestRival>);
    add("ratio/blas_in_blocks" + sizes_of(ours), rival, ours, &blas_forward<256>);
  });
#endif
  over({2048, 4096}, [&](const Setting& ours) {
    for (const bool backward : {false, true}) {
      const std::string direction = backward ? "/bwd" : "/fwd";
      Setting full = ours, causal = ours;
      full.backward = causal.backward = backward;
      causal.causal = true;
      add("ratio/causal" + direction + sizes_of(ours), kernels_in_turn, full, causal);
      Setting capped = full;
      capped.softcap = 30;
      add("ratio/softcap" + direction + sizes_of(ours), kernels_in_turn, capped, full);
      if (fa1) {
        Setting theirs = full;
        theirs.kernel = fa1;
        add("ratio/fa1_split_kv" + direction + sizes_of(ours), loop_orders, theirs, full);
      }
      if (!naive) continue;
      if (textbook) {
        Setting theirs = full;
        theirs.kernel = textbook;
        add("ratio/naive_textbook" + direction + sizes_of(ours), kernels_in_turn, theirs, full);
      }
      for (const Setting& mine : {full, causal}) {
        Setting theirs = mine;
        theirs.kernel = naive;
        add("ratio/naive" + direction + sizes_of(ours) + (mine.causal ? "/causal" : "/full"),
            kernels_in_turn, theirs, mine);
      }
    }
  });
}

[[maybe_unused]] const bool registered = [] {
  const auto kernels = load_kernels(ATTEST_PLUGINS);
  benchmark::RegisterBenchmark("peak/amx", tile_peak_alone);
  for (const attest_kernel* kernel : kernels) add_kernel(kernel);
  add_comparisons(kernels);
  return true;
}();

}  // namespace
}  // namespace attest
