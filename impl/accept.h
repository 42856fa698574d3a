// What a host hands over, read and checked: nothing behind this page meets a struct that is too
// short, a tensor of another shape or a problem that the kernels cannot run.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <stdexcept>

#include "impl/kernel_code.h"

namespace attest::impl {

// The problem with its mask, lengths and tables, found to be one that the kernel can run; throws
// the reason otherwise.
Call accept(const KernelCode& code, const attest_problem* problem);

// The tensors of a pass, found to be those of the problem; throws otherwise.
void accept_tensors(const attest_inputs* inputs, const attest_outputs* outputs, bool backward,
                    Call& call);

// A struct as its maker knew it: fields that this plug-in doesn't know are ignored, fields that the
// host didn't know are 0. `needed` is the size without which a struct says too little.
template <class T>
T read(const T* given, std::size_t needed, const char* what) {
  if (!given || given->struct_size < needed) {
    throw std::runtime_error(
        fmt::format("{} is {} bytes long, which is shorter than the {} of ABI version {}", what,
                    given ? given->struct_size : 0, needed, ATTEST_ABI_VERSION));
  }
  T copy = {};
  std::memcpy(&copy, given, std::min(given->struct_size, sizeof(T)));
  return copy;
}

// Up to where it went when version 1 of the ABI was published.
inline constexpr std::size_t kContextSize = offsetof(attest_context, trace_context) + sizeof(void*);

}  // namespace attest::impl
