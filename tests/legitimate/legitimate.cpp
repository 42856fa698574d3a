#include "tests/legitimate/plugin.h"
#include "tests/legitimate/styles.h"

extern "C" ATTEST_EXPORT const attest_plugin* attest_plugin_get() {
  using namespace attest::legitimate;
  static const Plugin plugin("legitimate", legitimate_styles());
  return plugin.table();
}
