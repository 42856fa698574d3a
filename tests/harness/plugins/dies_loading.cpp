// A plug-in whose constructor aborts.
#include <cstdio>
#include <cstdlib>

namespace {
struct Dies {
  Dies() {
    std::fputs("no device found\n", stderr);
    std::abort();
  }
} dies;
}  // namespace
