// Whether this process may use AMX tiles. The processor must have them, and the operating system
// must save them; and Linux gives them only to a process that has asked (since 5.16), for a thread
// that uses them has 8 KiB more to save.
#pragma once

#include <string>
#include <vector>

#include "impl/plugin.h"

namespace attest::impl::amx {

// What the processor and the operating system say.
struct Machine {
  bool has_tiles = false;        // CPUID: AMX-TILE and AMX-BF16
  bool has_vectors = false;      // CPUID: AVX-512 F, BW, DQ, VL and BF16
  bool saves_registers = false;  // XCR0: the operating system saves both
  int permission_error = 0;      // errno of the request for permission; 0: granted
};

// What is missing, in words; empty if nothing is.
std::string missing(const Machine& machine);

// Of this process. Asks for the permission, for all its threads, if nothing else is missing.
std::string missing_for_tiles();

// Adds the kernel on tiles to those of a library: to what it has, or to what it lacks.
void offer_tile_kernel(const std::string& name, std::vector<KernelCode>& kernels,
                       std::vector<AbsentKernel>& absent);

}  // namespace attest::impl::amx
