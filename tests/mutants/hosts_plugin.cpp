// The plug-in `hosts.so`: the mutants once more, in narrow kernels.
#include "tests/mutants/hosts.h"
#include "tests/mutants/kernels.h"

extern "C" ATTEST_EXPORT const attest_plugin* attest_plugin_get(void) {
  static const attest::mutants::Kernels kernels(attest::mutants::hosts());
  return kernels.plugin();
}
