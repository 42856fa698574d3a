// The same kernels with one thing wrong, or other than they declare: a check that passes them all
// checks nothing.
#include "tests/legitimate/plugin.h"

extern "C" ATTEST_EXPORT const attest_plugin* attest_plugin_get() {
  static const attest::legitimate::Plugin plugin("faulty", attest::bounds::faulty_styles());
  return plugin.table();
}
