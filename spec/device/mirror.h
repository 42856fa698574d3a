// The tensors of a call in the memory of a device: whole regions with their slack, canaries and
// poison, between margins, so that what is judged on the host is judged there.
//
//   host      | region of q |     | region of k |     | region of o |
//   device    margin | region of q | margin   margin | region of k | margin   ...
//
// A Layout says where each region lies in one stretch of memory; an image is such a stretch as it
// is before the call. What came back is compared with it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "../kernel.h"

namespace attest::device {

using Bytes = std::vector<unsigned char>;

// All ones are NaN in every format, and -1 in every integer.
inline constexpr int kPoison = 0xff;
inline constexpr std::size_t kMargin = 4096;

class Layout {
 public:
  explicit Layout(const attest_context& context) {
    if (!context.regions) {
      throw Failure(ATTEST_ERROR,
                    "this Attest tells no regions: it is older than <attest/device.h>");
    }
    for (std::uint64_t i = 0; i < context.region_count; ++i) {
      regions_.push_back(
          {attest::detail::read(attest_context_region(&context, i)), bytes_ + kMargin});
      const std::size_t whole = (regions_.back().host.bytes + kMargin - 1) / kMargin * kMargin;
      bytes_ += kMargin + whole + kMargin;
    }
  }

  std::size_t bytes() const { return bytes_; }

  // All regions as they are on the host, and poison between them.
  Bytes image() const {
    Bytes all(bytes_, static_cast<unsigned char>(kPoison));
    for (const Region& r : regions_) std::memcpy(&all[r.offset], r.host.data, r.host.bytes);
    return all;
  }

  // The same with NaN in all inputs that are numbers; tables and lengths as they are.
  Bytes image_of_nan(const attest_inputs& in) const {
    Bytes all = image();
    for (const attest_tensor* t :
         {&in.q, &in.k, &in.v, &in.bias, &in.alibi_slopes, &in.sink, &in.q_scale, &in.k_scale,
          &in.v_scale, &in.o, &in.lse, &in.d_o, &in.d_lse, &in.maximum, &in.sum}) {
      const Region* const r = region_of(t->data);
      if (r) std::memset(&all[r->offset + r->host.tensor_offset], kPoison, r->host.tensor_bytes);
    }
    return all;
  }

  // Where on the device, at `base`, lies what is there on the host.
  void* on_device(unsigned char* base, const void* host) const {
    const Region* const r = region_of(host);
    if (!r) return const_cast<void*>(host);  // nothing, or a tensor without an element
    return base + r->offset + (static_cast<const char*>(host) - begin(*r));
  }

  // Copies the outputs to the host, where they are judged. Throws what the call broke beside them.
  void take_back(const Bytes& before, const Bytes& after) const {
    for (const Region& r : regions_) check_margins(r, after);
    for (const Region& r : regions_) {
      if (r.host.output) {
        std::memcpy(r.host.data, &after[r.offset], r.host.bytes);
      } else if (std::memcmp(&before[r.offset], &after[r.offset], r.host.bytes) != 0) {
        const auto from = before.begin() + static_cast<std::ptrdiff_t>(r.offset);
        const auto at = std::mismatch(from, before.end(), &after[r.offset]).first - from;
        throw Failure(ATTEST_INPUT_MUTATED,
                      "changed the input " + std::string(r.host.name) + ", " +
                          std::to_string(at - static_cast<std::ptrdiff_t>(r.host.tensor_offset)) +
                          " bytes from its start, in device memory");
      }
    }
  }

 private:
  struct Region {
    attest_region host;
    std::size_t offset;  // in the stretch
  };

  static const char* begin(const Region& r) { return static_cast<const char*>(r.host.data); }

  const Region* region_of(const void* host) const {
    const auto* const at = static_cast<const char*>(host);
    for (const Region& r : regions_) {
      if (at && at >= begin(r) && at < begin(r) + r.host.bytes) return &r;
    }
    return nullptr;
  }

  static void check_margins(const Region& r, const Bytes& after) {
    const auto written = [](unsigned char byte) { return byte != kPoison; };
    const unsigned char* const from = &after[r.offset];
    const unsigned char* const first = std::find_if(from - kMargin, from, written);
    const std::string name = std::string(r.host.name) + ", in device memory";
    if (first != from) {
      const auto away = (from - first) + static_cast<std::ptrdiff_t>(r.host.tensor_offset);
      throw Failure(ATTEST_GUARD,
                    "wrote " + std::to_string(away) + " bytes before the start of " + name);
    }
    const unsigned char* const end = from + r.host.bytes;
    const unsigned char* const after_it = std::find_if(end, end + kMargin, written);
    if (after_it != end + kMargin) {
      const auto away = after_it - (from + r.host.tensor_offset + r.host.tensor_bytes) + 1;
      throw Failure(ATTEST_GUARD,
                    "wrote " + std::to_string(away) + " bytes behind the end of " + name);
    }
  }

  std::vector<Region> regions_;
  std::size_t bytes_ = 0;
};

// A problem and the tensors of a call whose data lies on the device.
struct Translated {
  attest_problem problem;
  std::vector<attest_mask> nodes;
  attest_inputs inputs;
  attest_outputs outputs;

  Translated(const Layout& layout, unsigned char* base, const attest::Call& call)
      : problem(call.problem),
        nodes(call.problem.mask_nodes()),
        inputs(call.inputs),
        outputs(call.outputs) {
    const auto move = [&](auto&... tensors) {
      ((tensors.data = layout.on_device(base, tensors.data)), ...);
    };
    for (attest_mask& node : nodes) {
      node.struct_size = sizeof(node);
      move(node.table, node.table2);
    }
    problem.struct_size = sizeof(problem);
    inputs.struct_size = sizeof(inputs);
    outputs.struct_size = sizeof(outputs);
    problem.mask = nodes.data();
    move(problem.query_lens, problem.key_lens, problem.cu_query_lens, problem.cu_key_lens,
         problem.page_table);
    attest_inputs& in = inputs;
    move(in.q, in.k, in.v, in.bias, in.alibi_slopes, in.sink, in.keep, in.q_scale, in.k_scale,
         in.v_scale, in.o, in.lse, in.d_o, in.d_lse, in.maximum, in.sum);
    attest_outputs& out = outputs;
    move(out.o, out.lse, out.keep, out.dq, out.dk, out.dv, out.dbias, out.dsink, out.maximum,
         out.sum);
  }
  Translated(const Translated&) = delete;
  Translated& operator=(const Translated&) = delete;
};

}  // namespace attest::device
