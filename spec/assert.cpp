#include "spec/assert.h"

#include <cstdio>
#include <cstdlib>

namespace attest {

void assertion_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "attest: internal error: %s does not hold (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace attest
