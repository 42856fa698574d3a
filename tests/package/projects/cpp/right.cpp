#include <attest/device.h>  // with all that it includes

#include "kernel.h"

ATTEST_KERNEL("right", declared(), [](const attest::Call& c) { attend(c, 0); })
