// ATTEST_ASSERT: our own mistakes, and nobody else's. On in every build.
//
// Three kinds of error have three mechanisms: our own bug stops here; a testee's misbehaviour is a
// Verdict; a bad file or flag is an exception caught once, in main (json_reader.h, InputError).
#pragma once

namespace attest {

[[noreturn]] void assertion_failed(const char* condition, const char* file, int line);

}  // namespace attest

#define ATTEST_ASSERT(condition) \
  ((condition) ? (void)0 : ::attest::assertion_failed(#condition, __FILE__, __LINE__))
