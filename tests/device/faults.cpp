// Kernels on <attest/device.h> and a device that is none: "fake/right", and one for each fault that
// a guard or a mode must catch. What they compute is plain attention.
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/device/fake.h"
#include "tests/harness/plain_kernel.h"

namespace {

using attest::device::Fake;
using Call = attest::device::Call<Fake>;
using Stream = Fake::Stream;

attest::Declaration declared() {
  return attest::declare()
      .dtypes({"f32"})
      .features({"causal", "lse", "gqa", "value-dim", "strides", "backward", "window", "lengths",
                 "stream", "two-streams", "graph", "new-shapes"})
      .arithmetic("exact-f32");
}

// A call as work that is done later, when the Call is gone.
struct Later {
  explicit Later(const Call& c)
      : problem(c.on_device), inputs(c.inputs), outputs(c.outputs), context(c.context) {}
  void forward() const { attest::plain::forward(problem, inputs, outputs, context); }
  void backward() const { attest::plain::backward(problem, inputs, outputs, context); }

  attest_problem problem;
  attest_inputs inputs;
  attest_outputs outputs;
  attest_context context;
};

void compute(const Call& c, Stream stream) {
  const Later later(c);
  if (c.backward) {
    Fake::launch(stream, [later] { later.backward(); });
  } else {
    Fake::launch(stream, [later] { later.forward(); });
  }
}

// Each call goes in another order.
void begin(const Call& c) {
  static unsigned calls = 0;
  (void)c;
  ++calls;
  Fake::state().dice.seed(calls);
  Fake::state().haste = static_cast<Fake::Haste>(calls % 3);
}

void right(const Call& c) {
  begin(c);
  void* const scratch = c.workspace(256);
  Fake::launch(c.stream(), [scratch] { std::memset(scratch, 1, 256); });
  compute(c, c.stream());
}

// Right, and then something else in the same stream.
template <class Harm>
auto and_then(Harm harm) {
  return [harm](const Call& c) {
    begin(c);
    compute(c, c.stream());
    Fake::launch(c.stream(), harm(c));
  };
}

unsigned char* bytes(const attest_tensor& t) { return static_cast<unsigned char*>(t.data); }

auto writes(std::ptrdiff_t before, std::ptrdiff_t behind) {
  return and_then([=](const Call& c) {
    unsigned char* const o = bytes(c.outputs.o.data ? c.outputs.o : c.outputs.dq);
    const auto size = static_cast<std::ptrdiff_t>(c.outputs.o.data ? c.outputs.o.capacity_bytes
                                                                   : c.outputs.dq.capacity_bytes);
    unsigned char* const at = before > 0 ? o - before : o + size + behind - 1;
    return [at] { *at = 3; };
  });
}

ATTEST_DEVICE_KERNEL("fake/right", declared(), Fake, right, right)
ATTEST_DEVICE_KERNEL("fake/writes_before", declared(), Fake, writes(1, 0), writes(1, 0))
ATTEST_DEVICE_KERNEL("fake/writes_behind", declared(), Fake, writes(0, 1), writes(0, 1))
ATTEST_DEVICE_KERNEL("fake/writes_far_behind", declared(), Fake, writes(0, 3000))
ATTEST_DEVICE_KERNEL("fake/writes_far_before", declared(), Fake, writes(4097, 0))
ATTEST_DEVICE_KERNEL("fake/writes_into_gap", declared(), Fake, and_then([](const Call& c) {
                       const attest_tensor o = c.outputs.o;
                       float* const row_end = static_cast<float*>(o.data) + o.shape[3];
                       return [row_end, o] {
                         if (o.stride[2] > o.shape[3]) *row_end = 1;
                       };
                     }))
ATTEST_DEVICE_KERNEL("fake/mutates_input", declared(), Fake, and_then([](const Call& c) {
                       float* const k = static_cast<float*>(c.inputs.k.data);
                       return [k] { k[1] = 2 * k[1] + 1; };
                     }))
ATTEST_DEVICE_KERNEL("fake/mutates_slack_of_input", declared(), Fake, and_then([](const Call& c) {
                       unsigned char* const v = bytes(c.inputs.v);
                       const auto size = static_cast<std::ptrdiff_t>(c.inputs.v.capacity_bytes);
                       return [v, size] { v[size] ^= 1; };
                     }))
ATTEST_DEVICE_KERNEL("fake/leaves_one_unwritten", declared(), Fake, [](const Call& c) {
  begin(c);
  float* const first = static_cast<float*>(c.outputs.o.data);
  const Later later(c);
  Fake::launch(c.stream(), [=] {
    const float poison = *first;
    later.forward();
    std::memcpy(first, &poison, sizeof(poison));
  });
})
ATTEST_DEVICE_KERNEL("fake/reads_slack", declared(), Fake, [](const Call& c) {
  begin(c);
  const Later later(c);
  float* const o = static_cast<float*>(c.outputs.o.data);
  const attest_tensor v = c.inputs.v;
  const auto* const behind = bytes(v) + v.capacity_bytes;
  const auto* const before = bytes(v) - sizeof(float);
  Fake::launch(c.stream(), [=] {
    later.forward();
    float a, b;
    std::memcpy(&a, before, sizeof(a));
    std::memcpy(&b, behind, sizeof(b));
    o[0] += 0 * a + 0 * b;
  });
})
ATTEST_DEVICE_KERNEL("fake/overruns_workspace", declared(), Fake, [](const Call& c) {
  begin(c);
  auto* const scratch = static_cast<unsigned char*>(c.workspace(100));
  compute(c, c.stream());
  Fake::launch(c.stream(), [scratch] { scratch[100] = 0; });
})
ATTEST_DEVICE_KERNEL("fake/underruns_workspace", declared(), Fake, [](const Call& c) {
  begin(c);
  auto* const scratch = static_cast<unsigned char*>(c.workspace(100));
  compute(c, c.stream());
  Fake::launch(c.stream(), [scratch] { scratch[-8] = 0; });
})
ATTEST_DEVICE_KERNEL("fake/trusts_workspace", declared(), Fake, [](const Call& c) {
  begin(c);
  auto* const scratch = static_cast<float*>(c.workspace(100));
  float* const o = static_cast<float*>(c.outputs.o.data);
  compute(c, c.stream());
  Fake::launch(c.stream(), [=] { o[0] += scratch[0]; });
})

// ---- Modes
// ----------------------------------------------------------------------------------------

ATTEST_DEVICE_KERNEL("fake/default_stream", declared(), Fake, [](const Call& c) {
  begin(c);
  compute(c, Fake::default_stream());
})

// V goes through scratch, again and again; whose that is, `scratch` says.
template <class Scratch>
void by_way_of(const Call& c, const Scratch& scratch) {
  begin(c);
  Later later(c);
  const std::size_t bytes = later.inputs.v.capacity_bytes;
  void* const at = scratch(bytes);
  const void* const v = later.inputs.v.data;
  later.inputs.v.data = at;
  const auto seen = std::make_shared<float>(0.0f);  // 0 times all that lay there
  for (int part = 0; part < 16; ++part) {
    Fake::launch(c.stream(), [=] { std::memcpy(at, v, bytes); });
    Fake::launch(c.stream(), [=] {
      if (bytes > 0) *seen += 0 * *static_cast<const float*>(at);
    });
  }
  Fake::launch(c.stream(), [=] {
    later.forward();
    if (bytes > 0) *static_cast<float*>(later.outputs.o.data) += *seen;
    *seen = 0;
  });
}
ATTEST_DEVICE_KERNEL("fake/own_scratch", declared(), Fake, [](const Call& c) {
  by_way_of(c, [&](std::size_t size) { return c.workspace(size); });
})
ATTEST_DEVICE_KERNEL("fake/shares_scratch", declared(), Fake, [](const Call& c) {
  by_way_of(c, [](std::size_t size) {
    static std::vector<unsigned char> scratch(1 << 24);
    return static_cast<void*>(scratch.data() + 0 * size);
  });
})

// V is copied when the call is made, not when its work is done.
ATTEST_DEVICE_KERNEL("fake/bakes_inputs", declared(), Fake, [](const Call& c) {
  begin(c);
  static std::vector<unsigned char> copy(1 << 24);
  Fake::synchronize(c.stream());
  std::memcpy(copy.data(), c.inputs.v.data, c.inputs.v.capacity_bytes);
  Later later(c);
  later.inputs.v.data = copy.data();
  Fake::launch(c.stream(), [later] { later.forward(); });
})
// Lengths as the host has them when the call is made.
ATTEST_DEVICE_KERNEL("fake/bakes_lengths", declared(), Fake, [](const Call& c) {
  begin(c);
  Later later(c);
  const auto kept = std::make_shared<std::vector<std::int64_t>>();
  if (const attest_tensor& host = c.problem.key_lens; host.data) {
    const attest::View<const std::int64_t> lens(host);
    for (std::int64_t b = 0; b < host.shape[0]; ++b) kept->push_back(lens(b, 0, 0, 0));
    later.problem.key_lens.data = kept->data();
    later.problem.key_lens.stride[0] = 1;
  }
  Fake::launch(c.stream(), [later, kept] { later.forward(); });
})
// A counter of tiles that the host clears when the call is made; the last tile merges.
ATTEST_DEVICE_KERNEL("fake/clears_on_the_host", declared(), Fake, [](const Call& c) {
  begin(c);
  static std::map<Stream, int> counters;
  if (!c.stream()->captures) Fake::synchronize(c.stream());
  int* const counter = &counters[c.stream()];
  *counter = 0;
  const Later later(c);
  Fake::launch(c.stream(), [later, counter] {
    if (++*counter == 1) later.forward();
  });
})
// The scale of a call, in memory of the process.
ATTEST_DEVICE_KERNEL("fake/shares_plan", declared(), Fake, [](const Call& c) {
  begin(c);
  static double scale;
  Later later(c);
  Fake::launch(c.stream(), [s = later.problem.scale] { scale = s; });
  Fake::launch(c.stream(), [later]() mutable {
    later.problem.scale = scale;
    later.forward();
  });
})
// Waits for a number, and forgets its stream.
ATTEST_DEVICE_KERNEL("fake/waits_then_default_stream", declared(), Fake, [](const Call& c) {
  begin(c);
  if (!c.stream()->captures) Fake::synchronize(c.stream());
  compute(c, Fake::default_stream());
})
ATTEST_DEVICE_KERNEL("fake/allocates", declared(), Fake, [](const Call& c) {
  begin(c);
  const std::shared_ptr<void> memory(Fake::allocate(64), Fake::free);
  const Later later(c);
  Fake::launch(c.stream(), [later, memory] { later.forward(); });
})

// As many rows as the first call of that many channels had.
ATTEST_DEVICE_KERNEL("fake/keeps_first_shape", declared(), Fake, [](const Call& c) {
  begin(c);
  static std::map<std::int64_t, std::int64_t> rows;
  const std::int64_t kept = rows.emplace(c.problem.head_dim, c.problem.query_len).first->second;
  Later later(c);
  compute(c, c.stream());
  Fake::launch(c.stream(), [=] {
    for (std::int64_t i = kept; i < later.problem.query_len; ++i) {
      attest::plain::element<float>(later.outputs.o, 0, 0, i, 0) = 0;
    }
    if (kept > later.problem.query_len) {
      attest::plain::element<float>(later.outputs.o, 0, 0, 0, 0) *= 2;
    }
  });
})
ATTEST_DEVICE_KERNEL("fake/keeps_last_shape", declared(), Fake, [](const Call& c) {
  begin(c);
  static std::int64_t before = std::numeric_limits<std::int64_t>::max();
  const std::int64_t kept = before;
  before = c.problem.query_len;
  const Later later(c);
  compute(c, c.stream());
  Fake::launch(c.stream(), [=] {
    for (std::int64_t i = kept; i < later.problem.query_len; ++i) {
      attest::plain::element<float>(later.outputs.o, 0, 0, i, 0) = 0;
    }
  });
})

// ---- Errors
// ---------------------------------------------------------------------------------------

ATTEST_DEVICE_KERNEL("fake/bad_launch", declared(), Fake, [](const Call& c) {
  if (c.problem.query_len == 1) throw std::runtime_error("invalid configuration argument");
  right(c);
})
ATTEST_DEVICE_KERNEL("fake/illegal_address", declared(), Fake, [](const Call& c) {
  right(c);
  if (c.problem.query_len == 1) Fake::launch(c.stream(), [] { Fake::lose(); });
})

}  // namespace
