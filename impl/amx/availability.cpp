#include "impl/amx/availability.h"

#include <cstring>

#if defined(ATTEST_HAS_AMX)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <initializer_list>

#include "impl/amx/intrinsics.h"
#include "impl/amx/kernel.h"
#endif

namespace attest::impl::amx {

std::string missing(const Machine& machine) {
  if (!machine.has_tiles) return "the processor has no AMX-BF16 tiles";
  if (!machine.has_vectors) return "the processor has AMX tiles, but not AVX512-BF16";
  if (!machine.saves_registers) return "the operating system does not save AMX tiles";
  if (machine.permission_error != 0) {
    return std::string(
               "the kernel gives no permission to use AMX tiles (arch_prctl "
               "ARCH_REQ_XCOMP_PERM, Linux 5.16 or later): ") +
           std::strerror(machine.permission_error);
  }
  return "";
}

#if defined(ATTEST_HAS_AMX)
namespace {

struct CpuId {
  explicit CpuId(unsigned leaf, unsigned subleaf) {
    if (!__get_cpuid_count(leaf, subleaf, &eax, &ebx, &ecx, &edx)) eax = ebx = ecx = edx = 0;
  }
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

bool all_set(std::uint64_t word, std::initializer_list<int> bits) {
  for (const int bit : bits) {
    if ((word >> bit & 1) == 0) return false;
  }
  return true;
}

std::uint64_t saved_by_the_system() {
  constexpr int kOsXsave = 27;
  if (!all_set(CpuId(1, 0).ecx, {kOsXsave})) return 0;
  std::uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
}

Machine this_machine() {
  const CpuId features(7, 0), more(7, 1);
  Machine machine;
  machine.has_tiles = all_set(features.edx, {22, 24});              // AMX-BF16, AMX-TILE
  machine.has_vectors = all_set(features.ebx, {16, 17, 30, 31}) &&  // F, DQ, BW, VL
                        all_set(more.eax, {5});                     // BF16
  // SSE, AVX, the three parts of AVX-512; configuration and data of tiles.
  machine.saves_registers = all_set(saved_by_the_system(), {1, 2, 5, 6, 7, 17, 18});
  if (!missing(machine).empty()) return machine;
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // of <asm/prctl.h>, since Linux 5.16
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) machine.permission_error = errno;
  return machine;
}

}  // namespace

std::string missing_for_tiles() { return missing(this_machine()); }

void offer_tile_kernel(const std::string& name, std::vector<KernelCode>& kernels,
                       std::vector<AbsentKernel>& absent) {
  const std::string why = missing_for_tiles();
  if (why.empty()) {
    kernels.push_back(tile_kernel<&tile_steps>(name));
  } else {
    absent.push_back({name, why});
  }
}
#else
std::string missing_for_tiles() { return "the library was built without AMX"; }

void offer_tile_kernel(const std::string& name, std::vector<KernelCode>&,
                       std::vector<AbsentKernel>& absent) {
  absent.push_back({name, missing_for_tiles()});
}
#endif

}  // namespace attest::impl::amx
