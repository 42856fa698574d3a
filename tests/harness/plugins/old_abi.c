/* A plug-in built against another version of the contract. */
#include "spec/attest_plugin.h"

static const attest_kernel* const kernels[1] = {0};

const attest_plugin* attest_plugin_get(void) {
  static const attest_plugin plugin = {
      sizeof(attest_plugin), ATTEST_ABI_VERSION + 1, 1, kernels, NULL, 0, 0};
  return &plugin;
}
