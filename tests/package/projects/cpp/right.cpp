#include "kernel.h"

ATTEST_KERNEL("right", declared(), [](const attest::Call& c) { attend(c, 0); })
