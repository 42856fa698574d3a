// The tensors of a call in the memory of a device: whole regions with their slack, canaries and
// poison, between margins, so that what is judged on the host is judged there.
//
//   host      | region of q |     | region of k |     | region of o |
//   device    margin | region of q | margin   margin | region of k | margin   ...
//
// A Layout says where each region lies in one stretch of memory. What crosses of it, all but holes
// (attest_region), is an image, piece behind piece; what came back is compared with what was sent.
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
  // What crosses at once.
  struct Piece {
    std::size_t place;  // on the device
    std::size_t begin;  // in an image
    std::size_t size;
  };

  explicit Layout(const attest_context& context) {
    if (!context.regions) {
      throw Failure(ATTEST_ERROR,
                    "this Attest tells no regions: it is older than <attest/device.h>");
    }
    for (std::uint64_t i = 0; i < context.region_count; ++i) {
      add(attest::detail::read(attest_context_region(&context, i)));
    }
  }

  std::size_t bytes() const { return bytes_; }     // on the device
  std::size_t crossing() const { return image_; }  // of an image
  const std::vector<Piece>& pieces() const { return pieces_; }

  // All that crosses as it is on the host, and poison around it.
  Bytes image() const {
    Bytes all(image_, static_cast<unsigned char>(kPoison));
    for (const Region& r : regions_) {
      for (const Piece& part : r.parts) {
        std::memcpy(&all[part.begin], begin(r) + part.place, part.size);
      }
    }
    return all;
  }

  // The same with NaN in all inputs that are numbers; tables and lengths as they are.
  Bytes image_of_nan(const attest_inputs& in) const {
    Bytes all = image();
    for (const attest_tensor* t :
         {&in.q, &in.k, &in.v, &in.bias, &in.alibi_slopes, &in.sink, &in.q_scale, &in.k_scale,
          &in.v_scale, &in.o, &in.lse, &in.d_o, &in.d_lse, &in.maximum, &in.sum}) {
      const Region* const r = region_of(t->data);
      if (!r) continue;
      const std::size_t first = r->host.tensor_offset, last = first + r->host.tensor_bytes;
      for (const Piece& part : r->parts) {
        const std::size_t from = std::max(first, part.place);
        const std::size_t to = std::min(last, part.place + part.size);
        if (from < to) std::memset(&all[part.begin + from - part.place], kPoison, to - from);
      }
    }
    return all;
  }

  // Where on the device, at `base`, lies what is there on the host.
  void* on_device(unsigned char* base, const void* host) const {
    const Region* const r = region_of(host);
    if (!r) return const_cast<void*>(host);  // nothing, or a tensor without an element
    return base + r->place + (static_cast<const char*>(host) - begin(*r));
  }
  // Where in an image, if it has no holes.
  void* in_image(unsigned char* image, const void* host) const {
    const Region* const r = region_of(host);
    if (!r || r->parts.size() != 1) return const_cast<void*>(host);
    return image + r->parts[0].begin + (static_cast<const char*>(host) - begin(*r));
  }

  // Throws what a call broke beside its outputs, of the images before and after it.
  void check(const Bytes& before, const Bytes& after) const {
    for (const Region& r : regions_) check_margins(r, after);
    for (const Region& r : regions_) {
      for (const Piece& part : r.parts) {
        if (r.host.output) continue;
        const auto from = before.begin() + static_cast<std::ptrdiff_t>(part.begin);
        const auto to = from + static_cast<std::ptrdiff_t>(part.size);
        const auto at = std::mismatch(from, to, &after[part.begin]).first;
        if (at == to) continue;
        const auto away = at - from + static_cast<std::ptrdiff_t>(part.place) -
                          static_cast<std::ptrdiff_t>(r.host.tensor_offset);
        throw Failure(ATTEST_INPUT_MUTATED, "changed the input " + std::string(r.host.name) + ", " +
                                                std::to_string(away) +
                                                " bytes from its start, in device memory");
      }
    }
  }
  // Calls `visit` with the place and the size of each hole, and what to say if it was written to.
  template <class Visit>
  void for_each_hole(const Visit& visit) const {
    for (const Region& r : regions_) {
      std::size_t at = 0;
      const auto hole = [&](std::size_t end) {
        const Failure failure(
            r.host.output ? ATTEST_GUARD : ATTEST_INPUT_MUTATED,
            "wrote between the rows of " + std::string(r.host.name) + ", in device memory");
        if (at < end) visit(r.place + at, end - at, failure);
      };
      for (const Piece& part : r.parts) {
        hole(part.place);
        at = part.place + part.size;
      }
      hole(r.host.bytes);
    }
  }

  // Copies the outputs of calls that are all to be right to the host, where they are judged: a few
  // bytes of each call in turn, so that each of them is seen in every row.
  void take_back(const std::vector<Bytes>& calls) const {
    constexpr std::size_t kTurn = 8;
    for (const Region& r : regions_) {
      for (const Piece& part : r.parts) {
        if (!r.host.output) continue;
        char* const to = static_cast<char*>(r.host.data) + part.place;
        for (std::size_t at = 0, turn = 0; at < part.size; at += kTurn, ++turn) {
          const Bytes& from = calls[turn % calls.size()];
          std::memcpy(to + at, &from[part.begin + at], std::min(kTurn, part.size - at));
        }
      }
    }
  }

 private:
  struct Region {
    attest_region host;
    std::size_t place;                // on the device
    std::vector<Piece> parts;         // what crosses of it; places are those in the region
    std::size_t before, behind, end;  // in an image: the margin before it, that behind it, its end
  };

  void add(const attest_region& host) {
    const std::size_t whole = (host.bytes + kMargin - 1) / kMargin * kMargin;
    Region r = {host, bytes_ + kMargin, {}, image_, 0, 0};
    cross(bytes_, kMargin);
    const attest_stretch all = {0, host.bytes};
    const std::uint64_t count = host.there ? host.there_count : 1;
    for (std::uint64_t i = 0; i < count; ++i) {
      const attest_stretch& each = host.there ? host.there[i] : all;
      if (each.begin == each.end) continue;
      const std::size_t size = each.end - each.begin;
      r.parts.push_back({static_cast<std::size_t>(each.begin), image_, size});
      cross(r.place + each.begin, size);
    }
    r.behind = image_;
    cross(r.place + host.bytes, whole - host.bytes + kMargin);
    r.end = image_;
    bytes_ = r.place + whole + kMargin;
    regions_.push_back(std::move(r));
  }

  // The next of what crosses.
  void cross(std::size_t place, std::size_t size) {
    if (!pieces_.empty() && pieces_.back().place + pieces_.back().size == place) {
      pieces_.back().size += size;
    } else {
      pieces_.push_back({place, image_, size});
    }
    image_ += size;
  }

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
    const unsigned char* const before = &after[r.before];
    const unsigned char* const first = std::find_if(before, before + kMargin, written);
    const std::string name = std::string(r.host.name) + ", in device memory";
    if (first != before + kMargin) {
      const auto away =
          (before + kMargin - first) + static_cast<std::ptrdiff_t>(r.host.tensor_offset);
      throw Failure(ATTEST_GUARD,
                    "wrote " + std::to_string(away) + " bytes before the start of " + name);
    }
    const unsigned char* const behind = &after[r.behind];
    const unsigned char* const end = behind + (r.end - r.behind);
    const unsigned char* const at = std::find_if(behind, end, written);
    if (at != end) {
      const auto away =
          (at - behind) +
          static_cast<std::ptrdiff_t>(r.host.bytes - r.host.tensor_offset - r.host.tensor_bytes) +
          1;
      throw Failure(ATTEST_GUARD,
                    "wrote " + std::to_string(away) + " bytes behind the end of " + name);
    }
  }

  std::vector<Region> regions_;
  std::vector<Piece> pieces_;
  std::size_t bytes_ = 0, image_ = 0;
};

// A problem and the tensors of a call whose data lies elsewhere.
struct Translated {
  attest_problem problem;
  std::vector<attest_mask> nodes;
  attest_inputs inputs;
  attest_outputs outputs;

  // `place` says where what lies on the host lies there.
  template <class Place>
  Translated(const attest::Call& call, const Place& place)
      : problem(call.problem),
        nodes(call.problem.mask_nodes()),
        inputs(call.inputs),
        outputs(call.outputs) {
    const auto move = [&](auto&... tensors) { ((tensors.data = place(tensors.data)), ...); };
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
