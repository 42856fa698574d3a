/* A plug-in whose one kernel declares arithmetic beyond the caps, or, as `stutters`, one key twice.
 */
#include "spec/attest_plugin.h"

static const char* describe(const attest_kernel* kernel) {
  (void)kernel;
  return "{\"name\": \"braggart\", \"version\": \"1\", \"vendor\": \"test\", \"profiles\": [], "
         "\"dtypes\": [\"f32\"], \"features\": [], "
#ifdef STUTTERS
         "\"limits\": {\"batch\": 1, \"batch\": 2}}";
#else
         "\"arithmetic\": {\"f32\": {\"exp_ulp\": 1000}}}";
#endif
}

static int32_t supports(const attest_kernel* kernel, const attest_problem* problem, char* reason,
                        uint64_t reason_bytes) {
  (void)kernel, (void)problem, (void)reason, (void)reason_bytes;
  return 1;
}

static uint64_t workspace(const attest_kernel* kernel, const attest_problem* problem,
                          int32_t backward, int32_t threads) {
  (void)kernel, (void)problem, (void)backward, (void)threads;
  return 0;
}

static attest_status forward(const attest_kernel* kernel, const attest_problem* problem,
                             const attest_inputs* inputs, const attest_outputs* outputs,
                             const attest_context* context) {
  (void)kernel, (void)problem, (void)inputs, (void)outputs, (void)context;
  return ATTEST_OK;
}

static const attest_kernel kernel = {
    sizeof(attest_kernel), "braggart", 0, describe, supports, workspace, forward, 0};
static const attest_kernel* const kernels[1] = {&kernel};

const attest_plugin* attest_plugin_get(void) {
  static const attest_plugin plugin = {
      sizeof(attest_plugin), ATTEST_ABI_VERSION, 1, kernels, NULL, 0, 0};
  return &plugin;
}
