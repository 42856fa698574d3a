// The table of a plug-in whose kernels are made alike.
#pragma once

#include <array>
#include <cstddef>
#include <tuple>

#include "spec/attest_plugin.h"

namespace attest {

// Of the plug-in's own kernels, a std::array, each as `entry` makes one of it. Once for each
// plug-in.
template <class Kernels, class Entry>
const attest_plugin* plugin_of(Kernels& own, Entry entry) {
  static std::array<attest_kernel, std::tuple_size_v<Kernels>> kernels;
  static std::array<const attest_kernel*, std::tuple_size_v<Kernels>> pointers;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    kernels[i] = entry(own[i]);
    pointers[i] = &kernels[i];
  }
  static const attest_plugin plugin = {.struct_size = sizeof(attest_plugin),
                                       .abi_version = ATTEST_ABI_VERSION,
                                       .kernel_count = kernels.size(),
                                       .kernels = pointers.data(),
                                       .absent_kernels = nullptr,
                                       .absent_kernel_count = 0,
                                       .reserved = 0};
  return &plugin;
}

}  // namespace attest
