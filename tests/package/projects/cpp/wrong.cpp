#include "kernel.h"

ATTEST_KERNEL("wrong", declared(), [](const attest::Call& c) { attend(c, 1); })
